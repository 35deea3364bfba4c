"""What placing costs the API server, counted by itself; the tests ask the scheduler, not the API server, how far it is.

A control plane of its own: whoever else asked there would be counted too.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.bench import Bench
from tests.integration.command import start_alone
from tests.integration.counting import requests
from tests.integration.shipped import control_plane
from tests.objects import literal, pod, reading
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

    from tests.integration.command import Command

COUNT = 50


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bench, Command]]:
    """A scheduler alone with its API server, after a first pod has been placed."""
    plane = control_plane(tmp_path_factory.mktemp("plane"))
    try:
        command = start_alone(
            plane, tmp_path_factory.mktemp("scheduler"), "thrifty-0", POD_RESYNC="1s", SCHEDULING_INTERVAL="500ms"
        )
        try:
            command.wait_ready()
            bench = Bench(plane.kube, "budget")
            bench.node("node1", room={"pods": "1000"})
            bench.pod("first-0", "0=node1:0\n", "0")
            bench.wait_bound("first-0", "node1")
            bench.wait_event("first-0", "Scheduled")
            yield bench, command
        finally:
            command.process.stop()
    finally:
        plane.stop()


@pytest.mark.promise("place-7", "env-6")
@pytest.mark.parametrize("form", ["literal", "reading"])
def test_pods_placed_at_first_sight_cost_a_binding_and_an_event_each(quiet: tuple[Bench, Command], form: str) -> None:
    """Nothing is read, no condition is written, whether the index was known before or found now."""
    bench, command = quiet
    known = form == "literal"
    first = 100 if known else 200
    text = "".join(f"{index}=node1:{index}\n" for index in range(first, first + COUNT))
    before, done = requests(bench.kube), command.attempts("scheduled")

    for index in range(first, first + COUNT):
        name = f"{form}-{index}" if known else f"{form}-x{index}"
        bench.make(pod(name, text, literal(str(index)) if known else reading()))

    eventually("all are bound", lambda: command.attempts("scheduled") == done + COUNT)
    assert _cost(bench, before, "POST events", COUNT) == {
        "POST pods": COUNT,
        "POST pods/binding": COUNT,
        "POST events": COUNT,
    }


@pytest.mark.promise("place-7", "text-8", "wait-4")
def test_a_change_of_reason_costs_two_writes(quiet: tuple[Bench, Command]) -> None:
    """Condition and event, once per pod and reason, however often the pod is looked at."""
    bench, command = quiet
    text = "".join(f"{index}=later:{index}\n" for index in range(COUNT))
    before = requests(bench.kube)
    for index in range(COUNT):
        bench.pod(f"wait-{index}", text, str(index))
    told = {"POST pods": COUNT, "PATCH pods/status": COUNT, "POST events": COUNT}
    assert _cost(bench, before, "POST events", COUNT) == told
    looked = command.attempts()
    eventually("each was looked at again", lambda: command.attempts() >= looked + COUNT)
    assert _cost(bench, before, "POST events", COUNT) == told

    bench.node("later", ready=False)
    told = {"POST pods": COUNT, "PATCH pods/status": 2 * COUNT, "POST events": 2 * COUNT, "POST nodes": 1}
    assert _cost(bench, before, "POST events", 2 * COUNT) == told

    done = command.attempts("scheduled")
    bench.set_ready("later", ready=True)
    eventually("all are bound", lambda: command.attempts("scheduled") == done + COUNT)
    more = {"POST events": 3 * COUNT, "POST pods/binding": COUNT, "PATCH nodes/status": 1}
    assert _cost(bench, before, "POST events", 3 * COUNT) == {**told, **more}


@pytest.mark.promise("place-7")
def test_the_steady_state_reads_and_writes_nothing(quiet: tuple[Bench, Command]) -> None:
    """Five seconds with pods that run and a pod that waits: only watches, which are open, and the lease."""
    bench, _ = quiet
    bench.pod("patient-0", "0=never:0\n", "0")
    bench.wait_event("patient-0", "FailedScheduling")
    before = requests(bench.kube)

    time.sleep(5)

    assert requests(bench.kube) - before == {}


def _cost(bench: Bench, before: Counter[str], last: str, count: int) -> dict[str, int]:
    """Wait until the last of what is expected was counted, and give everything that was."""

    def spent() -> dict[str, int]:
        return dict(requests(bench.kube) - before)

    eventually(f"{count} times {last}", lambda: spent().get(last, 0) >= count)
    return spent()
