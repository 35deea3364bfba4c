"""Controllers that die, follow one another and leave: no pod is made twice, and nothing waits for a hand."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.bench import SYSTEM_NAMESPACE
from tests.integration.workshop import start_controller
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.workshop import Orders

SYSTEM = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases/gpu-scheduler-controller"


@pytest.fixture
def idle(kinds: ControlPlane) -> ControlPlane:
    """A control plane whose controller lease nobody holds, for tests that bring replicas of their own."""
    kinds.kube.delete(LEASE)
    return kinds


@pytest.mark.promise("order-3")
@pytest.mark.parametrize("place", ["made", "told"])
def test_a_controller_that_dies_between_pod_and_status_makes_no_second_pod(
    idle: ControlPlane, orders: Orders, tmp_path: Path, place: str
) -> None:
    """Killed as by kill -9; its successor finds the pod, by its name and its owner, and tells of it."""
    made = orders.place("train")
    dying = start_controller(idle, tmp_path, "dying", "tests.integration.dying", DIES_AT=place)
    try:
        eventually("it died", lambda: not dying.process.alive(), seconds=20)
    finally:
        dying.kill()
    before = orders.wait_pod("train-0")
    assert orders.status("train") == {}

    successor = start_controller(idle, tmp_path, "successor")
    try:
        orders.wait("train", "Pending", seconds=20)
        time.sleep(0.5)
    finally:
        successor.process.stop()
    assert orders.pods() == ["train-0"]
    assert orders.read("train")["metadata"]["uid"] == made["metadata"]["uid"]
    assert orders.wait_pod("train-0")["metadata"]["uid"] == before["metadata"]["uid"]


@pytest.mark.promise("order-8")
def test_a_standby_takes_over_and_makes_nothing_twice(idle: ControlPlane, orders: Orders, tmp_path: Path) -> None:
    """It waits, warm and ready, until the leader's lease has run out."""
    first = start_controller(idle, tmp_path, "first")
    try:
        first.wait_ready()
        eventually("the first leads", first.leads)
        second = start_controller(idle, tmp_path, "second")
        try:
            second.wait_ready()
            orders.place("early")
            orders.wait("early", "Pending")
            assert not second.leads()
            first.kill()
            orders.place("late")
            orders.wait("late", "Pending", seconds=8)
        finally:
            second.process.stop()
    finally:
        first.kill()

    assert orders.pods() == ["early-0", "late-0"]


@pytest.mark.promise("order-8")
def test_a_controller_ends_in_good_order(idle: ControlPlane, orders: Orders, tmp_path: Path) -> None:
    """SIGTERM: within 5 s, with its lease given back, and nothing left to do by hand."""
    command = start_controller(idle, tmp_path, "leaver")
    command.wait_ready()
    eventually("it leads", command.leads)
    orders.place("train")
    orders.wait("train", "Pending")
    began = time.monotonic()
    command.process.send(signal.SIGTERM)

    assert command.process.wait() == 0
    assert time.monotonic() - began < limit(5)
    lease = idle.kube.get(LEASE)
    assert lease is not None
    assert lease["spec"].get("holderIdentity", "") == ""


@pytest.mark.promise("order-8")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"{SYSTEM}/secrets"),
        ("GET", f"{SYSTEM}/configmaps"),
        ("PATCH", f"{SYSTEM}/pods/any"),
        ("DELETE", f"{SYSTEM}/pods/any"),
        ("POST", f"{SYSTEM}/pods/any/binding"),
        ("PATCH", f"{SYSTEM}/pods/any/status"),
        ("PATCH", "/api/v1/nodes/any"),
        ("POST", "/apis/agentaflow.io/v1/namespaces/default/gpuworkloads"),
        ("PATCH", "/apis/agentaflow.io/v1/namespaces/default/gpuworkloads/any"),
        ("DELETE", "/apis/agentaflow.io/v1/gpunodes/any"),
        ("PATCH", f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases/gpu-scheduler"),
    ],
)
def test_the_controller_may_not(kinds: ControlPlane, method: str, path: str) -> None:
    """What its work does not need is forbidden; that it needs all else, the tests above show."""
    kube = kinds.client_of(SYSTEM_NAMESPACE, "gpu-scheduler-controller")

    status, answer = kube.call(method, path, {} if method != "GET" else None, "application/merge-patch+json")

    assert status == 403, answer
