"""Devices that operators have taken out of service: whom they keep out, when they end, and what is said of them."""

from typing import Any

import pytest

from gpu_scheduler.core.cluster_events import Aspect, NodeChanged
from gpu_scheduler.core.decision import Bind, Wait
from gpu_scheduler.core.explanation.explain import explain
from gpu_scheduler.core.explanation.explanation import DeviceUse
from gpu_scheduler.core.ledger.availability import GpuTotals, node_devices
from gpu_scheduler.core.nodes.cordons import ALL_DEVICES, Cordon, Cordons, NodeCordons, cordon_of
from gpu_scheduler.core.nodes.inventory import Device, DeviceReading, Health, Inventory, counted
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.pod import Pod
from tests.messages import text_of
from unit_tests.core.asking import ClusterState, asking, having, words
from unit_tests.core.build import decided, node, nodes, pod, running

GPU_0, GPU_1, GPU_9 = (f"GPU-{number}0000000-0000-0000-0000-000000000000" for number in (0, 1, 9))
MIG_A, MIG_B = (f"MIG-{half}0000000-0000-0000-0000-000000000000" for half in "ab")
NAMED = Inventory((Device(0, GPU_0, (MIG_A, MIG_B)), Device(1, GPU_1)))
SINCE, UNTIL = "2026-11-25T10:00:00Z", "2026-11-25T12:00:00Z"
NOON = 1_795_608_000.0


def cordon(device: str, index: int | None = None, until: str = "") -> Cordon:
    """Return a cordon by alice."""
    return Cordon(device, index, "fan noise", "alice", SINCE, until)


# The cordon, a device as a map names it, the node's inventory, and whether the device is out of service.
COVERED: dict[str, tuple[Cordon, str, Inventory | None, bool]] = {
    "the same index": (cordon("0"), "0", None, True),
    "another index": (cordon("0"), "1", None, False),
    "all devices": (cordon(ALL_DEVICES), GPU_1, NAMED, True),
    "the index of a cordoned UUID": (cordon(GPU_0, 0), "0", NAMED, True),
    "the UUID of a cordoned index": (cordon("1"), GPU_1, NAMED, True),
    "a MIG device of a cordoned GPU": (cordon(GPU_0), MIG_A, NAMED, True),
    "a GPU with a cordoned MIG device": (cordon(MIG_A), "0", NAMED, True),
    "a MIG device beside a cordoned one": (cordon(MIG_A), MIG_B, NAMED, False),
    "the old index of a card that has moved": (cordon(GPU_1, 0), "0", NAMED, False),
    "the new index of a card that has moved": (cordon(GPU_1, 0), "1", NAMED, True),
    "the index of a card that is gone": (cordon(GPU_9, 0), "0", NAMED, False),
    "a device that is not there": (cordon(GPU_0, 0), "7", NAMED, False),
    "the index of a cordoned UUID on a node that only counts": (cordon(GPU_9, 1), "1", counted(2), True),
    "another index on a node that only counts": (cordon(GPU_9, 1), "0", counted(2), False),
    "an index, if only the UUID was known and nothing relates the two": (cordon(GPU_9), "0", None, True),
    "a UUID, if only the index was known and nothing relates the two": (cordon("0"), GPU_9, None, True),
    "another UUID": (cordon(GPU_9, 0), GPU_1, None, False),
}


@pytest.mark.parametrize(("given", "device", "inventory", "covered"), COVERED.values(), ids=COVERED)
def test_a_cordon_follows_the_device(
    given: Cordon,
    device: str,
    inventory: Inventory | None,
    covered: bool,  # noqa: FBT001
) -> None:
    """Where UUIDs are known, the card counts and not its number. What nothing relates counts as the same."""
    assert (cordon_of((given,), device, inventory) is given) is covered


def ask(given: Pod, *known: Node, holders: tuple[Pod, ...] = ()) -> Bind | Wait:
    state = ClusterState(*known)
    for holder in holders:
        state.ledger.apply(holder)
    decision = state.decide(given)
    assert isinstance(decision, Bind | Wait)
    return decision


LINE = pod("train-0", "0=node1:0,1")
OBSERVER = pod("train-0", "0=node1:0,1", annotations=words(observer="true"))
LIMITED = pod("train-0", "0=node1:0,1", gpu_limits=(("main", 2),))
PLUGIN: dict[str, Any] = {"advertised": 4, "allocatable": {"nvidia.com/gpu": 4, "pods": 9}}
BY_ALICE = f"cordoned by alice since {SINCE}"
CORDONED = text_of("a GPU is cordoned")
ENDED_BY = f'"fan noise"; {CORDONED.rpartition("; ")[2].rpartition(" ")[0]}'
# The pod, the node, and what the message says of the GPUs, with the target of the command that ends the cordon.
MESSAGES: dict[str, tuple[Pod, Node, str, str]] = {
    "a line with a cordoned device": (
        *(LINE, node("node1", cordons=(cordon("1"),))),
        *(f"cannot use GPU 1 of node1: it is {BY_ALICE}", "node1:1"),
    ),
    "a line of a cordoned node": (
        *(LINE, node("node1", cordons=(cordon(ALL_DEVICES, until=UNTIL),))),
        *(f"cannot use GPU 0 of node1: all GPUs of the node are {BY_ALICE} until {UNTIL}", "node1"),
    ),
    "a line by index of a device that is cordoned by UUID": (
        *(LINE, node("node1", inventory=NAMED, cordons=(cordon(GPU_1, 1),))),
        *(f"cannot use GPU 1 of node1: GPU {GPU_1} is {BY_ALICE}", f"node1:{GPU_1}"),
    ),
    "an observer": (
        *(OBSERVER, node("node1", cordons=(cordon("0"),))),
        *(f"cannot use GPU 0 of node1: it is {BY_ALICE}", "node1:0"),
    ),
    "devices of a plugin's choice": (
        *(LIMITED, node("node1", inventory=counted(4), cordons=(cordon("3"),), **PLUGIN)),
        *(f"cannot use GPUs of node1 that its device plugin chooses: GPU 3 is {BY_ALICE}", "node1:3"),
    ),
    "a count": (
        *(asking(2), having("node1", 8000, 8000, cordons=(cordon("0"),))),
        *(f"cannot get 2 GPUs on one node: cannot use GPU 0 of node1: it is {BY_ALICE}", "node1:0"),
    ),
    "a count of a plugin's choice": (
        *(asking(1, others={"gpu_limits": (("main", 1),)}), having("node1", 8000, cordons=(cordon("0"),), **PLUGIN)),
        f"cannot get 1 GPU: cannot use GPUs of node1 that its device plugin chooses: GPU 0 is {BY_ALICE}",
        "node1:0",
    ),
}


@pytest.mark.promise("cordon-1")
@pytest.mark.parametrize(("given", "known", "what", "target"), MESSAGES.values(), ids=MESSAGES)
def test_a_pod_waits_for_a_cordoned_device(given: Pod, known: Node, what: str, target: str) -> None:
    """Whoever asks, the message says who cordoned it, since when, until when, why, and the command that ends it."""
    decision = ask(given, known)

    assert isinstance(decision, Wait)
    assert decision.message == f"GpuCordoned: {what}: {ENDED_BY} {target}"


# Devices that are cordoned, unhealthy and held, of two, and what a pod that asks for that many gets.
COUNTED: dict[str, tuple[int, str, dict[int, DeviceReading], str, str]] = {
    "strategies avoid a cordoned device": (1, "0", {}, "", "1"),
    "a held device beside a cordoned one": (1, "0", {}, "1", "GpuCordoned"),
    "a cordoned device that is held": (1, "0", {}, "0", "1"),
    "an unhealthy device beside a cordoned one": (
        *(1, "0", {1: DeviceReading(health=Health.UNHEALTHY)}, ""),
        "GpuUnhealthy",
    ),
    "both are needed, and one is unhealthy": (
        *(2, "0", {1: DeviceReading(health=Health.UNHEALTHY)}, ""),
        "GpuCordoned",
    ),
    "a cordoned device that is unhealthy too": (2, "0", {0: DeviceReading(health=Health.UNHEALTHY)}, "", "GpuCordoned"),
    "more than the node has": (3, "0", {}, "", "GpuNotFound"),
}


@pytest.mark.promise("cordon-1")
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("count", "cordoned", "readings", "held", "found"), COUNTED.values(), ids=COUNTED)
def test_strategies_obey_cordons(  # noqa: PLR0913, PLR0917 - a row
    count: int,
    cordoned: str,
    readings: dict[int, DeviceReading],
    held: str,
    found: str,
    shared: bool,  # noqa: FBT001
) -> None:
    """A pod gets the others; if they do not suffice, it waits for the reason that is nearest to a remedy."""
    more: dict[str, Any] = {"exclusive": "false", "memory": 1000} if shared else {}
    given = asking(count, **more)
    # A holder without a map that does not share is exclusive, whatever the pod asks for.
    holders = (running("holder", "node1", None, annotations=words(assigned_devices=held)),) if held else ()
    known = having("node1", 8000, 8000, readings=readings, cordons=(cordon(cordoned),))

    decision = ask(given, known, holders=holders)

    got = decision.placement.value if isinstance(decision, Bind) else decision.reason
    assert got == found


def test_a_gpu_beside_a_cordoned_one_is_given() -> None:
    """The pod's line names it."""
    known = nodes(node(cordons=(cordon("1"),)))

    assert isinstance(decided(pod("train-0", "0=node1:0"), known=known), Bind)


def test_the_end_of_a_cordon_requeues() -> None:
    """By map and by strategy."""
    state = ClusterState(node("node1", cordons=(cordon("0"),)))
    waiting = state.decide(LINE)
    assert isinstance(waiting, Wait)
    assert NodeChanged("node1", Aspect.CORDONS) in waiting.cured_by

    assert NodeChanged("node1", Aspect.CORDONS) in state.nodes.apply(node("node1"))


def test_a_cordoned_device_is_not_available() -> None:
    """Neither in listings nor in the metrics; on a node of a device plugin none is."""
    plugin: dict[str, Any] = {"advertised": 2, "allocatable": {"nvidia.com/gpu": 2}}
    state = ClusterState(
        having("node1", 8000, 8000, cordons=(cordon("0"),)),
        having("node2", 8000, 8000, cordons=(cordon("0"),), **plugin),
    )
    state.ledger.apply(running("holder", "node1", None, annotations=words(assigned_devices="9")))
    first, second = node_devices(state.nodes, state.ledger)

    assert [(each.name, each.cordon, each.available) for each in first.devices] == [
        ("0", cordon("0"), False),
        ("1", None, True),
        ("9", None, False),
    ]
    assert (first.available, second.available) == (1, 0)
    assert GpuTotals().take(state.nodes, state.ledger).available == 1


@pytest.mark.parametrize("given", [LINE, asking(2)], ids=["map", "count"])
def test_an_explanation_says_by_whom(given: Pod) -> None:
    """A row of the device, and as remedy the command."""
    state = ClusterState(having("node1", 8000, 8000, cordons=(cordon("0"),)))

    explanation = explain(given, state.cluster, {})

    (place,) = explanation.places
    rows = [(row.device, row.use, row.why) for row in place.devices]
    assert rows == [("0", DeviceUse.CORDONED, f'by alice since {SINCE}: "fan noise"'), ("1", DeviceUse.FREE, "")]


def test_a_command_ends_a_cordon_only_if_it_is_the_only_one() -> None:
    """Two take the GPUs of the line out of service: the end of one opens nothing."""
    for cordons, command in (
        ((cordon("0"),), "kubectl gpu-scheduler uncordon node1:0"),
        ((cordon("0"), cordon("1")), ""),
        ((cordon("0"), cordon(ALL_DEVICES)), ""),
    ):
        state = ClusterState(having("node1", 8000, 8000, cordons=cordons))

        remedy = explain(pod("train-0", "0=node1:0,1"), state.cluster, {}).remedy
        assert remedy is not None
        assert [each.command for each in remedy.steps] == [command]


def test_a_cordon_ends_by_the_wall_clock() -> None:
    """It is reported once; one without an end, or with an end that cannot be read, stays."""
    cordons, ends = Cordons(), cordon("0", until=UNTIL)
    cordons.put(
        "node1", (ends, cordon("1"), cordon("2", until="soon"), cordon("3", until="2026-11-25T12:00:00")), NOON - 60
    )
    cordons.put("node2", (cordon("0", until="2026-11-25T12:01:00Z"),), NOON - 60)

    assert [each.device for each in cordons.in_force("node1", NOON - 1)] == ["0", "1", "2", "3"]
    assert list(cordons.ended(NOON - 1)) == []
    assert list(cordons.ended(NOON)) == ["node1"]
    assert list(cordons.ended(NOON)) == []
    assert [each.device for each in cordons.in_force("node1", NOON)] == ["1", "2", "3"]
    assert list(cordons.ended(NOON + 60)) == ["node2"]
    assert cordons.in_force("node2", NOON + 60) == ()
    cordons.put("node1", (), NOON + 60)
    assert cordons.in_force("node1", NOON + 60) == ()
    assert list(cordons.ended(NOON + 1e9)) == []


UNCONFIRMED: dict[str, tuple[dict[str, Any], bool]] = {
    "a first cordon": ({"cordons": (cordon("0"),), "generation": 2}, True),
    "a cordon that is confirmed": ({"cordons": (cordon("0"),), "generation": 2, "confirmed": 2}, False),
    "a change": ({"cordons": (cordon("0"),), "generation": 3, "confirmed": 2}, True),
    "the last cordon is gone": ({"cordons": (), "generation": 3, "confirmed": 2}, True),
    "a GPUNode that was made anew before an older one was confirmed": (
        {"cordons": (cordon("0"),), "generation": 2, "confirmed": 3},
        True,
    ),
    "a GPUNode that never had one": ({"cordons": (), "generation": 1}, False),
}


@pytest.mark.promise("cordon-2")
@pytest.mark.parametrize(("given", "waits"), UNCONFIRMED.values(), ids=UNCONFIRMED)
def test_which_gpunodes_wait_for_a_confirmation(given: dict[str, Any], waits: bool) -> None:  # noqa: FBT001
    """Those whose cordons changed since the scheduler confirmed them."""
    assert NodeCordons("node1", **given).unconfirmed is waits


def test_an_unknown_author_is_named() -> None:
    """A cordon that a program wrote without its name."""
    assert Cordon("0", reason="x").by_whom == 'by an unknown user since an unknown time: "x"'
