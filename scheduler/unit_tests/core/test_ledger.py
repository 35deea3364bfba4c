from dataclasses import replace

import pytest

from gpu_scheduler.core.cluster_events import AnyIndexFreed, DeviceChanged, IndexChanged, QuotaChanged, ResourceFreed
from gpu_scheduler.core.nodes.inventory import counted
from gpu_scheduler.core.pods.placement_map import parse_placement_map
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.visible_devices import devices_in
from gpu_scheduler.core.policy import Policy, Sharing
from gpu_scheduler.core.refs import WorkloadKey
from unit_tests.core.build import FIELD_REF, MAP, PCI, bound, container, ledger, node, nodes, own, placed, pod, running

ASSIGNED = "agentaflow.gpu/assigned-devices"
ASSIGNED_INDEX = "agentaflow.gpu/assigned-index"
KEEP = {"agentaflow.gpu/keep-env": "true"}
OBSERVER = {"agentaflow.gpu/observer": "true"}
BARE = (container(()),)
BY_FIELD = (container((FIELD_REF, PCI)),)
TRAIN = WorkloadKey("default", "StatefulSet", "train", parse_placement_map(MAP).digest)


HELD = {
    "our annotation, before all other sources": (
        running("train-0", "node1", annotations={ASSIGNED: "5,6"}, containers=own("7")),
        ("5", "6"),
    ),
    "an empty annotation of ours: no GPU": (running("train-0", "node1", annotations={ASSIGNED: ""}), ()),
    "the literal in its spec": (running("train-0", "node9", containers=own("7")), ("7",)),
    "the literals of all its containers": (running("train-0", "node9", containers=own("7", "7,8")), ("7", "8")),
    "an empty literal: no GPU": (running("train-0", "node1", containers=own("")), ()),
    "its map line, if the node agrees": (running("train-0", "node1", containers=BARE), ("0", "1")),
    "no device, if the node does not agree": (running("train-0", "node2", containers=BARE), ()),
    "no device, without the annotation that it reads": (running("train-0", "node1", containers=BY_FIELD), ()),
    "the annotation that it reads": (
        running("train-0", "node1", annotations={ASSIGNED: "0,1"}, containers=BY_FIELD),
        ("0", "1"),
    ),
    "the devices of the map and of the kept literal": (
        running("train-0", "node1", annotations=KEEP, containers=own("7,1")),
        ("0", "1", "7"),
    ),
    "the devices of the annotation and of the kept literal": (
        running("train-0", "node9", annotations={**KEEP, ASSIGNED: "2"}, containers=own("7")),
        ("2", "7"),
    ),
    "the devices that CUDA reads from a kept value that is invalid today": (
        running("train-0", "node9", annotations={**KEEP, ASSIGNED: "2"}, containers=own("+7,1x", "$(FOO)", "GPU-8c1b")),
        ("2", "7"),
    ),
    "no device, as an observer": (running("train-0", "node1", annotations=OBSERVER), ()),
    "the literal, when its map cannot be read": (running("train-0", "node1", "nonsense", containers=own("7")), ("7",)),
    "the literal, when it has no map": (running("train-0", "node1", None, containers=own("7")), ("7",)),
    "no device, when its line is missing": (running("train-9", "node1", containers=BARE), ()),
}


@pytest.mark.promise("hold-6", "fixed-2", "hold-7")
@pytest.mark.parametrize(("given", "devices"), HELD.values(), ids=HELD)
def test_a_bound_pod_holds_its_devices(given: Pod, devices: tuple[str, ...]) -> None:
    """The first source counts: our annotation, a literal in the spec, or the map line if the node agrees."""
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
    "CUDA stops at the first invalid device": ("0,-1,2", ("0",)),
    "words are no devices": ("all", ()),
    "an empty value has no devices": ("", ()),
    "digits other than ASCII are no devices": ("\u0661", ()),
}


@pytest.mark.parametrize(("value", "devices"), VALUES.values(), ids=VALUES)
def test_a_variable_is_read_as_cuda_reads_it(value: str, devices: tuple[str, ...]) -> None:
    """The devices are written as a map writes them, so that one device never has two names."""
    assert devices == devices_in(value)


def test_a_long_value_is_read_and_not_cached() -> None:
    """One pod must not fill the memory permanently."""
    many = tuple(map(str, range(500)))

    assert devices_in(",".join(many)) == many
    assert devices_in("0,1") is devices_in("0,1")


def test_a_pod_of_another_scheduler_has_no_hold() -> None:
    """The ledger has holds of the scheduler's own pods only."""
    assert list(ledger(running("train-0", "node1", scheduler_name="default-scheduler"))) == []


CONFIRMED = {
    "as its map line says": pod("train-3"),
    "with a device that its environment keeps": pod("train-3", annotations=KEEP, containers=own("7")),
    "as an observer": pod("train-3", annotations=OBSERVER),
    "as a pod that shares with all": pod("train-3", annotations={"agentaflow.gpu/sharing": "any"}),
    "reading our annotation": pod("train-3", containers=BY_FIELD),
    "without an owner": pod("train-3", owner=None),
    "with an alias of node4 in its line, which annotation assigned-node confirms": pod("a-3", "3=gpus:3\n1=gpus:3"),
}


@pytest.mark.promise("env-11")
@pytest.mark.parametrize("pending", CONFIRMED.values(), ids=CONFIRMED)
def test_a_confirmed_hold_equals_the_assumed_hold(pending: Pod) -> None:
    """The hold is the same before and after the watch shows what our Binding wrote."""
    held, place = ledger(), placed("node4", "3", 3)
    held.assume(pending, place)
    (assumed,) = held
    held.apply(bound(pending, place, ""))

    assert {replace(assumed, assumed=False)} == set(held)


def test_a_stale_view_of_a_bound_pod_releases_nothing() -> None:
    """A bound pod never loses its node: a view without a node is stale."""
    held = ledger(running("train-3", "node4"))
    before = set(held)
    held.apply(pod("train-3"))

    assert before == set(held)


CHANGED = frozenset(
    {
        DeviceChanged("node4", "3"),
        DeviceChanged("node4", ""),
        IndexChanged(TRAIN, 3),
        AnyIndexFreed(TRAIN),
        QuotaChanged("default"),
    }
)
FREED = CHANGED | {ResourceFreed("node4", "pods")}


def test_a_definitely_failed_bind_frees_device_and_index() -> None:
    """The returned events are those of the device, the index, the quota and the node's resources."""
    held = ledger()
    held.assume(pod("train-3"), placed("node4", "3", 3))

    assert held.forget("uid-of-default/train-3") == FREED
    assert list(held) == []


def test_a_finished_pod_frees_device_and_index() -> None:
    """A pod that Succeeded or Failed holds nothing although the pod object still exists."""
    held = ledger(running("train-3", "node4"))

    assert held.apply(replace(running("train-3", "node4"), phase="Failed")) == FREED
    assert not held.holds("uid-of-default/train-3")


def test_a_terminating_pod_still_holds_its_device() -> None:
    """Nothing is free yet, but waiting pods are requeued, because their message names the time of the deletion."""
    held = ledger(running("train-3", "node4"))
    cured_by = held.apply(replace(running("train-3", "node4"), deleting_since="2026-11-21T01:00:00Z"))
    (holder,) = held.devices.rivals("node4", "3")

    assert (cured_by, holder.deleting_since) == (CHANGED, "2026-11-21T01:00:00Z")


@pytest.mark.promise("index-16")
def test_a_pod_whose_containers_restart_keeps_index_and_devices() -> None:
    """Its phase is Pending again while its init containers run again, for example after a restart of its node."""
    given = running("train-3", "node4")
    held = ledger(given)
    before = set(held)

    assert held.apply(replace(given, phase="Pending")) == frozenset()
    assert set(held) == before


def test_a_pod_that_is_applied_twice_causes_no_event() -> None:
    """A second list has all pods again."""
    assert frozenset() == ledger(running("train-3", "node4")).apply(running("train-3", "node4"))


def test_an_unknown_pod_that_is_forgotten_causes_no_event() -> None:
    """A deletion may be received twice."""
    assert frozenset() == ledger().forget("unknown")


@pytest.mark.promise("share-6")
def test_an_observer_holds_its_index_and_no_device() -> None:
    """An observer prevents no workload from its device, and is the only pod with its index."""
    held = ledger(running("train-3", "node4", annotations=OBSERVER))
    holder = held.index_holder(TRAIN, 3)

    assert held.devices.rivals("node4", "3") == ()
    assert holder is not None
    assert str(holder.ref) == "default/train-3"


@pytest.mark.promise("index-15")
def test_an_assigned_index_overrides_the_name() -> None:
    """A bound pod never changes its index: the index of the Binding counts."""
    held = ledger(running("train-3", "node4", annotations={ASSIGNED_INDEX: "4"}))

    assert held.index_holder(TRAIN, 3) is None
    assert held.index_holder(TRAIN, 4) is not None


@pytest.mark.promise("hold-7")
def test_drift_is_counted() -> None:
    """A bound pod with a fieldRef and without our annotation sees and holds no GPU, so the number is a metric."""
    drifting = running("train-0", "node1", containers=BY_FIELD)
    assigned = running("train-2", "node3", annotations={ASSIGNED: "2"}, containers=BY_FIELD)
    held = ledger(drifting, assigned, running("train-1", "node2"))
    counted = held.drift()
    held.forget(drifting.ref.uid)

    assert (counted, held.drift()) == (1, 0)


NO_INDEX = {
    "a pod without a map": running("train-3", "node4", None, containers=own("3")),
    "a pod whose map cannot be read": running("train-3", "node4", "nonsense", containers=own("3")),
    "a pod that takes any line and has no index in its own text": running("train", "node4", containers=own("3")),
}


@pytest.mark.parametrize("given", NO_INDEX.values(), ids=NO_INDEX)
def test_a_pod_without_an_index_frees_its_gpu_only(given: Pod) -> None:
    """Another program bound the pod: the device of its environment becomes free with it."""
    held = ledger(given)

    assert held.forget(given.ref.uid) == {
        DeviceChanged("node4", "3"),
        DeviceChanged("node4", ""),
        ResourceFreed("node4", "pods"),
        QuotaChanged("default"),
    }
    assert held.differences(ledger()) == 0


def test_a_deleted_node_loses_its_inventory() -> None:
    """Pods that are bound to the node still hold, and the pods that wait for their devices are requeued."""
    held = ledger(running("train-3", "node4"), known=nodes(node("node4", inventory=counted(4))))
    cured_by = held.forget_node("node4")

    assert cured_by == {DeviceChanged("node4", "3"), DeviceChanged("node4", "")}
    assert len(held.devices.rivals("node4", "3")) == 1
    assert held.differences(ledger(running("train-3", "node4"))) == 0


def test_two_ledgers_are_compared_entry_by_entry() -> None:
    """Holds, claims, drift, devices, indices and used resources are compared."""
    held = ledger(running("train-0", "node1", containers=BY_FIELD), running("train-1", "node2"), pod("train-2"))

    assert held.differences(held) == 0
    for other in (
        ledger(),
        ledger(running("train-0", "node1", containers=BY_FIELD), running("train-1", "node2")),
        ledger(running("train-0", "node1", containers=BY_FIELD), pod("train-2")),
        ledger(running("train-0", "node1"), running("train-1", "node2"), pod("train-2")),
    ):
        assert held.differences(other) == other.differences(held) > 0


def test_entries_are_those_of_the_moment_at_which_they_were_asked_for() -> None:
    """The audit reads them in turns, between which pods come and go."""
    known = [running("train-0", "node1", containers=BY_FIELD), running("train-1", "node2"), pod("train-2")]
    held = ledger(*known, known=nodes(node("node1", inventory=counted(4))))
    before, asked = dict(held.entries()), held.entries()
    first = next(asked)
    for each in known:
        held.forget(each.ref.uid)
    held.apply(running("train-3", "node1"))
    held.forget_node("node1")

    assert dict([first, *asked]) == before


CHANGED_PODS = {
    "the pod takes another index": (pod("train-3", annotations={"agentaflow.gpu/index": "4"}), [0, 1, 2, 3]),
    "the pod takes any index": (
        pod("train-3", labels={"training.kubeflow.org/replica-type": "worker"}),
        [0, 1, 2, 3, 4],
    ),
    "the pod has no map any more": (pod("train-3", None, annotations={"agentaflow.gpu/count": "1"}), [0, 1, 2, 3, 4]),
}


@pytest.mark.parametrize(("changed", "free"), CHANGED_PODS.values(), ids=CHANGED_PODS)
def test_a_pending_pod_that_changes_its_index_withdraws_its_claim(changed: Pod, free: list[int]) -> None:
    """The policies of the API server forbid this change; where they are not installed, no claim must stay forever."""
    held = ledger(pod("train-3"))
    cured_by = held.apply(changed)

    assert cured_by == {AnyIndexFreed(TRAIN)}
    assert list(held.indices.free(TRAIN, parse_placement_map(MAP))) == free
    assert held.differences(ledger(changed)) == 0


def test_conflicts_follow_the_policy() -> None:
    """Sharing that the policy allows is no conflict."""
    two_workloads = running("a-0", "node4", containers=own("3")), running("b-1", "node4", containers=own("3"))

    assert [
        len(ledger(*two_workloads, policy=Policy(sharing=sharing)).conflicts())
        for sharing in (Sharing.ANY, Sharing.SAME_WORKLOAD, Sharing.NONE)
    ] == [0, 1, 1]
