"""Limits of nvidia.com/gpu: the node from us, the cards from the device plugin where there is one."""

from dataclasses import replace
from typing import Any

import pytest

from gpu_scheduler.core.decision import Bind, Refuse, Wait
from gpu_scheduler.core.filters.environment import BY_FIELD
from gpu_scheduler.core.nodes.inventory import Device, Inventory, counted
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.placement import Assignment
from gpu_scheduler.core.pods.pod import ForeignPod, Pod, ResourceRequest
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import Owner, PodRef
from tests.core.build import ROOM, container, decided, ledger, node, nodes, pod, running

GPU = "nvidia.com/gpu"
OBSERVER = {"agentaflow.gpu/observer": "true"}
OTHER = Owner("StatefulSet", "other")
UUID = "GPU-00000000-0000-0000-0000-000000000000"


def limited(number: int, *containers: str) -> dict[str, Any]:
    """A limit of so many devices in each of these containers, as the webhook leaves them then."""
    limits = tuple((name, number) for name in containers or ("main",))
    resource_request = ResourceRequest({GPU: number * len(limits)})
    return {"gpu_limits": limits, "resource_request": resource_request, "containers": (container(BY_FIELD),)}


def handing_out(name: str = "node1", number: int = 4, *, allocatable: int | None = None) -> Node:
    """A node whose device plugin hands out so many cards."""
    left = number if allocatable is None else allocatable
    return node(name, advertised=number, inventory=counted(number), allocatable={**ROOM, GPU: left})


PLUGIN = handing_out()
BARE = node("node1")
KNOWN = node("node1", inventory=Inventory((Device(0, UUID), Device(1), Device(2), Device(3))))

BOUND = {
    "the plugin picks as many cards as the line names": (pod("a-0", "0=node1:2,3", **limited(2)), PLUGIN, "0,1"),
    "the plugin picks where the line names none": (pod("a-0", "0=node1:", **limited(3)), PLUGIN, "0,1,2"),
    "all cards of the node": (pod("a-0", "0=node1:", **limited(4)), PLUGIN, "0,1,2,3"),
    "the line's numbers are the plugin's business": (pod("a-0", "0=node1:9", **limited(1)), PLUGIN, "0"),
    "where nobody hands out cards the limit is only a count": (pod("a-0", "0=node1:2,3", **limited(2)), BARE, "2,3"),
    "with a known inventory the limit is only a count": (pod("a-0", "0=node1:0,1", **limited(2)), KNOWN, "0,1"),
    "a limit beside a line without cards, where nobody hands out any": (pod("a-0", "0=node1:", **limited(1)), BARE, ""),
    "without a limit the line's cards are the pod's, plugin or not": (pod("a-0", "0=node1:2,3"), PLUGIN, "2,3"),
    "an observer with a limit": (pod("a-0", "0=node1:2", annotations=OBSERVER, **limited(1)), PLUGIN, "0"),
}


@pytest.mark.parametrize(("pending", "there", "devices"), BOUND.values(), ids=BOUND)
def test_what_a_pod_with_a_limit_sees(pending: Pod, there: Node, devices: str) -> None:
    """Numbers from its container where a plugin picks the cards, else the line's."""
    decision = decided(pending, known=nodes(there))

    assert isinstance(decision, Bind)
    assert decision.placement.value == devices


def test_uuids_of_a_plugins_choice_are_not_known() -> None:
    """The Binding names none, even where the node's inventory has them all."""
    known = Inventory((Device(0, UUID),))
    there = replace(handing_out(number=1), inventory=known)
    decision = decided(pod("a-0", "0=node1:0", **limited(1)), known=nodes(there))

    assert isinstance(decision, Bind)
    assert "agentaflow.gpu/assigned-uuids" not in decision.placement.annotations


REFUSED = {
    "more than the line names": (
        pod("a-0", "0=node1:2", **limited(2)),
        (
            'RequestInvalid: cannot read limit nvidia.com/gpu: 2 of container "main": it must be as many as the map\'s '
            "line for index 0 names, which are 1; correct it (example: nvidia.com/gpu: 1), or correct the line"
        ),
    ),
    "fewer than the line names": (pod("a-0", "0=node1:2,3", **limited(1)), "RequestInvalid: cannot read limit"),
    "in two containers": (
        pod("a-0", "0=node1:2,3", **limited(1, "main", "side")),
        (
            'RequestInvalid: cannot read limit nvidia.com/gpu: 1 of container "side": one container of a pod must have '
            'that limit, and "main" has it; leave it out of all but one (example: nvidia.com/gpu: 1 in "main")'
        ),
    ),
}


@pytest.mark.parametrize("there", [PLUGIN, BARE, KNOWN], ids=["plugin", "unknown node", "known node"])
@pytest.mark.parametrize(("pending", "message"), REFUSED.values(), ids=REFUSED)
def test_a_limit_that_cannot_be_meant_is_refused(pending: Pod, message: str, there: Node) -> None:
    """It stands in one container only, and is as many as the line names: on every node alike."""
    decision = decided(pending, known=nodes(there))

    assert isinstance(decision, Refuse)
    assert decision.message.startswith(message)


NAMED = running("named-0", "node1", "0=node1:0", owner=OTHER)
PLUGGED = running("plugged-0", "node1", "0=node1:", owner=OTHER, **limited(1))
WATCHING = running("watching-0", "node1", "0=node1:0", owner=OTHER, annotations=OBSERVER)
EMPTY = running("empty-0", "node1", "0=node1:", owner=OTHER)
WITH, WITHOUT = pod("a-0", "0=node1:2", **limited(1)), pod("a-0", "0=node1:2")

APART = {
    "a limit waits for who holds a card by name": (WITH, NAMED, "default/named-0"),
    "a limit stands beside another": (WITH, PLUGGED, None),
    "a limit stands beside an observer": (WITH, WATCHING, None),
    "a limit stands beside a pod without GPUs": (WITH, EMPTY, None),
    "a card by name waits for who has a limit": (WITHOUT, PLUGGED, "default/plugged-0"),
    "a card by name stands beside another": (WITHOUT, NAMED, None),
    "an observer waits for nobody": (pod("a-0", "0=node1:2", annotations=OBSERVER), PLUGGED, None),
    "a pod without GPUs waits for nobody": (pod("a-0", "0=node1:"), PLUGGED, None),
}


@pytest.mark.parametrize(("pending", "holder", "waits_for"), APART.values(), ids=APART)
def test_on_a_plugins_node_names_and_limits_exclude_each_other(
    pending: Pod, holder: Pod, waits_for: str | None
) -> None:
    """Nobody can tell which card the plugin gave; who waits reads for whom, and is woken by its end."""
    known = nodes(PLUGIN)
    held = ledger(holder, known=known)
    decision = decided(pending, held, known)

    if waits_for is None:
        assert isinstance(decision, Bind)
    else:
        assert isinstance(decision, Wait)
        assert decision.reason is Reason.GPU_HELD
        assert f"GPUs of node1 are held by {waits_for} " in decision.message
        assert held.forget(holder.ref.uid) & decision.cured_by


def test_without_a_plugin_names_and_limits_do_not_care() -> None:
    """Both are cards by name."""
    assert isinstance(decided(WITH, ledger(NAMED)), Bind)
    assert isinstance(decided(WITHOUT, ledger(PLUGGED)), Bind)


def test_a_limit_holds_its_lines_cards_where_no_plugin_is() -> None:
    """The count is no booking of its own."""
    holder = running("other-0", "node1", "0=node1:2", owner=OTHER, **limited(1))
    named = replace(holder, assignment=Assignment(("2",)))
    decision = decided(WITHOUT, ledger(named))

    assert isinstance(decision, Wait)
    assert "GPU 2 of node1 is held by default/other-0" in decision.message


def test_another_schedulers_pods_use_the_plugin_too() -> None:
    """They are no holders of ours, but what the plugin gave them is gone; the pod is named."""
    known = nodes(PLUGIN)
    held = ledger(known=known)
    foreign = ForeignPod(PodRef("other", "web", "uid-web"), "node1", ResourceRequest({GPU: 1}))
    held.apply_foreign_pod(foreign)
    decision = decided(WITHOUT, held, known)

    assert isinstance(decision, Wait)
    assert decision.message == (
        "GpuHeld: GPUs of node1 are held by other/web of the device plugin's choice, and nobody can tell whether they "
        "are this pod's; wait until it ends, name another node, or give all pods of a node a limit of nvidia.com/gpu, "
        "or none"
    )
    assert held.forget_foreign_pod(foreign) & decision.cured_by
    assert isinstance(decided(WITHOUT, held, known), Bind)


LEFT = {
    "one too many": (3, 4, 2, None, "cannot get 3 nvidia.com/gpu on node node1: 2 of 4 are used, 2 are free"),
    "exactly the rest": (2, 4, 2, None, None),
    "cards that the plugin gave up": (1, 4, 2, 1, "cannot get 1 nvidia.com/gpu on node node1: 2 of 1 are used, 0 are"),
    "a plugin that restarts": (1, 0, 0, 0, "cannot get 1 nvidia.com/gpu on node node1: 0 of 0 are used, 0 are free"),
}


@pytest.mark.parametrize(("asked", "number", "used", "allocatable", "message"), LEFT.values(), ids=LEFT)
def test_a_plugin_has_only_so_many_cards(
    asked: int, number: int, used: int, allocatable: int | None, message: str | None
) -> None:
    """Whoever used them; who waits reads the numbers, and is woken when some come free."""
    known = nodes(handing_out("node1", number, allocatable=allocatable))
    held = ledger(known=known)
    foreign = ForeignPod(PodRef("other", "web", "uid-web"), "node1", ResourceRequest({GPU: used} if used else {}))
    held.apply_foreign_pod(foreign)
    decision = decided(pod("a-0", "0=node1:", **limited(asked)), held, known)

    if message is None:
        assert isinstance(decision, Bind)
    else:
        assert isinstance(decision, Wait)
        assert decision.message.startswith(f"NotEnoughGpus: {message}")
        back = handing_out("node1", 8)
        assert (held.forget_foreign_pod(foreign) | known.apply(back)) & decision.cured_by


def test_what_is_decided_is_booked() -> None:
    """Between the bind and the watch, the cards are taken: the next pod that does not fit waits."""
    known = nodes(PLUGIN)
    held = ledger(known=known)
    for number in range(2):
        first = pod(f"a-{number}", "0=node1:\n1=node1:\n2=node1:", **limited(2))
        decision = decided(first, held, known)
        assert isinstance(decision, Bind)
        held.assume(first, decision.placement)
    decision = decided(pod("a-2", "0=node1:\n1=node1:\n2=node1:", **limited(2)), held, known)

    assert isinstance(decision, Wait)
    assert decision.message.startswith("NotEnoughGpus: cannot get 2 nvidia.com/gpu on node node1: 4 of 4 are used")
    assert [held.devices.unnamed(holder) for holder in held] == [2, 2]


ELSEWHERE = {
    "another node hands out cards, and this one is not known: its plugin is on its way": (BARE, False),
    "another node hands out cards, and this one's are known": (KNOWN, True),
}


@pytest.mark.parametrize(("there", "bound"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_node_without_a_plugin_beside_one_that_has_it(there: Node, bound: bool) -> None:  # noqa: FBT001
    """Where some node hands out cards, a limit is only a count on nodes whose cards are known."""
    known = nodes(there, handing_out("node2"))
    decision = decided(WITH, known=known)

    if bound:
        assert isinstance(decision, Bind)
        assert decision.placement.value == "2"
    else:
        assert isinstance(decision, Wait)
        assert decision.message.startswith(
            "NotEnoughGpus: cannot get 1 nvidia.com/gpu on node node1: 0 of 0 are used, 0 are free"
        )
        assert known.forget("node2") & decision.cured_by
        assert known.apply(PLUGIN) & decision.cured_by


def test_a_limit_needs_the_annotation_form() -> None:
    """Literals would tell the container the wrong cards: the gate wants the value of the decision."""
    literal = replace(WITH, environment=WITHOUT.environment)
    decision = decided(literal, known=nodes(PLUGIN))

    assert isinstance(decision, Refuse)
    assert decision.reason is Reason.ENV_CONFLICT


def test_a_pod_that_takes_any_line_takes_one_of_its_size() -> None:
    """Lines that name another number of cards are not its lines."""
    decision = decided(pod("web", "0=node1:0\n1=node1:1,2", **limited(2)), known=nodes(PLUGIN))

    assert isinstance(decision, Bind)
    assert (decision.placement.index, decision.placement.value) == (1, "0,1")
