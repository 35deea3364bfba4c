"""The number of requests that a placement costs, counted by the API server.

The tests have their own control plane, because requests of other programs would be counted too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.barrier import settle
from tests.integration.command import start_alone
from tests.integration.namespace import Namespace
from tests.integration.request_counts import requests
from tests.integration.role_manifests import control_plane
from tests.objects import literal, pod, reading
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

    from tests.integration.command import Command

COUNT = 50


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Namespace, Command]]:
    """A scheduler that is the only client of its API server, after it has placed a first pod."""
    plane = control_plane(tmp_path_factory.mktemp("plane"))
    try:
        command = start_alone(
            plane, tmp_path_factory.mktemp("scheduler"), "thrifty-0", POD_RESYNC="1s", SCHEDULING_INTERVAL="500ms"
        )
        with command.serving():
            namespace = Namespace(plane.kube, "budget")
            namespace.node("node1", room={"pods": "1000"})
            namespace.pod("first-0", "0=node1:0\n", "0")
            namespace.wait_bound("first-0", "node1")
            namespace.wait_event("first-0", "Scheduled")
            yield namespace, command
    finally:
        plane.stop()


@pytest.mark.promise("place-7", "env-6")
@pytest.mark.parametrize("form", ["literal", "reading"])
def test_pods_placed_at_the_first_attempt_cost_a_binding_and_an_event_each(
    quiet: tuple[Namespace, Command], form: str
) -> None:
    """The scheduler reads nothing and writes no condition, with a static and with a dynamic index."""
    namespace, command = quiet
    known = form == "literal"
    first = 100 if known else 200
    text = "".join(f"{index}=node1:{index}\n" for index in range(first, first + COUNT))
    before, done = requests(namespace.kube), command.attempts("scheduled")

    for index in range(first, first + COUNT):
        name = f"{form}-{index}" if known else f"{form}-x{index}"
        namespace.make(pod(name, text, literal(str(index)) if known else reading()))

    eventually("all are bound", lambda: command.attempts("scheduled") == done + COUNT)
    assert _cost(namespace, before, "POST events", COUNT) == {
        "POST pods": COUNT,
        "POST pods/binding": COUNT,
        "POST events": COUNT,
    }


@pytest.mark.promise("place-7", "text-8", "wait-4")
def test_a_change_of_reason_costs_two_writes(quiet: tuple[Namespace, Command]) -> None:
    """Condition and event are written once per pod and reason, and not again at further attempts."""
    namespace, command = quiet
    text = "".join(f"{index}=later:{index}\n" for index in range(COUNT))
    before = requests(namespace.kube)
    for index in range(COUNT):
        namespace.pod(f"wait-{index}", text, str(index))
    reported = {"POST pods": COUNT, "PATCH pods/status": COUNT, "POST events": COUNT}
    assert _cost(namespace, before, "POST events", COUNT) == reported
    attempts_before = command.attempts()
    eventually("each pod was tried again", lambda: command.attempts() >= attempts_before + COUNT)
    assert _cost(namespace, before, "POST events", COUNT) == reported

    namespace.node("later", ready=False)
    reported = {"POST pods": COUNT, "PATCH pods/status": 2 * COUNT, "POST events": 2 * COUNT, "POST nodes": 1}
    assert _cost(namespace, before, "POST events", 2 * COUNT) == reported

    done = command.attempts("scheduled")
    namespace.set_ready("later", ready=True)
    eventually("all are bound", lambda: command.attempts("scheduled") == done + COUNT)
    more = {"POST events": 3 * COUNT, "POST pods/binding": COUNT, "PATCH nodes/status": 1}
    assert _cost(namespace, before, "POST events", 3 * COUNT) == {**reported, **more}


@pytest.mark.promise("place-7")
def test_the_steady_state_reads_and_writes_nothing(quiet: tuple[Namespace, Command]) -> None:
    """Bound pods and five attempts of a waiting pod cost no request but open watches and renewals of the Lease."""
    namespace, command = quiet
    namespace.pod("patient-0", "0=never:0\n", "0")
    namespace.wait_event("patient-0", "FailedScheduling")
    settle(namespace, command)
    before, attempts = requests(namespace.kube), command.attempts()

    eventually("it was tried five times more", lambda: command.attempts() >= attempts + 5, seconds=60)

    assert requests(namespace.kube) - before == {}


def _cost(namespace: Namespace, before: Counter[str], last: str, count: int) -> dict[str, int]:
    """Wait until `count` requests `last` were counted since `before`. Return the counts of all requests since then."""

    def spent() -> dict[str, int]:
        return dict(requests(namespace.kube) - before)

    eventually(f"{count} times {last}", lambda: spent().get(last, 0) >= count)
    return spent()
