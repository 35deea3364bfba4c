"""Bad input costs one pod and one sentence: the next pod is placed at once, and no watch begins anew."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.bench import Bench
from tests.integration.corpus import DEEP, INVENTORIES, PODS, deep, odd_node
from tests.objects import literal, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.command import Command
    from tests.objects import Object

AT_ADMISSION: Final = frozenset(
    {"MapInvalid", "RequestInvalid", "IndexUnknown", "IndexNotInMap", "EnvConflict", "Unsupported"}
)
DENIED: Final = "denied the request: "
VAST: Final = "9223372036854775807"
_numbers = itertools.count()


@pytest.fixture
def unreviewed(bench: Bench) -> Iterator[Bench]:
    """A namespace whose pods slip by the webhook."""
    slipping = Bench(bench.kube, f"{bench.namespace}-unreviewed", tests_unreviewed="yes")
    yield slipping
    slipping.clear()


@pytest.mark.promise("text-2", "text-6", "text-7", "text-9", "text-11")
@pytest.mark.parametrize(("word", "body"), [pytest.param(word, body, id=name) for name, word, body in PODS])
def test_a_bad_pod_costs_one_sentence(
    calling: Bench, unreviewed: Bench, scheduler: Command, word: str, body: Object
) -> None:
    """The same text in admission answer, condition, event and log; then a good pod is bound within a second."""
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
        assert scheduler.said(message)
        if word in AT_ADMISSION:
            assert message == refusal
    else:
        unreviewed.wait_bound(name, "node1", seconds=3)
    _all_is_well(unreviewed, scheduler)


@pytest.mark.promise("text-11")
def test_an_object_that_cannot_be_read_is_passed_over(bench: Bench, scheduler: Command) -> None:
    """Managed fields nested thousands deep: the API server takes them, whoever reads them must not fall."""
    bench.node("node1")
    status, answer = bench.kube.raw("POST", bench.pods, deep("bad-0"))
    assert (status, answer.count(b"f:x")) == (201, DEEP), answer[:500]
    try:
        _all_is_well(bench, scheduler)
    finally:
        bench.kube.raw("DELETE", f"{bench.pods}/bad-0?gracePeriodSeconds=0")


@pytest.mark.promise("text-11")
@pytest.mark.parametrize("inventory", [pytest.param(text, id=name) for name, text in INVENTORIES.items()])
def test_a_bad_inventory_costs_at_most_its_node(bench: Bench, scheduler: Command, inventory: str) -> None:
    """Whatever a monitor writes, the pods of other nodes are placed, and the node itself is still there."""
    bench.node("node1")
    bench.add(odd_node(inventory))

    bench.pod("there-0", "0=odd:\n", "")

    bench.wait_bound("there-0", "odd", seconds=3)
    _all_is_well(bench, scheduler)


@pytest.mark.promise("text-11")
def test_odd_nodes_cost_at_most_themselves(bench: Bench, scheduler: Command) -> None:
    """Nulls where lists belong, amounts beyond every integer, no status at all."""
    nodes: tuple[Object, ...] = (
        {"metadata": {"name": "bare"}},
        {"metadata": {"name": "null", "labels": None, "annotations": None}, "spec": {"taints": None}, "status": None},
        {
            "metadata": {"name": "vast"},
            "status": {"capacity": {"nvidia.com/gpu": "9223372036854775807", "pods": "9e99"}},
        },
        {"metadata": {"name": "none"}, "status": {"allocatable": {"pods": "0", "cpu": "0"}, "conditions": None}},
    )
    bench.node("node1")
    for body in nodes:
        bench.add(body)
        _all_is_well(bench, scheduler)


def _all_is_well(bench: Bench, scheduler: Command) -> None:
    """A good pod is bound within a second, by a scheduler that has listed once and never lost a watch."""
    name = f"good-{next(_numbers)}x"
    bench.make(pod(name, "0=node1:\n", literal(""), annotations={"agentaflow.gpu/index": "0"}, owner=("Job", name)))
    bench.wait_bound(name, "node1", seconds=1)
    listed = [str(line["resource"]) for line in scheduler.lines() if line.get("event") == "Listed"]
    assert not scheduler.said("Watching failed")
    # Twice: at the start, and when it was elected.
    assert max(listed.count(resource) for resource in listed) <= 2
    assert scheduler.process.alive()
