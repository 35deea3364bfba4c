"""Invalid input affects one pod: it gets a message, the next pod is placed at once, and no watch is restarted."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.bad_input import DEEP, INVENTORIES, PODS, deep, odd_node
from tests.integration.namespace import Namespace
from tests.objects import literal, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.command import Command
    from tests.objects import Object

AT_ADMISSION: Final = frozenset(
    {"MapInvalid", "RequestInvalid", "IndexUnknown", "IndexNotInMap", "EnvConflict", "Unsupported"}
)
DENIED: Final = "denied the request: "
_numbers = itertools.count()


@pytest.fixture
def unreviewed(namespace: Namespace) -> Iterator[Namespace]:
    """A namespace for whose pods the API server does not call the webhook."""
    slipping = Namespace(namespace.kube, f"{namespace.name}-unreviewed", tests_unreviewed="yes")
    yield slipping
    slipping.clear()


@pytest.mark.promise("text-2", "text-6", "text-7", "text-9", "text-11")
@pytest.mark.parametrize(("word", "body"), [pytest.param(word, body, id=name) for name, word, body in PODS])
def test_a_bad_pod_gets_one_message(
    calling: Namespace, unreviewed: Namespace, scheduler: Command, word: str, body: Object
) -> None:
    """Admission answer, condition, event and log have the same message. Then a valid pod is bound."""
    calling.node("node1")
    name = body["metadata"]["name"]
    status, answer = calling.kube.call("POST", calling.pods, body)
    if word in AT_ADMISSION:
        assert status in {400, 403}, answer
        refusal = answer["message"].partition(DENIED)[2]
        assert refusal.startswith(f"{word}: ")
    else:
        assert status == 201, answer

    unreviewed.make(body)

    if word:
        message = unreviewed.wait_message(name, f"{word}: ")
        assert len(message.encode()) <= 1000
        assert message.isprintable()
        assert unreviewed.wait_event(name, "FailedScheduling")["note"] == message
        assert scheduler.logged(message)
        if word in AT_ADMISSION:
            assert message == refusal
    else:
        unreviewed.wait_bound(name, "node1")
    _all_is_well(unreviewed, scheduler)


@pytest.mark.promise("text-11")
def test_an_object_that_cannot_be_read_is_skipped(namespace: Namespace, scheduler: Command) -> None:
    """The API server accepts managedFields with thousands of levels. The scheduler must survive such a pod."""
    namespace.node("node1")
    status, answer = namespace.kube.raw("POST", namespace.pods, deep("bad-0"))
    assert (status, answer.count(b"f:x")) == (201, DEEP), answer[:500]
    try:
        _all_is_well(namespace, scheduler)
    finally:
        namespace.kube.raw("DELETE", f"{namespace.pods}/bad-0?gracePeriodSeconds=0")


@pytest.mark.promise("text-11")
@pytest.mark.parametrize("inventory", [pytest.param(text, id=name) for name, text in INVENTORIES.items()])
def test_a_bad_inventory_affects_at_most_its_node(namespace: Namespace, scheduler: Command, inventory: str) -> None:
    """The pods of other nodes are placed, and a pod without GPUs is placed on the node itself."""
    namespace.node("node1")
    namespace.add(odd_node(inventory))

    namespace.pod("there-0", "0=odd:\n", "")

    namespace.wait_bound("there-0", "odd")
    _all_is_well(namespace, scheduler)


@pytest.mark.promise("text-11")
def test_invalid_nodes_affect_no_other_node(namespace: Namespace, scheduler: Command) -> None:
    """The nodes have null instead of lists, amounts larger than 64-bit integers, or no status."""
    nodes: tuple[Object, ...] = (
        {"metadata": {"name": "bare"}},
        {"metadata": {"name": "null", "labels": None, "annotations": None}, "spec": {"taints": None}, "status": None},
        {
            "metadata": {"name": "vast"},
            "status": {"capacity": {"nvidia.com/gpu": "9223372036854775807", "pods": "9e99"}},
        },
        {"metadata": {"name": "none"}, "status": {"allocatable": {"pods": "0", "cpu": "0"}, "conditions": None}},
    )
    namespace.node("node1")
    for body in nodes:
        namespace.add(body)
        _all_is_well(namespace, scheduler)


def _all_is_well(namespace: Namespace, scheduler: Command) -> None:
    """Check that a valid pod is bound, and that no watch has failed or was listed again."""
    name = f"good-{next(_numbers)}x"
    namespace.make(pod(name, "0=node1:\n", literal(""), annotations={"agentaflow.gpu/index": "0"}, owner=("Job", name)))
    namespace.wait_bound(name, "node1")
    listed = [str(line["resource"]) for line in scheduler.lines() if line.get("event") == "Listed"]
    assert not scheduler.logged("Watching failed")
    # Listed at the start, and again after the election.
    assert max(listed.count(resource) for resource in listed) <= 2
    assert scheduler.process.alive()
