"""The exact cluster events that requeue a waiting pod: a pod with an event too few waits for the resync."""

from dataclasses import replace

import pytest

from gpu_scheduler.core.cluster_events import (
    AnyIndexFreed,
    Aspect,
    ClusterEvent,
    DeviceChanged,
    IndexChanged,
    NodeChanged,
    ResourceFreed,
)
from gpu_scheduler.core.decision import Refuse, Wait
from gpu_scheduler.core.filters.environment import BY_FIELD
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.inventory import counted
from gpu_scheduler.core.nodes.nodes import ANY_NODE, Nodes
from gpu_scheduler.core.pods.constraints import NodeSelectorRequirement
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import Owner
from tests.messages import says
from unit_tests.core.build import ROOM, container, decided, exists, ledger, limit, node, nodes, pod, running

GPU = "nvidia.com/gpu"
OTHER = Owner("StatefulSet", "other")
SHARING = {"agentaflow.gpu/sharing": "any"}
ONE_LINE = "0=node1:2"
TERMINATING = replace(running("old-0", "node1", ONE_LINE, owner=OTHER), deleting_since="2026-01-01T00:00:00Z")
PLUGIN = node("node1", advertised=1, inventory=counted(1), allocatable={**ROOM, GPU: 1})


def limited(name: str, number: int) -> Pod:
    return pod(name, "0=node1:", owner=None, containers=(container(BY_FIELD),), **limit(number))


def of_workload(given: Pod) -> tuple[ClusterEvent, ClusterEvent]:
    """Return the events of a freed index 0: for pods that want this index, and for pods that take any index."""
    assert given.request.line is not None
    workload = given.request.line.workload
    return IndexChanged(workload, 0), AnyIndexFreed(workload)


DYNAMIC = pod("any-x", ONE_LINE, owner=Owner("Job", "any"))
STATIC = pod("train-0", ONE_LINE)

EVENTS = {
    "a device that a terminating pod holds: the end of the pod, or a change of its node": (
        STATIC,
        nodes(node("node1")),
        ledger(TERMINATING),
        {DeviceChanged("node1", "2"), exists("node1"), NodeChanged("node1", Aspect.READY)},
    ),
    "a device that is held under a name of another kind: any device of the node": (
        pod("train-0", "0=node1:GPU-00000000-0000-0000-0000-000000000001"),
        nodes(node("node1")),
        ledger(replace(TERMINATING, deleting_since=None)),
        {DeviceChanged("node1", ""), exists("node1")},
    ),
    "an index that another pod holds: this index": (
        STATIC,
        nodes(node("node1")),
        ledger(running("train-0", "node1", ONE_LINE, namespace="default", ref=replace(STATIC.ref, uid="older"))),
        {of_workload(STATIC)[0], exists("node1")},
    ),
    "no free line because another pod claims it: any line": (
        DYNAMIC,
        nodes(node("node1")),
        ledger(pod("any-0", ONE_LINE, owner=Owner("Job", "any"), annotations={"agentaflow.gpu/index": "0"})),
        {of_workload(DYNAMIC)[1]},
    ),
    "no free line because another pod holds it: any line": (
        DYNAMIC,
        nodes(node("node1")),
        ledger(running("any-y", "node1", ONE_LINE, owner=Owner("Job", "any"), annotations={
            "agentaflow.gpu/assigned-index": "0", "agentaflow.gpu/assigned-devices": "2",
        })),
        {of_workload(DYNAMIC)[1]},
    ),
    "too few devices left at the plugin: freed devices, or a plugin that advertises more": (
        limited("more-0", 2),
        nodes(PLUGIN),
        ledger(known=nodes(PLUGIN)),
        {
            ResourceFreed("node1", GPU),
            NodeChanged("node1", Aspect.ALLOCATABLE),
            NodeChanged("node1", Aspect.INVENTORY),
            NodeChanged(ANY_NODE, Aspect.INVENTORY),
            exists("node1"),
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize(("pending", "known", "held", "events"), EVENTS.values(), ids=EVENTS)
def test_a_waiting_pod_lists_the_events_that_requeue_it(
    pending: Pod, known: Nodes, held: Ledger, events: set[ClusterEvent]
) -> None:
    """Exactly these events requeue the pod."""
    decision = decided(pending, held, known)

    assert isinstance(decision, Wait)
    assert decision.cured_by == events
    assert decision.pod == pending.ref


def test_a_message_has_the_numbers_of_too_few_devices() -> None:
    """The message has requested, used and free devices and a remedy; the topic has no numbers."""
    decision = decided(limited("more-0", 2), ledger(known=nodes(PLUGIN)), nodes(PLUGIN))

    assert isinstance(decision, Wait)
    says(decision.message, "NotEnoughGpus", "2", "nvidia.com/gpu", "node1", "0")
    says(decision.topic, "NotEnoughGpus", "2", "nvidia.com/gpu", "node1")


def test_every_holder_of_a_device_must_share() -> None:
    """One holder opted in to sharing, the other did not."""
    willing = running("a-0", "node1", ONE_LINE, owner=OTHER, annotations=SHARING)
    unwilling = running("b-0", "node1", ONE_LINE, owner=Owner("StatefulSet", "third"))
    decision = decided(pod("train-0", ONE_LINE, annotations=SHARING), ledger(willing, unwilling))

    assert isinstance(decision, Wait)
    says(decision.message, "GpuHeld", "GPU 2", "node1", "default/b-0")


def test_devices_by_name_exclude_each_other_beside_a_plugin() -> None:
    """On a node with a device plugin, a device that one pod holds by name is not given to another pod."""
    there = replace(PLUGIN, advertised=4, inventory=counted(4))
    held = ledger(running("old-0", "node1", ONE_LINE, owner=OTHER), known=nodes(there))
    taken = decided(pod("train-0", ONE_LINE), held, nodes(there))
    beyond = decided(pod("train-0", "0=node1:9"), held, nodes(there))

    assert isinstance(taken, Wait)
    assert isinstance(beyond, Wait)
    assert taken.reason is Reason.GPU_HELD
    assert beyond.reason is Reason.GPU_NOT_FOUND


def test_a_refusal_has_a_topic() -> None:
    """The topic lets the scheduler report a refusal once."""
    decision = decided(pod("train-9", ONE_LINE))

    assert isinstance(decision, Refuse)
    says(decision.topic, "IndexNotInMap")


@pytest.mark.parametrize("number", ["9223372036854775807", "-9223372036854775808"])
def test_gt_and_lt_compare_64_bit_numbers(number: str) -> None:
    """The smallest and the largest 64-bit number are compared; a number beyond them never holds."""
    either = (NodeSelectorRequirement("age", "Gt", ("0",)), NodeSelectorRequirement("age", "Lt", ("0",)))
    beyond = number[:-1] + str(int(number[-1]) + 1)

    assert any(each.holds({"age": number}) for each in either)
    assert not any(each.holds({"age": beyond}) for each in either)


def test_an_invalid_index_annotation_holds_no_index() -> None:
    """A bound pod whose index annotation is no number has no index."""
    odd = running("odd-0", "node1", ONE_LINE, annotations={"agentaflow.gpu/index": "first"})

    assert [holder.index for holder in ledger(odd)] == [None]
