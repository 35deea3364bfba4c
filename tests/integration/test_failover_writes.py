"""What a new leader writes to the pods that wait already, counted by the API server.

The test has its own control plane, because requests of other programs would be counted too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.integration import waiting_pods
from tests.integration.command import give_up_lease, start_alone, start_scheduler
from tests.integration.namespace import Namespace
from tests.integration.request_counts import requests
from tests.integration.role_manifests import control_plane
from tests.objects import literal, pod
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.objects import Object

WAITING_PODS: Final = 200
ONE_POD: Final = {"PATCH pods/status": 1, "POST events": 1}
"""What a pod costs whose reason to wait is new."""


@pytest.fixture
def quiet_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane for this test alone."""
    plane = control_plane(tmp_path)
    yield plane
    plane.stop()


@pytest.mark.timeout(300)
@pytest.mark.promise("text-8", "lead-1")
@pytest.mark.parametrize("standby", ["warm", "cold"])
def test_a_new_leader_writes_nothing_to_pods_whose_condition_says_why_they_wait(
    quiet_plane: ControlPlane, tmp_path: Path, standby: str
) -> None:
    """It decides on each waiting pod and writes no condition and no event, for every reason of REASONS.

    A warm standby has seen each pod without its condition first, a cold one sees both at once. A pod of another
    scheduler takes one CPU more in between, which changes only numbers in the text of pod `larger`.
    """
    namespace = Namespace(quiet_plane.kube, "failover")
    replicas: list[Command] = []
    try:
        replicas.append(first := start_alone(quiet_plane, tmp_path, "replica-0"))
        first.wait_ready()
        eventually("the first leads", first.leads)
        if standby == "warm":
            replicas.append(start_scheduler(quiet_plane, tmp_path, "replica-1"))
            replicas[-1].wait_ready()
        namespace.node("small", room={"cpu": "8"})
        namespace.make(_pod("uses-5", "0", "5"))
        namespace.wait_bound("uses-5", "small")
        namespace.make(_pod("larger", "1", "4"))
        assert "5 of 8" in namespace.wait_message("larger", "InsufficientResources: ")
        waiting_pods.gather(namespace, WAITING_PODS)
        eventually("each pod has an event", lambda: namespace.count_events() >= WAITING_PODS + 3, seconds=60)

        first.kill()
        give_up_lease(namespace.kube)
        namespace.make(_pod("uses-1", "2", "1", scheduler="other", nodeName="small"))
        before = requests(namespace.kube)
        if standby == "cold":
            replicas.append(start_alone(quiet_plane, tmp_path, "replica-1"))
            replicas[-1].wait_ready()
        written = _written_by(replicas[-1], namespace) - before
        # And the event of its Lease.
        expected = {**ONE_POD, "POST events": ONE_POD["POST events"] + 1}
        assert {what: written[what] for what in expected} == expected
    finally:
        for replica in replicas:
            replica.process.stop()


def _pod(name: str, device: str, cpu: str, **spec: object) -> Object:
    """Return a pod that asks for a device and CPU of node small."""
    given = {"annotations": waiting_pods.INDEX, "requests": {"cpu": cpu}, "owner": ("Job", name)}
    return pod(name, f"0=small:{device}\n", literal(device), **given, **spec)


def _written_by(leader: Command, namespace: Namespace) -> Counter[str]:
    """Wait until the leader has decided on each waiting pod, and written about a later one. Count all requests."""
    eventually("it leads", leader.leads, seconds=30)
    eventually("it has decided on each", lambda: leader.attempts("unschedulable") > WAITING_PODS, seconds=30)
    namespace.pod("later", "0=nowhere:0\n", "0")
    # Notices are written in their order. So those of the other pods would be written before this one.
    namespace.wait_event("later", "FailedScheduling")
    return requests(namespace.kube)
