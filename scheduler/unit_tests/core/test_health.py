"""A line that names a device which the node's monitor reports as unhealthy."""

from typing import TYPE_CHECKING, Any

import pytest

from gpu_scheduler.core.cluster_events import Aspect, NodeChanged
from gpu_scheduler.core.filters.gpu_filters import gpu_healthy
from gpu_scheduler.core.ledger.hold import assumed_hold
from gpu_scheduler.core.nodes.inventory import Device, DeviceReading, Health, Inventory
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.reasons import Reason, Unschedulable
from tests.messages import says
from unit_tests.core.build import KEEP, node, own, pod

if TYPE_CHECKING:
    from gpu_scheduler.core.nodes.nodes import Node

GPU_2 = "GPU-20000000-0000-0000-0000-000000000000"
MIG = "MIG-20000000-0000-0000-0000-000000000000"
DEVICES = Inventory((Device(0), Device(1), Device(2, GPU_2, (MIG,))))
READINGS = {1: DeviceReading(health=Health.DEGRADED), 2: DeviceReading(health=Health.UNHEALTHY)}
OBSERVER = {"agentaflow.gpu/observer": "true"}


def filtered(given: Pod, devices: str, **others: Any) -> Unschedulable | None:
    """Return why these devices of a node with degraded device 1 and unhealthy device 2 fail the filter, or None."""
    node1: Node = node("node1", **{"inventory": DEVICES, "readings": READINGS, **others})
    placement = Placement("node1", tuple(filter(None, devices.split(","))), 0)
    return gpu_healthy(assumed_hold(given, placement), node1)


LINE = pod("train-0")
LIMITED = pod("train-0", gpu_limits=(("main", 2),))
HEALTHY: dict[str, tuple[Pod, str, dict[str, Any], bool]] = {
    "a healthy device": (LINE, "0", {}, True),
    "a degraded device": (LINE, "1", {}, True),
    "an unhealthy device": (LINE, "2", {}, False),
    "two devices, one of them unhealthy": (LINE, "0,2", {}, False),
    "the UUID of an unhealthy device": (LINE, GPU_2, {}, False),
    "a MIG device of an unhealthy device": (LINE, MIG, {}, False),
    "a device that the monitor does not list": (LINE, "7", {}, True),
    "no device": (LINE, "", {}, True),
    "an unhealthy device of an observer": (pod("train-0", annotations=OBSERVER), "2", {}, True),
    "an unhealthy device that the pod keeps beside its line": (
        pod("train-0", annotations=KEEP, containers=own("2")),
        "0",
        {},
        False,
    ),
    "a stale monitor": (LINE, "0", {"stale": True}, True),
    "a node without a monitor": (LINE, "2", {"inventory": None, "readings": {}}, True),
    "devices that a device plugin chooses": (LIMITED, "0,1,2", {"advertised": 3}, True),
    "a limit that is only a count": (LIMITED, "0,2", {}, False),
}


@pytest.mark.parametrize(("given", "devices", "others", "healthy"), HEALTHY.values(), ids=HEALTHY)
def test_a_pod_waits_for_the_health_of_its_device(
    given: Pod,
    devices: str,
    others: dict[str, Any],
    healthy: bool,  # noqa: FBT001
) -> None:
    """The pod waits only for a device that it would hold and that the monitor reports as unhealthy."""
    unschedulable = filtered(given, devices, **others)

    assert healthy is (unschedulable is None)


def test_the_message_names_the_unhealthy_device() -> None:
    """The message has a remedy, and the next change of the node's health requeues the pod."""
    unschedulable = filtered(LINE, "0,2")

    assert unschedulable is not None
    says(unschedulable.message, "GpuUnhealthy", "GPU 2", "node1", "kubectl gpu-scheduler health")
    assert unschedulable.reason is Reason.GPU_UNHEALTHY
    assert unschedulable.cured_by == {NodeChanged("node1", Aspect.HEALTH)}
