"""Which cards a node has, and what the Binding says of those a pod gets."""

import pytest

from gpu_scheduler.core.cluster_events import Aspect, NodeChanged
from gpu_scheduler.core.decision import Bind, Refuse, Wait
from gpu_scheduler.core.nodes.inventory import Device, DevicePart, Inventory, counted
from gpu_scheduler.core.reasons import Reason
from tests.core.build import decided, ledger, node, nodes, pod, running

GPU_0, GPU_1, GPU_9 = (f"GPU-{number}0000000-0000-0000-0000-000000000000" for number in (0, 1, 9))
MIG_A, MIG_B, MIG_9 = (f"MIG-{number}0000000-0000-0000-0000-000000000000" for number in (1, 2, 9))
FULL = Inventory((Device(0, GPU_0), Device(1, GPU_1, (MIG_A, MIG_B))))
PARTLY = Inventory((Device(0, GPU_0), Device(1)))
UUIDS = "agentaflow.gpu/assigned-uuids"

SPOTS = {
    "an index": ("1", DevicePart(1)),
    "a UUID": (GPU_1, DevicePart(1)),
    "a slice": (MIG_B, DevicePart(1, MIG_B)),
    "an index that is not there": ("2", None),
    "a UUID that is not there": (GPU_9, None),
}


@pytest.mark.parametrize(("device", "part"), SPOTS.values(), ids=SPOTS)
def test_where_a_device_is(device: str, part: DevicePart | None) -> None:
    """By index, by UUID, or by the UUID of a slice."""
    assert part == FULL.find(device)


def test_a_hostile_capacity_fills_no_memory() -> None:
    """A node that claims to have a million cards is believed 1,024."""
    assert len(counted(10**6).cards) == 1024
    assert counted(2) == Inventory((Device(0), Device(1)))
    assert counted(0).cards == ()


EXIST = {
    "a card that is there": (FULL, "1", True),
    "a card that is not there": (FULL, "2", False),
    "one of two that is not there": (FULL, "0,2", False),
    "a UUID that is there": (FULL, GPU_0, True),
    "a UUID that is not there": (FULL, GPU_9, False),
    "a slice that is there": (FULL, MIG_A, True),
    "a slice that is not there": (FULL, MIG_9, False),
    "a card beyond a mere count": (counted(2), "2", False),
    "a UUID where only a count is known": (counted(2), GPU_9, True),
    "a slice where only a count is known": (counted(2), MIG_9, True),
    "any card where nothing is known": (None, "99", True),
    "no card where there is none": (counted(0), "", True),
    "a card where there is none": (counted(0), "0", False),
}


@pytest.mark.parametrize(("inventory", "devices", "there"), EXIST.values(), ids=EXIST)
def test_a_line_names_cards_that_exist(inventory: Inventory | None, devices: str, there: bool) -> None:  # noqa: FBT001
    """Where an inventory is known, it is asked; a count of cards knows numbers only."""
    decision = decided(pod("train-0", f"0=node1:{devices}"), known=nodes(node("node1", inventory=inventory)))

    if there:
        assert isinstance(decision, Bind)
    else:
        assert isinstance(decision, Wait)
        assert decision.reason is Reason.GPU_NOT_FOUND
        assert NodeChanged("node1", Aspect.INVENTORY) in decision.cured_by


MESSAGES = {
    "cards by number": (counted(4), "GpuNotFound: cannot find GPU 7 on node node1: its inventory has cards 0 to 3; "),
    "no cards": (counted(0), "GpuNotFound: cannot find GPU 7 on node node1: its inventory has no cards; "),
}


@pytest.mark.parametrize(("inventory", "start"), MESSAGES.values(), ids=MESSAGES)
def test_what_is_there_is_told(inventory: Inventory, start: str) -> None:
    """The owner hears which cards the node has, and how to see them."""
    decision = decided(pod("train-0", "0=node1:7"), known=nodes(node("node1", inventory=inventory)))

    assert isinstance(decision, Wait)
    assert decision.message == (
        f"{start}name one that it has: kubectl get node node1 -o jsonpath="
        "'{.metadata.annotations.agentaflow\\.gpu/devices}{.status.capacity.nvidia\\.com/gpu}'"
    )


KNOWN = {
    "cards by index": (FULL, "1,0", f"{GPU_1},{GPU_0}"),
    "cards by UUID": (FULL, f"{GPU_1},{GPU_0}", f"{GPU_1},{GPU_0}"),
    "slices": (FULL, f"{MIG_B},{MIG_A}", f"{MIG_B},{MIG_A}"),
    "no card": (FULL, "", ""),
    "a card of a partly known node": (PARTLY, "0", GPU_0),
    "cards of which one has no known UUID": (PARTLY, "0,1", None),
    "cards of which only the number is known": (counted(2), "0,1", None),
    "cards of a node that nobody knows": (None, "0", None),
}


@pytest.mark.parametrize(("inventory", "devices", "uuids"), KNOWN.values(), ids=KNOWN)
def test_the_binding_names_the_uuids(inventory: Inventory | None, devices: str, uuids: str | None) -> None:
    """In the order of the devices; all of them, or the annotation is not there."""
    decision = decided(pod("train-0", f"0=node1:{devices}"), known=nodes(node("node1", inventory=inventory)))

    assert isinstance(decision, Bind)
    expected = {
        "agentaflow.gpu/assigned-devices": devices,
        "agentaflow.gpu/assigned-index": "0",
        "agentaflow.gpu/assigned-node": "node1",
    }
    assert decision.placement.annotations == expected | ({} if uuids is None else {UUIDS: uuids})


def test_who_waits_for_a_card_by_another_name_reads_both() -> None:
    """The message says how the holder calls what this pod calls something else."""
    known = nodes(node("node1", inventory=FULL))
    held = ledger(running("other-0", "node1", f"0=node1:{GPU_1}", namespace="b"), known=known)
    decision = decided(pod("train-0", "0=node1:1"), held, known)

    assert isinstance(decision, Wait)
    assert decision.message.startswith(f"GpuHeld: GPU 1 of node1, as {GPU_1}, is held by b/other-0; ")
    assert held.forget("uid-of-b/other-0") & decision.cured_by


TEXT = {
    "a map": pod("train-0", "0=node1:x"),
    "a request": pod("train-0", annotations={"agentaflow.gpu/observer": "yes"}),
}


@pytest.mark.parametrize("pending", TEXT.values(), ids=TEXT)
def test_the_pods_own_text_is_looked_at_first(pending: object) -> None:
    """A fault of the text is told whatever the nodes are like."""
    decision = decided(pending, known=nodes(node("node9")))  # type: ignore[arg-type]

    assert isinstance(decision, Refuse)
