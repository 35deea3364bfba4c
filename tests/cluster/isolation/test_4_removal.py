"""The removal refuses while pods of users have GPUs of the drivers, and then leaves nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster import plays
from tests.cluster.clusters import SYSTEM, TESTS, Cluster
from tests.cluster.isolation.conftest import DRA
from tests.cluster.isolation.starts import run, started

if TYPE_CHECKING:
    from tests.cluster.verify.pods import MakePod

UNINSTALL = ("ansible-playbook", "playbooks/uninstall.yml", *DRA[2:])


@pytest.mark.timeout(600)
def test_it_waits_for_the_pods_with_claims(cluster: Cluster, make_pod: MakePod) -> None:
    """It names the pod and removes nothing. When the pod is gone, everything of ours goes."""
    name = run(cluster, make_pod("last-0", "0=node3:4"))
    first = started(cluster, name)

    refused = plays.run(*UNINSTALL)

    assert refused.code
    assert f"{TESTS}/{name}" in refused.story()
    assert dict(refused.changed) == {}
    assert started(cluster, name) == first

    cluster.kubectl("delete", "pod", "-n", TESTS, name, "--wait")
    plays.run(*UNINSTALL).succeeded()

    namespaces = {each["metadata"]["name"] for each in cluster.get("namespaces")["items"]}
    assert not {SYSTEM, "gpu-scheduler-driver", "gpu-scheduler-monitor"} & namespaces
    for kind in ("deviceclasses", "resourceslices", "resourceclaims"):
        assert cluster.get(kind, "-A")["items"] == [], kind
