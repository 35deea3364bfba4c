"""Which devices a node has, and what the Binding says of a pod's devices."""

import pytest

from gpu_scheduler.core.cluster_events import Aspect, NodeChanged
from gpu_scheduler.core.decision import Bind, Wait
from gpu_scheduler.core.nodes.inventory import Device, DevicePart, Inventory, counted
from gpu_scheduler.core.reasons import Reason
from tests.messages import says
from unit_tests.core.build import decided, ledger, node, nodes, pod, running

GPU_0, GPU_1, GPU_9 = (f"GPU-{number}0000000-0000-0000-0000-000000000000" for number in (0, 1, 9))
MIG_A, MIG_B, MIG_9 = (f"MIG-{number}0000000-0000-0000-0000-000000000000" for number in (1, 2, 9))
FULL = Inventory((Device(0, GPU_0), Device(1, GPU_1, (MIG_A, MIG_B))))
PARTLY = Inventory((Device(0, GPU_0), Device(1)))
UUIDS = "agentaflow.gpu/assigned-uuids"

PARTS = {
    "an index": ("1", DevicePart(1)),
    "a UUID": (GPU_1, DevicePart(1)),
    "a MIG device": (MIG_B, DevicePart(1, MIG_B)),
    "an unknown index": ("2", None),
    "an unknown UUID": (GPU_9, None),
}


@pytest.mark.parametrize(("device", "part"), PARTS.values(), ids=PARTS)
def test_an_inventory_finds_a_device(device: str, part: DevicePart | None) -> None:
    """A device is found by index, by UUID, or by the UUID of a MIG device."""
    assert part == FULL.find(device)


def test_a_wrong_capacity_does_not_exhaust_memory() -> None:
    """A node that claims to have a million devices gets an inventory of 1,024."""
    assert len(counted(10**6).devices) == 1024
    assert counted(2) == Inventory((Device(0), Device(1)))
    assert counted(0).devices == ()


EXIST = {
    "a known device": (FULL, "1", True),
    "an unknown device": (FULL, "2", False),
    "two devices, one of them unknown": (FULL, "0,2", False),
    "a known UUID": (FULL, GPU_0, True),
    "an unknown UUID": (FULL, GPU_9, False),
    "a known MIG device": (FULL, MIG_A, True),
    "an unknown MIG device": (FULL, MIG_9, False),
    "a device beyond a count": (counted(2), "2", False),
    "a UUID where only a count is known": (counted(2), GPU_9, True),
    "a MIG device where only a count is known": (counted(2), MIG_9, True),
    "any device where nothing is known": (None, "99", True),
    "no device on a node without devices": (counted(0), "", True),
    "a device on a node without devices": (counted(0), "0", False),
}


@pytest.mark.promise("fit-11")
@pytest.mark.parametrize(("inventory", "devices", "exist"), EXIST.values(), ids=EXIST)
def test_a_line_must_name_devices_that_exist(inventory: Inventory | None, devices: str, exist: bool) -> None:  # noqa: FBT001
    """Devices are checked against a known inventory; a count of devices has numbers only."""
    decision = decided(pod("train-0", f"0=node1:{devices}"), known=nodes(node("node1", inventory=inventory)))

    if exist:
        assert isinstance(decision, Bind)
    else:
        assert isinstance(decision, Wait)
        assert decision.reason is Reason.GPU_NOT_FOUND
        assert NodeChanged("node1", Aspect.INVENTORY) in decision.cured_by


MESSAGES = {
    "GPUs by number": (counted(4), ("GpuNotFound", "GPU 7", "node1", "GPUs 0 to 3")),
    "no GPUs": (counted(0), ("GpuNotFound", "GPU 7", "node1", "no GPUs")),
}


@pytest.mark.parametrize(("inventory", "said"), MESSAGES.values(), ids=MESSAGES)
def test_the_message_names_the_devices_of_the_node(inventory: Inventory, said: tuple[str, ...]) -> None:
    """The message also has a command that shows the devices."""
    decision = decided(pod("train-0", "0=node1:7"), known=nodes(node("node1", inventory=inventory)))

    assert isinstance(decision, Wait)
    says(decision.message, *said, "kubectl gpu-scheduler nodes -o wide")


KNOWN = {
    "devices by index": (FULL, "1,0", f"{GPU_1},{GPU_0}"),
    "devices by UUID": (FULL, f"{GPU_1},{GPU_0}", f"{GPU_1},{GPU_0}"),
    "MIG devices": (FULL, f"{MIG_B},{MIG_A}", f"{MIG_B},{MIG_A}"),
    "no device": (FULL, "", ""),
    "a device of a partly known node": (PARTLY, "0", GPU_0),
    "devices of which one has no known UUID": (PARTLY, "0,1", None),
    "devices of which only the number is known": (counted(2), "0,1", None),
    "devices of a node without an inventory": (None, "0", None),
}


@pytest.mark.parametrize(("inventory", "devices", "uuids"), KNOWN.values(), ids=KNOWN)
def test_the_binding_names_the_uuids(inventory: Inventory | None, devices: str, uuids: str | None) -> None:
    """The UUIDs are in the order of the devices; the annotation is absent if one of them is unknown."""
    decision = decided(pod("train-0", f"0=node1:{devices}"), known=nodes(node("node1", inventory=inventory)))

    assert isinstance(decision, Bind)
    expected = {
        "agentaflow.gpu/assigned-devices": devices,
        "agentaflow.gpu/assigned-index": "0",
        "agentaflow.gpu/assigned-node": "node1",
    }
    assert decision.placement.annotations == expected | ({} if uuids is None else {UUIDS: uuids})


def test_the_message_has_both_names_of_a_held_device() -> None:
    """The message has the holder's name for the device beside the waiting pod's name for it."""
    known = nodes(node("node1", inventory=FULL))
    held = ledger(running("other-0", "node1", f"0=node1:{GPU_1}", namespace="b"), known=known)
    decision = decided(pod("train-0", "0=node1:1"), held, known)

    assert isinstance(decision, Wait)
    says(decision.message, "GpuHeld", "GPU 1", "node1", f"{GPU_1}", "b/other-0")
    assert held.forget("uid-of-b/other-0") & decision.cured_by
