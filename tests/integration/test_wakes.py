"""A change wakes only those whose reason it can cure: thousands of pods wait, one of them is meant.

Back-off and resync are ten minutes: who is not woken by the change itself is not bound in this test's time.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

import pytest

from tests.integration import crowd, questions_of_devices, questions_of_indices, questions_of_nodes
from tests.integration.bench import Bench
from tests.integration.command import start_alone
from tests.integration.counting import requests
from tests.integration.shipped import control_plane
from tests.objects import literal, pod
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.asking import Question
    from tests.integration.command import Command

CROWD: Final = int(os.environ.get("CROWD", "2000"))
"""Suite sweeps has ten thousand."""
LONG: Final[dict[str, str]] = {"POD_INITIAL_BACKOFF": "10m", "POD_MAX_BACKOFF": "10m", "POD_RESYNC": "10m"}
QUIET_LOOKS: Final = 6
"""Looks at the counter, the last of them half a second apart, before it is taken for still."""
QUESTIONS: Final = (
    *questions_of_nodes.QUESTIONS,
    *questions_of_devices.QUESTIONS,
    *questions_of_indices.QUESTIONS,
)


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bench, Command]]:
    """A scheduler that has told everybody in the crowd why they wait."""
    plane = control_plane(tmp_path_factory.mktemp("plane"))
    try:
        command = start_alone(plane, tmp_path_factory.mktemp("scheduler"), "patient-0", None, **LONG)
        try:
            command.wait_ready()
            bench = Bench(plane.kube, "crowd")
            began = time.monotonic()
            crowd.gather(bench, CROWD)
            created = time.monotonic() - began

            eventually("everybody was told", lambda: bench.count_events() > CROWD, seconds=600, pause=2)
            print(f"{CROWD} pods: created in {created:.0f} s, told in {time.monotonic() - began:.0f} s")  # noqa: T201
            yield bench, command
        finally:
            command.process.stop()
    finally:
        plane.stop()


@pytest.fixture
def beside(crowded: tuple[Bench, Command], request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A namespace of the test's own, beside the crowd."""
    bench = Bench(crowded[0].kube, f"beside-{time.monotonic_ns()}")
    yield bench
    bench.clear()


@pytest.mark.timeout(900)
@pytest.mark.promise("text-8", "wait-2")
def test_each_of_the_crowd_was_decided_once_and_told_once(crowded: tuple[Bench, Command]) -> None:
    """One look, one condition, one event a pod, for as many reasons as there are kinds.

    A request whose answer was lost, as on a machine that stands still, is sent again: a condition may be written twice
    then, an event never is.
    """
    bench, command = crowded
    done, lost = requests(bench.kube, codes="2"), command.count("An announcement had no answer")

    assert (done["POST events"], bench.count_events()) == (CROWD + 1, CROWD + 1)
    assert CROWD <= done["PATCH pods/status"] <= CROWD + lost
    assert _settled(command) == CROWD + 1
    waiting = command.metric('scheduler_pending_pods{queue="unschedulable"}')
    assert waiting + command.metric('scheduler_pending_pods{queue="backoff"}') == CROWD
    for number, reason in enumerate(crowd.REASONS):
        assert str(bench.condition(crowd.name_of(number))["message"]).startswith(f"{reason}: ")


@pytest.mark.promise("wait-1", "wait-2")
@pytest.mark.parametrize(
    "question", [pytest.param(each, id=each.name, marks=pytest.mark.promise(*each.promises)) for each in QUESTIONS]
)
def test_only_the_pod_that_it_cures_is_woken(crowded: tuple[Bench, Command], beside: Bench, question: Question) -> None:
    """The curing event alone binds the pod, at once, and nobody of the crowd is looked at."""
    _, command = crowded
    question.world(beside)
    beside.make(question.asker)
    question.wait_told(beside)
    looked = command.attempts()

    question.cure(beside)
    cured = time.monotonic()
    placed = beside.placed(question.who, seconds=5)
    took = time.monotonic() - cured

    assert (placed.node, placed.devices) == ("node1", question.given)
    assert took < limit(1), f"bound after {took:.2f} s"
    # The pod itself: a fruitless look for each step of its cure, and the last.
    assert command.attempts() - looked <= 3


def _settled(command: Command) -> float:
    """Wait until nobody looks at a pod any more, as some do when a node comes; give how often they have looked."""
    seen = [command.attempts()]

    def quiet() -> bool:
        seen.append(command.attempts())
        return seen[-1] == seen[-2] and len(seen) > QUIET_LOOKS

    eventually("nobody looks any more", quiet, pause=0.5)
    return seen[-1]


@pytest.mark.promise("wait-1", "place-3")
def test_an_opened_gate_wakes_only_its_pod(crowded: tuple[Bench, Command], beside: Bench) -> None:
    """The gate is the pod's own: nobody else hears of it."""
    _, command = crowded
    beside.node("node1")
    beside.make(pod("gated-0", "0=node1:0\n", literal("0"), schedulingGates=[{"name": "example.com/wait"}]))
    looked = _settled(command)

    beside.kube.patch(f"{beside.pods}/gated-0", {"spec": {"schedulingGates": []}})

    assert beside.placed("gated-0", seconds=1).devices == "0"
    # The API server shows the pod as bound before the scheduler has heard of it and counts.
    assert _settled(command) - looked == 1


@pytest.mark.promise("wait-2", "text-8")
def test_the_crowd_heard_nothing_more(crowded: tuple[Bench, Command]) -> None:
    """After all of it: one status write and one event a pod of the crowd, and a handful for each row. No storm."""
    bench, _ = crowded
    seen = requests(bench.kube)

    assert seen["PATCH pods/status"] <= CROWD + 3 * len(QUESTIONS)
    assert seen["POST events"] <= CROWD + 6 * (len(QUESTIONS) + 1)
