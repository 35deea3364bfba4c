"""GPUs that pods were given by index and that have another index now: what stays held, and what is said."""

from collections import deque
from dataclasses import replace

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from gpu_scheduler.core.decision import Bind, Wait
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.ledger.moved_gpus import moved_gpus
from gpu_scheduler.core.nodes.inventory import Device, Inventory, counted
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.refs import PodRef
from tests.messages import text_of
from unit_tests.core.asking import asking
from unit_tests.core.build import bound, decided, ledger, node, nodes, pod

A, B, C, D = (f"GPU-{digit * 8}-0000-0000-0000-000000000000" for digit in "abcd")
MIG = "MIG-11111111-0000-0000-0000-000000000000"


def having(*uuids: str) -> Inventory:
    """Return an inventory with these GPUs, numbered in this order."""
    return Inventory(tuple(Device(index, uuid) for index, uuid in enumerate(uuids)))


def described(gpu: object, uuid: str, now: str) -> str:
    return text_of("a GPU has moved", gpu=gpu, uuid=uuid, now=now)


BEFORE = having(A, B)
AFTER = {
    "a reboot that changes nothing": (having(A, B), []),
    "two GPUs swapped": (
        having(B, A),
        [
            described(0, A, f"GPU 1 now, and {B} is GPU 0"),
            described(1, B, f"GPU 0 now, and {A} is GPU 1"),
        ],
    ),
    "a GPU added in front": (
        having(C, A, B),
        [
            described(0, A, f"GPU 1 now, and {C} is GPU 0"),
            described(1, B, f"GPU 2 now, and {A} is GPU 1"),
        ],
    ),
    "a GPU added behind": (having(A, B, C), []),
    "the first GPU lost": (
        having(B),
        [
            described(0, A, f"gone, and {B} is GPU 0"),
            described(1, B, "GPU 0 now, and there is no GPU 1"),
        ],
    ),
    "the last GPU lost": (
        having(A),
        [described(1, B, "gone, and there is no GPU 1")],
    ),
    "a GPU replaced by a new one": (
        having(A, D),
        [described(1, B, f"gone, and {D} is GPU 1")],
    ),
    "a monitor that no longer says UUIDs": (counted(2), []),
    "no inventory any more": (None, []),
}


@pytest.mark.promise("hold-10")
@pytest.mark.parametrize(("after", "expected"), AFTER.values(), ids=AFTER)
def test_what_has_moved_is_described(after: Inventory | None, expected: list[str]) -> None:
    """A pod has GPUs 0 and 1, and then the node's GPUs change."""
    held = ledger_with(given("0,1", A, B), before=BEFORE)
    held.apply_node(node(inventory=after))

    assert [str(each) for _, moved in held.devices.moved() for each in moved] == expected
    assert held.drift() == bool(expected)


NAMES = {
    "a pod bound before its GPU's UUID was known": ("0", (), having(B, A)),
    "a UUID, which no move changes": (A, (A,), having(B, A)),
    "a MIG device that moved with its GPU": (MIG, (MIG,), Inventory((Device(0, B), Device(1, A, (MIG,))))),
}


@pytest.mark.parametrize(("device", "uuids", "after"), NAMES.values(), ids=NAMES)
def test_what_has_not_moved(device: str, uuids: tuple[str, ...], after: Inventory) -> None:
    """These names still mean what they meant, as far as anybody knows."""
    assert moved_gpus((device,), uuids, after) == ()


def test_a_uuid_that_is_gone_is_described() -> None:
    """A UUID in a map means one GPU for ever."""
    (moved,) = moved_gpus((A,), (A,), having(B))

    assert str(moved) == described(A, A, f"gone, and there is no GPU {A}")


ASKED = {
    "the index that the pod was given": ("0", "GPU 0 of node1 is held by default/train-0"),
    "the index that its GPU has now": ("1", "GPU 1 of node1, GPU 0 until it moved, is held by default/train-0"),
    "its GPU by UUID": (A, f"GPU {A} of node1, GPU 0 until it moved, is held by default/train-0"),
    "the GPU that has its index now, by UUID": (C, f"GPU {C} of node1, as 0, is held by default/train-0"),
    "a GPU that it does not have": ("2", None),
    "that GPU by UUID": (B, None),
}


@pytest.mark.promise("hold-10")
@pytest.mark.parametrize(("device", "reason"), ASKED.values(), ids=ASKED)
def test_neither_the_old_nor_the_new_index_is_given_twice(device: str, reason: str | None) -> None:
    """GPU C was added in front of A and B. A pod has A, which was GPU 0."""
    added = node(inventory=having(C, A, B))
    held = ledger_with(given("0", A), before=BEFORE)
    held.apply_node(added)

    decision = decided(pod("other-0", f"0=node1:{device}\n9=a:0", owner=None), held, nodes(added))

    if reason is None:
        assert isinstance(decision, Bind)
    else:
        assert isinstance(decision, Wait)
        assert decision.message.startswith(f"GpuHeld: {reason}")


@pytest.mark.promise("hold-10")
@examples(
    st.lists(st.tuples(st.permutations((A, B, C, D)), st.integers(1, 4), st.integers(0, 3), st.booleans()), max_size=12)
)
def test_no_gpu_is_given_twice_however_often_gpus_move(steps: list[tuple[list[str], int, int, bool]]) -> None:
    """At each step the node has some of four GPUs in some order, a pod asks for an index, and the oldest may end."""
    held, pods = ledger_with(before=having()), deque[Pod]()
    for number, (order, count, index, ends) in enumerate(steps):
        if ends and pods:
            held.forget(pods.popleft().ref.uid)
        present = order[:count]
        known = node(inventory=having(*present))
        held.apply_node(known)
        pending = pod(f"p{number}-0", f"0=node1:{index}\n9=p{number}:0", owner=None)
        decision = decided(pending, held, nodes(known))

        kept = {uuid for each in pods for uuid in each.assignment.uuids}
        named = {device for each in pods for device in each.assignment.devices or ()}
        free = index < count and str(index) not in named and present[index] not in kept
        assert isinstance(decision, Bind) == free
        if isinstance(decision, Bind):
            held.assume(pending, decision.placement)
            pods.append(bound(pending, decision.placement))
            held.apply(pods[-1])
    assert held.differences(ledger_with(*pods, before=having(*present) if steps else having())) == 0


@pytest.mark.promise("hold-10")
def test_a_strategy_takes_neither() -> None:
    """Of three GPUs, one is left."""
    added = node(inventory=having(C, A, B))

    decision = decided(asking(name="newcomer"), ledger_with(given("0", A), before=having(C, A, B)), nodes(added))

    assert isinstance(decision, Bind)
    assert decision.placement.devices == ("2",)


def test_pods_whose_gpus_were_swapped_have_no_conflict() -> None:
    """After a reboot each uses what the other had. Nobody else gets either GPU."""
    held = ledger_with(given("0", A), given("1", B, name="b-0"), before=having(B, A))

    assert (held.conflicts(), held.drift()) == ((), 2)


def test_the_move_ends_with_the_pod_or_when_the_gpu_is_back() -> None:
    """Both free the GPU that was kept."""
    back = ledger_with(given("0", A), before=having(B, A))
    back.apply_node(node(inventory=BEFORE))
    gone = ledger_with(given("0", A), before=having(B, A))
    gone.forget("uid-of-default/train-0")

    assert [list(held.devices.moved()) for held in (back, gone)] == [[], []]
    assert [sorted(held.devices.held("node1")) for held in (back, gone)] == [["0"], []]


def test_a_ledger_that_is_rebuilt_is_the_same() -> None:
    """Whether the node changed before or after the pods were seen, and whether the bind was ours a moment ago."""
    pods = given("0", A), given("1", B, name="b-0")
    changed = ledger_with(*pods, before=BEFORE)
    changed.apply_node(node(inventory=having(B, A)))
    assumed = ledger_with(before=BEFORE)
    assumed.assume(waiting(), Placement("node1", ("0",), 0, (A,)))
    assumed.apply(pods[0])
    assumed.apply(pods[1])
    assumed.apply_node(node(inventory=having(B, A)))
    rebuilt = ledger_with(*pods, before=having(B, A))

    assert (changed.differences(rebuilt), assumed.differences(rebuilt)) == (0, 0)


def test_an_observer_keeps_nothing() -> None:
    """It holds no GPU."""
    observer = replace(given("0", A), request=replace(waiting().request, observer=True))

    assert list(ledger_with(observer, before=having(B, A)).devices.moved()) == []


FORGED = {"fewer than its GPUs": ("0,1", A), "an index": ("0", "1"), "other text": ("0", "GPU-0"), "nothing": ("0", "")}


@pytest.mark.parametrize(("devices", "text"), FORGED.values(), ids=FORGED)
def test_an_annotation_that_cannot_be_read_pins_nothing(devices: str, text: str) -> None:
    """The pod holds its GPUs by index, as before."""
    annotations = {"agentaflow.gpu/assigned-devices": devices, "agentaflow.gpu/assigned-uuids": text}

    assert pod(annotations=annotations, node="node1").assignment.uuids == ()


def waiting(name: str = "train-0", devices: str = "0") -> Pod:
    """Return a pod whose map names these devices of node1."""
    return pod(name, f"0=node1:{devices}", owner=None, ref=PodRef("default", name, f"uid-of-default/{name}"))


def given(devices: str, *uuids: str, name: str = "train-0") -> Pod:
    """Return a pod that was bound to these devices of node1 when they had these UUIDs."""
    return bound(waiting(name, devices), Placement("node1", tuple(devices.split(",")), 0, uuids or None))


def ledger_with(*pods: Pod, before: Inventory) -> Ledger:
    """Return a ledger with these pods; node1 has this inventory."""
    return ledger(*pods, known=nodes(node(inventory=before)))
