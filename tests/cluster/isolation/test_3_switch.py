"""The installation is switched to env and back: no running pod is disturbed, and none gets a GPU of another."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster import plays
from tests.cluster.clusters import TESTS, Cluster
from tests.cluster.isolation.conftest import DRA
from tests.cluster.isolation.containers import containers, line
from tests.cluster.isolation.starts import run, started
from tests.cluster.verify.pods import waits
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.cluster.verify.pods import MakePod

ENV: Final = (*DRA, "-e", "isolation=env")


@pytest.mark.timeout(1800)
def test_running_pods_keep_their_gpus(cluster: Cluster, make_pod: MakePod) -> None:
    """A pod with a claim runs through the switch to env, one with a literal variable through the switch back."""
    claimed = run(cluster, make_pod("claimed-0", "0=node1:4,5"))
    first = started(cluster, claimed)

    refused = plays.run(*ENV)
    assert refused.code
    assert f"{TESTS}/claimed-0" in refused.story()
    plays.run(*ENV, "--skip-tags", "driver").succeeded()

    literal = run(cluster, make_pod("literal-0", "0=node1:6"))
    second = started(cluster, literal)
    assert "resourceClaims" not in cluster.get("pod", "-n", TESTS, literal)["spec"]
    assert cluster.environment(TESTS, literal)["CUDA_VISIBLE_DEVICES"] == "6"
    _held(cluster, make_pod, "late-1", 5, claimed)

    plays.run(*DRA).succeeded()

    assert (started(cluster, claimed), started(cluster, literal)) == (first, second)
    assert containers(cluster, "node1")[claimed] == line(cluster, "node1", 4, 5)
    _held(cluster, make_pod, "later-1", 6, literal)
    again = run(cluster, make_pod("again-0", "0=node1:7"))
    assert containers(cluster, "node1")[again] == line(cluster, "node1", 7)


def _held(cluster: Cluster, make_pod: MakePod, name: str, gpu: int, holder: str) -> None:
    """Check that a pod of another workload which names the GPU waits for the one that has it, and delete it."""
    cluster.create(make_pod(name, f"1=node1:{gpu}"))
    condition = eventually(f"{name} to have its reason", partial(waits, cluster, name, "GpuHeld"), 30)
    assert f"{TESTS}/{holder}" in condition["message"]
    cluster.kubectl("delete", "pod", "-n", TESTS, name, "--wait")
