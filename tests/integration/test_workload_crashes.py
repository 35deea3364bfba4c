"""After a controller is killed or stopped, no pod is created twice, and no manual step is needed."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.integration.barrier import settle
from tests.integration.command import give_up_lease
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.integration.workloads import start_controller
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.workloads import Workloads

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases/gpu-scheduler-controller"


@pytest.fixture
def idle(kinds: ControlPlane) -> ControlPlane:
    """A control plane without a Lease of the controller, for tests that start their own replicas."""
    kinds.kube.delete(LEASE)
    return kinds


@pytest.mark.promise("order-3")
@pytest.mark.parametrize("place", ["made", "reported"])
def test_a_controller_killed_between_pod_and_status_creates_no_second_pod(
    idle: ControlPlane, workloads: Workloads, tmp_path: Path, place: str
) -> None:
    """After SIGKILL its successor finds the pod by name and owner, and writes the status."""
    made = workloads.place("train")
    killed = start_controller(idle, tmp_path, "dying", "tests.integration.program_killed_at", DIES_AT=place)
    try:
        eventually("it died", lambda: not killed.process.alive(), seconds=20)
    finally:
        killed.kill()
    before = workloads.wait_pod("train-0")
    assert workloads.status("train") == {}

    give_up_lease(idle.kube, LEASE)
    with start_controller(idle, tmp_path, "successor").serving() as successor:
        workloads.wait("train", "Pending", seconds=20)
        settle(workloads.namespace, successor)
    assert workloads.pods() == ["train-0"]
    assert workloads.read("train")["metadata"]["uid"] == made["metadata"]["uid"]
    assert workloads.wait_pod("train-0")["metadata"]["uid"] == before["metadata"]["uid"]


@pytest.mark.promise("order-8")
def test_a_standby_takes_over_and_makes_nothing_twice(idle: ControlPlane, workloads: Workloads, tmp_path: Path) -> None:
    """The standby is ready, and leads when the Lease of the killed leader is free."""
    with (
        start_controller(idle, tmp_path, "first").serving(leads=True) as first,
        start_controller(idle, tmp_path, "second").serving() as second,
    ):
        workloads.place("early")
        workloads.wait("early", "Pending")
        assert not second.leads()
        first.kill()
        give_up_lease(idle.kube, LEASE)
        workloads.place("late")
        workloads.wait("late", "Pending")

    assert workloads.pods() == ["early-0", "late-0"]


@pytest.mark.promise("order-8")
def test_a_controller_releases_its_lease_at_sigterm(idle: ControlPlane, workloads: Workloads, tmp_path: Path) -> None:
    """After SIGTERM it ends with exit code 0, and releases its Lease."""
    command = start_controller(idle, tmp_path, "leaver")
    command.wait_ready()
    eventually("it leads", command.leads)
    workloads.place("train")
    workloads.wait("train", "Pending")
    command.process.send(signal.SIGTERM)

    assert command.process.wait() == 0
    lease = idle.kube.get(LEASE)
    assert lease is not None
    assert lease["spec"].get("holderIdentity", "") == ""
