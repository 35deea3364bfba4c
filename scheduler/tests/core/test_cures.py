"""What a waiting pod names as its cures, to the letter: one too few, and it waits for the resync."""

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
from gpu_scheduler.core.decision import Bind, Refuse, Wait
from gpu_scheduler.core.filters.environment import BY_FIELD
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.inventory import counted
from gpu_scheduler.core.nodes.nodes import ANY_NODE, Nodes
from gpu_scheduler.core.pods.constraints import NodeSelectorRequirement
from gpu_scheduler.core.pods.pod import Pod, ResourceRequest
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import Owner
from tests.core.build import ROOM, container, decided, exists, ledger, node, nodes, pod, running

GPU = "nvidia.com/gpu"
OTHER = Owner("StatefulSet", "other")
SHARING = {"agentaflow.gpu/sharing": "any"}
ONE_LINE = "0=node1:2"
ENDING = replace(running("old-0", "node1", ONE_LINE, owner=OTHER), deleting_since="2026-01-01T00:00:00Z")
PLUGIN = node("node1", advertised=1, inventory=counted(1), allocatable={**ROOM, GPU: 1})


def limited(name: str, number: int) -> Pod:
    """A pod that wants so many cards of a device plugin."""
    return pod(
        name,
        "0=node1:",
        owner=None,
        gpu_limits=(("main", number),),
        resource_request=ResourceRequest({GPU: number}),
        containers=(container(BY_FIELD),),
    )


def of_workload(given: Pod) -> tuple[ClusterEvent, ClusterEvent]:
    """What tells that index 0 of the pod's workload is free, for who wants it and for who takes any."""
    assert given.request.line is not None
    workload = given.request.line.workload
    return IndexChanged(workload, 0), AnyIndexFreed(workload)


DYNAMIC = pod("any-x", ONE_LINE, owner=Owner("Job", "any"))
STATIC = pod("train-0", ONE_LINE)

CURES = {
    "a card that an ending pod holds: its end, or news of its node": (
        STATIC,
        nodes(node("node1")),
        ledger(ENDING),
        {DeviceChanged("node1", "2"), exists("node1"), NodeChanged("node1", Aspect.READY)},
    ),
    "a card that is held under a name of another kind: any card of the node": (
        pod("train-0", "0=node1:GPU-00000000-0000-0000-0000-000000000001"),
        nodes(node("node1")),
        ledger(replace(ENDING, deleting_since=None)),
        {DeviceChanged("node1", ""), exists("node1")},
    ),
    "an index that is held: that index": (
        STATIC,
        nodes(node("node1")),
        ledger(running("train-0", "node1", ONE_LINE, namespace="default", ref=replace(STATIC.ref, uid="older"))),
        {of_workload(STATIC)[0], exists("node1")},
    ),
    "no line left because another pod claims it: a line": (
        DYNAMIC,
        nodes(node("node1")),
        ledger(pod("any-0", ONE_LINE, owner=Owner("Job", "any"), annotations={"agentaflow.gpu/index": "0"})),
        {of_workload(DYNAMIC)[1]},
    ),
    "no line left because another pod holds it: a line": (
        DYNAMIC,
        nodes(node("node1")),
        ledger(running("any-y", "node1", ONE_LINE, owner=Owner("Job", "any"), annotations={
            "agentaflow.gpu/assigned-index": "0", "agentaflow.gpu/assigned-devices": "2",
        })),
        {of_workload(DYNAMIC)[1]},
    ),
    "too few cards left at the plugin: cards there, or a plugin that tells more": (
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


@pytest.mark.parametrize(("pending", "known", "held", "cures"), CURES.values(), ids=CURES)
def test_what_can_cure_a_wait(pending: Pod, known: Nodes, held: Ledger, cures: set[ClusterEvent]) -> None:
    """Exactly these changes give the pod another turn."""
    decision = decided(pending, held, known)

    assert isinstance(decision, Wait)
    assert decision.cured_by == cures
    assert decision.pod == pending.ref


def test_the_words_of_too_few_cards() -> None:
    """Asked, used and free are told, and what to do; the numbers are no part of the topic."""
    decision = decided(limited("more-0", 2), ledger(known=nodes(PLUGIN)), nodes(PLUGIN))

    assert isinstance(decision, Wait)
    assert decision.message == (
        "NotEnoughGpus: cannot get 2 nvidia.com/gpu on node node1: 0 of 1 are used, 1 are free; "
        "wait until pods there end, or name another node"
    )
    assert decision.topic == "NotEnoughGpus: node1"


def test_every_holder_of_a_card_is_asked() -> None:
    """One who would share it does not speak for the next, who would not."""
    willing = running("a-0", "node1", ONE_LINE, owner=OTHER, annotations=SHARING)
    unwilling = running("b-0", "node1", ONE_LINE, owner=Owner("StatefulSet", "third"))
    decision = decided(pod("train-0", ONE_LINE, annotations=SHARING), ledger(willing, unwilling))

    assert isinstance(decision, Wait)
    assert decision.message.startswith("GpuHeld: GPU 2 of node1 is held by default/b-0")


def test_beside_a_plugin_names_exclude_each_other() -> None:
    """Where a plugin hands out cards, a card that one pod holds by its name is not another's."""
    there = replace(PLUGIN, advertised=4, inventory=counted(4))
    held = ledger(running("old-0", "node1", ONE_LINE, owner=OTHER), known=nodes(there))
    taken = decided(pod("train-0", ONE_LINE), held, nodes(there))
    beyond = decided(pod("train-0", "0=node1:9"), held, nodes(there))

    assert isinstance(taken, Wait)
    assert isinstance(beyond, Wait)
    assert taken.reason is Reason.GPU_HELD
    assert beyond.reason is Reason.GPU_NOT_FOUND


def test_a_limit_of_no_card_is_no_limit_for_a_plugin() -> None:
    """A plugin's cards that named holders use are told to be held by their names."""
    there = replace(PLUGIN, advertised=4, inventory=counted(4), allocatable={**ROOM, GPU: 4})
    held = ledger(running("old-0", "node1", ONE_LINE, owner=OTHER), known=nodes(there))
    decision = decided(limited("more-0", 1), held, nodes(there))

    assert isinstance(decision, Wait)
    assert "are held by default/old-0 by its name, and" in decision.message


def test_a_refusal_has_a_topic() -> None:
    """So that it is told once."""
    decision = decided(pod("train-9", ONE_LINE))

    assert isinstance(decision, Refuse)
    assert decision.topic.startswith("IndexNotInMap: ")


BLANKS = {
    "beside the index": "0\u00a0=node1:2",
    "before the node": "0=\u00a0node1:2",
    "before an ID": "0=node1:1,\u00a02",
    "before the line": "\u00a00=node1:2",
}


@pytest.mark.parametrize("text", BLANKS.values(), ids=BLANKS)
def test_a_no_break_space_is_no_blank(text: str) -> None:
    """What cannot be seen is not silently dropped; the refusal quotes the line."""
    decision = decided(pod("train-0", text))

    assert isinstance(decision, Refuse)
    assert "\\xa0" in decision.message


@pytest.mark.parametrize("number", ["9223372036854775807", "-9223372036854775808"])
def test_the_ends_of_kubernetes_integers(number: str) -> None:
    """Gt and Lt compare 64-bit numbers, both ends included, and nothing beyond them."""
    either = (NodeSelectorRequirement("age", "Gt", ("0",)), NodeSelectorRequirement("age", "Lt", ("0",)))
    beyond = number[:-1] + str(int(number[-1]) + 1)

    assert any(each.holds({"age": number}) for each in either)
    assert not any(each.holds({"age": beyond}) for each in either)


def test_a_line_is_not_blocked_by_who_reads_it() -> None:
    """A pod that can be had is bound although the first of two lines is not."""
    decision = decided(pod("any-x", "0=node9:1\n1=node1:2", owner=Owner("Job", "any")))

    assert isinstance(decision, Bind)
    assert decision.placement.index == 1


WRONG_LINES = {
    "no line at all": "node1 gets 2",
    "no number in front": "x=node1:2",
    "a node that is no name": "0=Node_1:2",
    "an ID that is none": "0=node1:two",
    "an index for the second time": "7=node1:2",
}


@pytest.mark.parametrize("line", WRONG_LINES.values(), ids=WRONG_LINES)
def test_a_wrong_line_is_shown(line: str) -> None:
    """Whoever reads the refusal sees what it is about."""
    decision = decided(pod("train-0", f"7=node1:1\n{line}"))

    assert isinstance(decision, Refuse)
    assert "line 2" in decision.message
    assert f'"{line}"' in decision.message


def test_who_has_the_annotation_does_not_drift() -> None:
    """Drift is only a bound pod that reads an annotation which it does not have."""
    reading = {"owner": None, "containers": (container(BY_FIELD),)}
    known = ledger(
        running("has-0", "node1", ONE_LINE, annotations={"agentaflow.gpu/assigned-devices": "2"}, **reading),
        running("lacks-0", "node1", ONE_LINE, **reading),
    )

    assert known.drift() == 1


def test_an_index_that_cannot_be_read_is_held_by_nobody() -> None:
    """A bound pod whose index annotation is no number has no line."""
    odd = running("odd-0", "node1", ONE_LINE, annotations={"agentaflow.gpu/index": "first"})

    assert [holder.index for holder in ledger(odd)] == [None]
