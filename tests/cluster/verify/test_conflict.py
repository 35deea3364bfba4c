"""One GPU is assigned to two pods without a scheduler: events and `make status` report it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.cluster.clusters import TESTS, Cluster, run_playbook
from tests.cluster.verify.pods import bound, waits
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.cluster.verify.pods import MakePod


def _reported(cluster: Cluster, name: str) -> bool:
    """Return whether the pod has an event of the conflict."""
    uid = cluster.get("pod", "-n", TESTS, name)["metadata"]["uid"]
    about = f"reason=GpuConflict,regarding.uid={uid}"
    return bool(cluster.get("events.events.k8s.io", "-n", TESTS, "--field-selector", about)["items"])


@pytest.mark.promise("lead-5", "lead-6")
def test_status_shows_a_gpu_that_is_held_twice(cluster: Cluster, make_pod: MakePod) -> None:
    """A waiting pod is bound by hand: both pods get an event within 30 s, and `make status` reports the conflict.

    When one of the two is deleted, `make status` reports it no more.
    """
    cluster.create(make_pod("first-1", "1=node1:88"))
    eventually("first-1 to be bound", partial(bound, cluster, "first-1"))
    cluster.create(make_pod("second-1", "0=node1:89\n1=node1:88"))
    eventually("second-1 to wait", partial(waits, cluster, "second-1", "GpuHeld"))
    cluster.bind(TESTS, "second-1", "node1")
    for name in ("first-1", "second-1"):
        eventually(f"{name} to have an event", partial(_reported, cluster, name), 30, 0.5)
    conflict = "GpuConflict: GPU 88 of node1 is held by"
    assert conflict in run_playbook("playbooks/status.yml").stdout

    cluster.kubectl("delete", "pod", "-n", TESTS, "second-1", "--wait")
    assert conflict not in run_playbook("playbooks/status.yml").stdout
