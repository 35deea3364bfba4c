"""A StatefulSet whose pods start together, with real kubelets: Kubernetes makes the next pod when the last one runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.cluster.clusters import TESTS, Cluster
from tests.cluster.verify.pods import bound, held_twice, runs, selected, waits
from tests.messages import says
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.verify.pods import Json, MakePod

LINES = "0=node1:90\n1=node2:90\n2=node3:90\n"


@pytest.mark.promise("together-1", "together-2", "together-5")
def test_a_statefulset_starts_when_all_its_lines_can_be_had(
    cluster: Cluster, make_pod: MakePod, make_workload: Callable[..., None]
) -> None:
    """Its last line is held: its first pod waits. While it starts, nobody else gets the GPU of its last line."""
    cluster.create(make_pod("holder-0", "0=node3:90\n"))
    eventually("the holder is bound", partial(bound, cluster, "holder-0"))
    start = {"agentaflow.gpu/start": "together"}
    make_workload("StatefulSet", "gang", LINES, replicas=3, serviceName="gang", annotations=start)
    reported = eventually("its first pod waits", partial(waits, cluster, "gang-0", "GpuHeld"))["message"]
    says(reported, "GpuHeld", "index 2", "GPU 90", "node3", f"{TESTS}/holder-0")

    cluster.kubectl("delete", "pod", "-n", TESTS, "holder-0", "--now", "--wait=false")
    eventually("its first pod is bound", partial(bound, cluster, "gang-0"))
    cluster.create(make_pod("late-0", "0=node3:90\n"))
    eventually("three pods run", partial(_all_run, cluster), 60)

    for pod in selected(cluster, "app=gang"):
        assert cluster.environment(TESTS, pod["metadata"]["name"])["CUDA_VISIBLE_DEVICES"] == "90"
    assert bound(cluster, "late-0") is None


def _all_run(cluster: Cluster) -> list[Json]:
    """Return the three pods if they run. Fail if a GPU is held twice."""
    pods = selected(cluster, "app=gang")
    assert held_twice(pods) == {}
    return pods if len(pods) == 3 and all(map(runs, pods)) else []
