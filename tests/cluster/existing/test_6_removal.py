"""`make uninstall` leaves nothing of ours in the cluster, and everything of others as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.cluster.existing import scenario
from tests.cluster.existing.listing import left_of_ours
from tests.cluster.existing.own_cluster import ALIAS, GPU_NODES, LABELS
from tests.cluster.existing.page import REMOVE

if TYPE_CHECKING:
    from tests.cluster.clusters import Cluster

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("installed")]

NAMESPACE: Final = "kept"
KINDS: Final = frozenset({"CustomResourceDefinition", "GPUNode", "GPUWorkload", "APIService"})
"""What stays until delete_crds: our kinds, their objects, and what the API server makes of them."""


def state(cluster: Cluster) -> dict[str, tuple[str, str, int]]:
    """Return uid, phase and restarts of each pod that must not notice."""
    pods = cluster.get("pods", "-n", NAMESPACE)["items"]
    return {
        pod["metadata"]["name"]: (
            pod["metadata"]["uid"],
            pod["status"]["phase"],
            pod["status"]["containerStatuses"][0]["restartCount"],
        )
        for pod in pods
    }


@pytest.fixture
def kept(cluster: Cluster, image: str) -> dict[str, tuple[str, str, int]]:
    """Pods of ours that run on their GPUs."""
    cluster.kubectl("create", "namespace", NAMESPACE)
    for number, node in enumerate(GPU_NODES):
        container = {"name": "main", "image": image, "command": ["sleep", "infinity"]}
        pod: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"kept-{number}",
                "namespace": NAMESPACE,
                "annotations": {"gpu-scheduling-map": f"{number}={node}:7"},
            },
            "spec": {
                "schedulerName": "gpu-scheduler",
                "containers": [container],
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            },
        }
        cluster.create(pod)
    cluster.kubectl("wait", "-n", NAMESPACE, "pod", "--all", "--for=condition=Ready", "--timeout=120s")
    return state(cluster)


def test_removal_leaves_nothing_of_ours_and_all_of_others(
    cluster: Cluster, kept: dict[str, tuple[str, str, int]]
) -> None:
    """Each kind of the API is listed. Running pods keep uid and restarts, nodes the labels of their operator."""
    first, kinds = scenario.page().blocks(REMOVE)[0].splitlines()
    scenario.read(first).succeeded()
    assert left_of_ours(cluster, KINDS) == []
    assert state(cluster) == kept

    again = scenario.read(first).succeeded()
    assert sum(again.changed.values()) == 0, again.changed

    scenario.read(kinds).succeeded()
    assert left_of_ours(cluster) == []
    assert state(cluster) == kept
    for node in cluster.get("nodes")["items"]:
        name, meta = node["metadata"]["name"], node["metadata"]
        expected = {
            **(LABELS if name in GPU_NODES else {}),
            **({"gpu-node-name": ALIAS[name]} if name in ALIAS else {}),
        }
        left = {**meta["labels"], **meta.get("annotations", {})}
        keys = {key for key in left if "agentaflow" in key or "gpu-scheduler" in key} | expected.keys()
        assert {key: left.get(key) for key in keys} == expected, name
