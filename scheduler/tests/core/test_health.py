"""A line that names a card of which its monitor says that it is unhealthy."""

from typing import TYPE_CHECKING, Any

import pytest

from gpu_scheduler.core.cluster_events import Aspect, NodeChanged
from gpu_scheduler.core.filters.gpu_filters import gpu_healthy
from gpu_scheduler.core.ledger.hold import assumed_hold
from gpu_scheduler.core.nodes.inventory import Device, DeviceReading, Health, Inventory
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.reasons import Reason, Unschedulable
from tests.core.build import KEEP, node, own, pod

if TYPE_CHECKING:
    from gpu_scheduler.core.nodes.nodes import Node

GPU_2 = "GPU-20000000-0000-0000-0000-000000000000"
MIG = "MIG-20000000-0000-0000-0000-000000000000"
CARDS = Inventory((Device(0), Device(1), Device(2, GPU_2, (MIG,))))
ILL = {1: DeviceReading(health=Health.DEGRADED), 2: DeviceReading(health=Health.UNHEALTHY)}
OBSERVER = {"agentaflow.gpu/observer": "true"}


def asked(given: Pod, devices: str, **others: Any) -> Unschedulable | None:
    """The question for these devices of a node where card 1 is degraded and card 2 unhealthy."""
    there: Node = node("node1", **{"inventory": CARDS, "readings": ILL, **others})
    placement = Placement("node1", tuple(filter(None, devices.split(","))), 0)
    return gpu_healthy(assumed_hold(given, placement), there)


LINE = pod("train-0")
LIMITED = pod("train-0", gpu_limits=(("main", 2),))
HEALTHY: dict[str, tuple[Pod, str, dict[str, Any], bool]] = {
    "a card that is well": (LINE, "0", {}, True),
    "a card that wears": (LINE, "1", {}, True),
    "a card that is ill": (LINE, "2", {}, False),
    "one of two that is ill": (LINE, "0,2", {}, False),
    "its UUID": (LINE, GPU_2, {}, False),
    "a slice of it": (LINE, MIG, {}, False),
    "a card that the monitor does not list": (LINE, "7", {}, True),
    "no card": (LINE, "", {}, True),
    "an ill card that an observer only sees": (pod("train-0", annotations=OBSERVER), "2", {}, True),
    "an ill card that the pod keeps beside its line": (
        pod("train-0", annotations=KEEP, containers=own("2")),
        "0",
        {},
        False,
    ),
    "the silence of a monitor": (LINE, "0", {"stale": True}, True),
    "a node that nobody reads": (LINE, "2", {"inventory": None, "readings": {}}, True),
    "cards that a device plugin chooses": (LIMITED, "0,1,2", {"advertised": 3}, True),
    "a limit that is only a count": (LIMITED, "0,2", {}, False),
}


@pytest.mark.parametrize(("given", "devices", "others", "well"), HEALTHY.values(), ids=HEALTHY)
def test_who_waits_for_a_cards_health(given: Pod, devices: str, others: dict[str, Any], well: bool) -> None:  # noqa: FBT001
    """Only a card that the pod would hold, and only where its monitor calls it unhealthy."""
    obstacle = asked(given, devices, **others)

    assert well is (obstacle is None)


def test_what_is_said_of_an_unhealthy_card() -> None:
    """Which card, what helps, and what wakes: the monitor's next word on that node's health."""
    obstacle = asked(LINE, "0,2")

    assert obstacle is not None
    assert obstacle.message == (
        "GpuUnhealthy: cannot use GPU 2 of node1: its monitor reports it unhealthy; name another GPU in the map, or "
        "repair it and wait for the monitor; it says why: kubectl get node node1 -o jsonpath="
        "'{.metadata.annotations.agentaflow\\.gpu/devices}'"
    )
    assert obstacle.reason is Reason.GPU_UNHEALTHY
    assert obstacle.cured_by == {NodeChanged("node1", Aspect.HEALTH)}
