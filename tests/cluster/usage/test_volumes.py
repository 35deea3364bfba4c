"""A pod whose claim is bound to a volume that only one node can reach."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.cluster.clusters import TESTS, Cluster
from tests.cluster.verify.pods import bound, runs, waits
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.verify.pods import Json, MakePod

NAME = "on-node2"
CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": NAME}}


def _claim_is_bound(cluster: Cluster) -> bool:
    phase: str = cluster.get("pvc", "-n", TESTS, NAME)["status"]["phase"]
    return phase == "Bound"


@pytest.fixture
def volume(cluster: Cluster) -> Iterator[None]:
    """Create a volume on node2 and a claim that is bound to it; delete both after the pods."""
    on_node2 = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node2"]}
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    cluster.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": NAME},
            "spec": {
                **common,
                "capacity": {"storage": "1Mi"},
                "hostPath": {"path": f"/tmp/{NAME}", "type": "DirectoryOrCreate"},  # noqa: S108 - in the node
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node2]}]}},
            },
        }
    )
    resources = {"requests": {"storage": "1Mi"}}
    cluster.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": NAME, "namespace": TESTS},
            "spec": {**common, "volumeName": NAME, "resources": resources},
        }
    )
    eventually("the claim to be bound", partial(_claim_is_bound, cluster), 30, 0.2)
    yield
    cluster.kubectl("delete", "pvc", "-n", TESTS, NAME, "--wait")
    cluster.kubectl("delete", "pv", NAME, "--wait")
    cluster.on_node("node2", "rm", "-rf", f"/tmp/{NAME}")  # noqa: S108


def _with_claim(pod: Json) -> Json:
    """Return the pod with the claim mounted at /data."""
    pod["spec"]["volumes"] = [CLAIM]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return pod


def _runs(cluster: Cluster, name: str) -> bool:
    return runs(cluster.get("pod", "-n", TESTS, name))


@pytest.mark.promise("fit-12")
@pytest.mark.usefixtures("volume")
def test_pod_with_a_volume_runs_only_where_the_volume_is(cluster: Cluster, make_pod: MakePod) -> None:
    """A line on the volume's node is bound and mounts it; a line on another node waits with NodeAffinityMismatch."""
    cluster.create(_with_claim(make_pod("far-0", "0=node3:85")))
    cluster.create(_with_claim(make_pod("near-0", "0=node2:84")))
    condition = eventually("far-0 to have its reason", partial(waits, cluster, "far-0", "NodeAffinityMismatch"))
    eventually("near-0 to run", partial(_runs, cluster, "near-0"), 30, 0.2)

    assert NAME in condition["message"]
    assert "node3" in condition["message"]
    assert bound(cluster, "far-0") is None
    assert cluster.get("pod", "-n", TESTS, "near-0")["spec"]["nodeName"] == "node2"
    assert " /data " in cluster.exec(TESTS, "near-0", "cat", "/proc/1/mounts")
