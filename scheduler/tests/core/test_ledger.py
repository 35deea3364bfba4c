import time
from dataclasses import replace

import pytest

from gpu_scheduler.core.cluster_events import AnyIndexFreed, DeviceChanged, IndexChanged, QuotaChanged, ResourceFreed
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.inventory import counted
from gpu_scheduler.core.pods.placement_map import parse_placement_map
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.visible_devices import devices_in
from gpu_scheduler.core.refs import WorkloadKey
from tests.core.build import (
    FIELD_REF,
    MAP,
    PCI,
    POLICY,
    bound,
    container,
    ledger,
    node,
    nodes,
    own,
    placed,
    pod,
    running,
)

ASSIGNED = "agentaflow.gpu/assigned-devices"
ASSIGNED_NODE = "agentaflow.gpu/assigned-node"
ASSIGNED_INDEX = "agentaflow.gpu/assigned-index"
KEEP = {"agentaflow.gpu/keep-env": "true"}
OBSERVER = {"agentaflow.gpu/observer": "true"}
BARE = (container(()),)
BY_FIELD = (container((FIELD_REF, PCI)),)
TRAIN = WorkloadKey("default", "StatefulSet", "train", parse_placement_map(MAP).digest)


HELD = {
    "our annotation, before all else": (
        running("train-0", "node1", annotations={ASSIGNED: "5,6"}, containers=own("7")),
        ("5", "6"),
    ),
    "an empty annotation of ours: no GPU": (running("train-0", "node1", annotations={ASSIGNED: ""}), ()),
    "else the literal in its spec": (running("train-0", "node9", containers=own("7")), ("7",)),
    "the literals of all its containers": (running("train-0", "node9", containers=own("7", "7,8")), ("7", "8")),
    "an empty literal: no GPU": (running("train-0", "node1", containers=own("")), ()),
    "else its map line, if the node agrees": (running("train-0", "node1", containers=BARE), ("0", "1")),
    "nothing, if the node does not agree": (running("train-0", "node2", containers=BARE), ()),
    "nothing, without an annotation to read": (running("train-0", "node1", containers=BY_FIELD), ()),
    "the annotation that it reads": (
        running("train-0", "node1", annotations={ASSIGNED: "0,1"}, containers=BY_FIELD),
        ("0", "1"),
    ),
    "the map's and the kept literal's": (
        running("train-0", "node1", annotations=KEEP, containers=own("7,1")),
        ("0", "1", "7"),
    ),
    "the annotation's and the kept literal's": (
        running("train-0", "node9", annotations={**KEEP, ASSIGNED: "2"}, containers=own("7")),
        ("2", "7"),
    ),
    "what CUDA finds in a value that was kept before it had to be booked": (
        running("train-0", "node9", annotations={**KEEP, ASSIGNED: "2"}, containers=own("+7,1x", "$(FOO)", "GPU-8c1b")),
        ("2", "7"),
    ),
    "nothing, as an observer": (running("train-0", "node1", annotations=OBSERVER), ()),
    "its literal, when its map cannot be read": (running("train-0", "node1", "nonsense", containers=own("7")), ("7",)),
    "its literal, when it has no map": (running("train-0", "node1", None, containers=own("7")), ("7",)),
    "nothing, when its line is missing": (running("train-9", "node1", containers=BARE), ()),
}


@pytest.mark.parametrize(("given", "devices"), HELD.values(), ids=HELD)
def test_what_a_bound_pod_holds(given: Pod, devices: tuple[str, ...]) -> None:
    """The first that exists: our annotation, a literal in its spec, its map line if the node agrees."""
    (holder,) = ledger(given)

    assert (given.node, devices) == (holder.node, holder.devices)


VALUES = {
    "numbers": ("0,1", ("0", "1")),
    "spaces do not matter": (" 0 , 1", ("0", "1")),
    "a plus sign does not matter": ("+0,+1", ("0", "1")),
    "leading zeros do not matter": ("00,01", ("0", "1")),
    "capitals of a UUID do not matter": (
        "GPU-ABCDEFAB-0000-0000-0000-000000000000",
        ("GPU-abcdefab-0000-0000-0000-000000000000",),
    ),
    "a repeated device is one": ("1,1", ("1",)),
    "CUDA stops at the first that is none": ("0,-1,2", ("0",)),
    "words are no devices": ("all", ()),
    "nothing is nothing": ("", ()),
    "other digits than ASCII are none": ("\u0661", ()),
}


@pytest.mark.parametrize(("value", "devices"), VALUES.values(), ids=VALUES)
def test_devices_in_a_variable(value: str, devices: tuple[str, ...]) -> None:
    """A value is read as CUDA reads it, and spelled as a map spells it: one device never has two names."""
    assert devices == devices_in(value)


def test_a_value_that_is_long_is_read_all_the_same() -> None:
    """But not remembered: one hostile pod must not fill the memory for good."""
    many = tuple(map(str, range(500)))

    assert devices_in(",".join(many)) == many
    assert devices_in("0,1") is devices_in("0,1")


def test_a_pod_of_another_scheduler_is_not_booked() -> None:
    """We keep the books of our own pods only."""
    assert list(ledger(running("train-0", "node1", scheduler_name="default-scheduler"))) == []


def test_an_assumption_holds_until_the_watch_confirms_it() -> None:
    """Between bind and watch the GPU is held; the confirmation wakes nobody, because nothing became free."""
    pending, held = pod("train-3"), ledger()
    place = placed("node4", "3", 3)
    held.assume(pending, place)
    (assumed,) = held.devices.rivals("node4", "3")
    cured_by = held.apply(bound(pending, place, ""))
    (confirmed,) = held.devices.rivals("node4", "3")

    assert (True, frozenset(), replace(assumed, assumed=False)) == (assumed.assumed, cured_by, confirmed)


CONFIRMED = {
    "as its map line says": pod("train-3"),
    "with a device that its environment keeps": pod("train-3", annotations=KEEP, containers=own("7")),
    "as an observer": pod("train-3", annotations=OBSERVER),
    "as one that shares with all": pod("train-3", annotations={"agentaflow.gpu/sharing": "any"}),
    "reading our annotation": pod("train-3", containers=BY_FIELD),
    "without an owner": pod("train-3", owner=None),
}


@pytest.mark.parametrize("pending", CONFIRMED.values(), ids=CONFIRMED)
def test_what_was_assumed_is_what_is_confirmed(pending: Pod) -> None:
    """The books say the same before and after the watch shows what our Binding wrote."""
    held, place = ledger(), placed("node4", "3", 3)
    held.assume(pending, place)
    (assumed,) = held
    held.apply(bound(pending, place, ""))

    assert {replace(assumed, assumed=False)} == set(held)


def test_an_observer_that_is_assumed_claims_nothing() -> None:
    """From the first moment on it stands in nobody's way."""
    held = ledger()
    held.assume(pod("train-3", annotations=OBSERVER), placed("node4", "3", 3))

    assert held.devices.rivals("node4", "3") == ()


def test_an_assumption_by_alias_is_confirmed_by_our_annotation() -> None:
    """The line says `gpus`, the node is node4: assigned-node says that this was meant, so neighbours may share."""
    pending, held = pod("train-0", "0=gpus:3\n1=gpus:3"), ledger()
    place = placed("node4", "3", 0)
    held.assume(pending, place)
    (assumed,) = held
    held.apply(bound(pending, place, ""))

    assert {replace(assumed, assumed=False)} == set(held)


def test_a_stale_view_releases_nothing() -> None:
    """A watch event from before our bind shows the pod unbound; its GPU stays held."""
    pending, held = pod("train-3"), ledger()
    held.assume(pending, placed("node4", "3", 3))
    before = set(held)

    assert frozenset() == held.apply(pending)
    assert before == set(held)


def test_who_holds_an_index_claims_none() -> None:
    """Neither what a pod claimed while it waited nor a stale view of it stays beside what was assumed."""
    pending, held, fresh = pod("train-3"), ledger(), ledger()
    held.apply(pending)
    held.assume(pending, placed("node4", "3", 3))
    held.apply(pending)
    fresh.assume(pending, placed("node4", "3", 3))

    assert held.differences(fresh) == 0


def test_a_stale_view_of_a_bound_pod_releases_nothing() -> None:
    """No pod ever loses its node: a view without one is old."""
    held = ledger(running("train-3", "node4"))
    before = set(held)
    held.apply(pod("train-3"))

    assert before == set(held)


NEWS = frozenset(
    {
        DeviceChanged("node4", "3"),
        DeviceChanged("node4", ""),
        IndexChanged(TRAIN, 3),
        AnyIndexFreed(TRAIN),
        QuotaChanged("default"),
    }
)
FREED = NEWS | {ResourceFreed("node4", "pods")}


def test_a_definite_failure_frees() -> None:
    """A bind that certainly failed gives back device and index, and says so."""
    held = ledger()
    held.assume(pod("train-3"), placed("node4", "3", 3))

    assert held.forget("uid-of-default/train-3") == FREED
    assert list(held) == []


def test_a_finished_pod_frees() -> None:
    """Succeeded and Failed free device and index while the pod object still stands."""
    held = ledger(running("train-3", "node4"))

    assert held.apply(replace(running("train-3", "node4"), phase="Failed")) == FREED
    assert not held.holds("uid-of-default/train-3")


def test_a_terminating_pod_holds_on_and_says_so() -> None:
    """Nothing is free yet, but who waits wants to hear since when the holder is terminating."""
    held = ledger(running("train-3", "node4"))
    cured_by = held.apply(replace(running("train-3", "node4"), deleting_since="2026-11-21T01:00:00Z"))
    (holder,) = held.devices.rivals("node4", "3")

    assert (cured_by, holder.deleting_since) == (NEWS, "2026-11-21T01:00:00Z")


def test_the_same_view_twice_is_no_news() -> None:
    """A relist tells of everything again."""
    assert frozenset() == ledger(running("train-3", "node4")).apply(running("train-3", "node4"))


def test_forgetting_a_stranger_is_no_news() -> None:
    """A delete may be seen twice."""
    assert frozenset() == ledger().forget("nobody")


def test_a_pod_bound_elsewhere_than_assumed_is_booked_where_it_is() -> None:
    """The API is right: what was assumed becomes free."""
    held = ledger()
    held.assume(pod("train-3"), placed("node4", "3", 3))
    cured_by = held.apply(running("train-3", "node2", containers=own("7")))

    assert DeviceChanged("node4", "3") in cured_by
    assert (held.devices.rivals("node4", "3"), len(held.devices.rivals("node2", "7"))) == ((), 1)


def test_an_observer_holds_its_index_and_no_device() -> None:
    """It stands beside real workloads and is still the only one at its index."""
    held = ledger(running("train-3", "node4", annotations=OBSERVER))
    holder = held.index_holder(TRAIN, 3)

    assert held.devices.rivals("node4", "3") == ()
    assert holder is not None
    assert str(holder.ref) == "default/train-3"


def test_an_index_that_we_assigned_counts_before_the_name() -> None:
    """A live pod never changes its index: what the Binding said stands."""
    held = ledger(running("train-3", "node4", annotations={ASSIGNED_INDEX: "4"}))

    assert held.index_holder(TRAIN, 3) is None
    assert held.index_holder(TRAIN, 4) is not None


def test_drift_is_counted() -> None:
    """Bound with a fieldRef and without our annotation: such a pod sees and holds no GPU, and somebody should know."""
    drifting = running("train-0", "node1", containers=BY_FIELD)
    held = ledger(drifting, running("train-1", "node2"))
    counted = held.drift()
    held.forget(drifting.ref.uid)

    assert (counted, held.drift()) == (1, 0)


NO_INDEX = {
    "a pod without a map": running("train-3", "node4", None, containers=own("3")),
    "a pod whose map cannot be read": running("train-3", "node4", "nonsense", containers=own("3")),
    "a pod that takes any line and has none by its own text": running("train", "node4", containers=own("3")),
}


@pytest.mark.parametrize("given", NO_INDEX.values(), ids=NO_INDEX)
def test_a_pod_without_an_index_frees_its_gpu_only(given: Pod) -> None:
    """Whoever bound it: what it holds by its environment comes free with it."""
    held = ledger(given)

    assert held.forget(given.ref.uid) == {
        DeviceChanged("node4", "3"),
        DeviceChanged("node4", ""),
        ResourceFreed("node4", "pods"),
        QuotaChanged("default"),
    }
    assert held.differences(ledger()) == 0


def test_a_node_that_is_gone_is_unlearned() -> None:
    """Its cards are no longer known; who was bound there still holds, and its rivals are told."""
    held = ledger(running("train-3", "node4"), known=nodes(node("node4", inventory=counted(4))))
    cured_by = held.forget_node("node4")

    assert cured_by == {DeviceChanged("node4", "3"), DeviceChanged("node4", "")}
    assert len(held.devices.rivals("node4", "3")) == 1
    assert held.differences(ledger(running("train-3", "node4"))) == 0


def test_two_ledgers_are_compared_entry_by_entry() -> None:
    """Holders, claims, drift, cards, indices and room: every table has a say."""
    held = ledger(running("train-0", "node1", containers=BY_FIELD), running("train-1", "node2"), pod("train-2"))

    assert held.differences(held) == 0
    for other in (
        ledger(),
        ledger(running("train-0", "node1", containers=BY_FIELD), running("train-1", "node2")),
        ledger(running("train-0", "node1", containers=BY_FIELD), pod("train-2")),
        ledger(running("train-0", "node1"), running("train-1", "node2"), pod("train-2")),
    ):
        assert held.differences(other) == other.differences(held) > 0


OTHERWISE = {
    "it takes another index": (pod("train-3", annotations={"agentaflow.gpu/index": "4"}), [0, 1, 2, 3]),
    "it takes any": (pod("train-3", labels={"training.kubeflow.org/replica-type": "worker"}), [0, 1, 2, 3, 4]),
    "it has no map any more": (pod("train-3", None, annotations={"agentaflow.gpu/count": "1"}), [0, 1, 2, 3, 4]),
}


@pytest.mark.parametrize(("changed", "free"), OTHERWISE.values(), ids=OTHERWISE)
def test_a_pending_pod_that_changes_its_index_gives_up_the_old_one(changed: Pod, free: list[int]) -> None:
    """The API server's policies forbid it; where they are not installed, nothing stays claimed for ever."""
    held = ledger(pod("train-3"))
    cured_by = held.apply(changed)

    assert cured_by == {AnyIndexFreed(TRAIN)}
    assert list(held.indices.free(TRAIN, parse_placement_map(MAP))) == free
    assert held.differences(ledger(changed)) == 0


def test_cost_does_not_grow_with_the_cluster() -> None:
    """Booking a pod beside 5,000 others costs what it costs beside 20."""
    assert _seconds(5_000) < 5 * _seconds(20) + 0.0001


def _seconds(others: int) -> float:
    """The best time for one pod's life, because other programs run here too."""
    held = Ledger(POLICY)
    base = pod("train-3")
    for number in range(others):
        other = replace(base, ref=replace(base.ref, name=f"o-{number}", uid=str(number)))
        held.assume(other, placed(f"node-{number}", "3", number))
    tries = []
    for _ in range(50):
        began = time.perf_counter()
        held.assume(base, placed("node4", "3", 3))
        held.devices.rivals("node4", "3")
        held.conflicts()
        held.forget(base.ref.uid)
        tries.append(time.perf_counter() - began)
    return min(tries)
