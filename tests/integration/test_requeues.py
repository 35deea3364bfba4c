"""A cluster event requeues only the pods that it may let run, among hundreds that wait.

Back-off and resync are ten minutes: a pod that the event itself does not requeue is not bound within the test.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, TypeAlias

import pytest

from tests.integration import feasibility_devices, feasibility_indices, feasibility_nodes, waiting_pods
from tests.integration.barrier import settle
from tests.integration.command import Command, start_alone
from tests.integration.control_plane import ADMIN_TOKEN
from tests.integration.feasibility_case import carry_out
from tests.integration.installed import Installed
from tests.integration.namespace import Namespace
from tests.integration.request_counts import requests
from tests.integration.role_manifests import control_plane
from tests.objects import literal, pod
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.feasibility_case import Case
    from tests.integration.remedies import Remedy
    from tests.objects import Object

WAITING_PODS: Final = int(os.environ.get("CROWD", "500"))
"""How many pods wait. Suite sweeps sets CROWD to 10,000."""
LONG: Final[dict[str, str]] = {"POD_INITIAL_BACKOFF": "10m", "POD_MAX_BACKOFF": "10m", "POD_RESYNC": "10m"}
CASES: Final = (
    *feasibility_nodes.CASES,
    *feasibility_devices.EXISTENCE,
    *feasibility_devices.HELD,
    *feasibility_devices.PLUGINS,
    *feasibility_indices.INDICES,
)


Waiting: TypeAlias = tuple[Namespace, Command, Installed]
"""A namespace of waiting pods, the scheduler, and the command line of its control plane."""


@pytest.fixture(scope="module")
def with_waiting_pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Waiting]:
    """A scheduler and WAITING_PODS waiting pods. The scheduler has reported the reason of each."""
    plane = control_plane(tmp_path_factory.mktemp("plane"))
    try:
        with start_alone(plane, tmp_path_factory.mktemp("scheduler"), "patient-0", None, **LONG).serving() as command:
            namespace = Namespace(plane.kube, "crowd")
            began = time.monotonic()
            waiting_pods.gather(namespace, WAITING_PODS)
            created = time.monotonic() - began

            eventually("each pod has an event", lambda: namespace.count_events() > WAITING_PODS, seconds=600, pause=2)
            print(f"{WAITING_PODS} pods: created in {created:.0f} s, reported in {time.monotonic() - began:.0f} s")  # noqa: T201
            yield namespace, command, Installed(tmp_path_factory.mktemp("operator"), plane, ADMIN_TOKEN, "default")
    finally:
        plane.stop()


@pytest.fixture
def beside(with_waiting_pods: Waiting, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A new namespace for each test, beside that of the waiting pods."""
    namespace = Namespace(with_waiting_pods[0].kube, f"beside-{time.monotonic_ns()}")
    yield namespace
    namespace.clear()


def _other_events(namespace: Namespace) -> list[Object]:
    """Return the events about no pod: of the leader, and those that the API server records about its own Service."""
    items: list[Object] = []
    for kind in ("Lease", "Service", "ServiceCIDR"):
        _, found = namespace.kube.call("GET", f"/api/v1/events?fieldSelector=involvedObject.kind={kind}")
        items += found["items"]
    return items


@pytest.mark.timeout(900)
@pytest.mark.promise("text-8", "wait-2")
def test_each_of_the_waiting_pods_was_decided_once_and_reported_once(
    with_waiting_pods: Waiting,
) -> None:
    """Each pod has one attempt, one condition and one event, for every reason of REASONS.

    A request whose answer was lost is sent again, as on a machine that pauses. Then a condition may be written twice,
    an event never.
    """
    namespace, command, _ = with_waiting_pods
    done, lost = requests(namespace.kube, codes="2"), command.count("Writing a notice got no answer")

    others = len(_other_events(namespace))
    assert (done["POST events"] - others, namespace.count_events()) == (WAITING_PODS + 1, WAITING_PODS + 1)
    assert WAITING_PODS <= done["PATCH pods/status"] <= WAITING_PODS + lost
    assert _settled(namespace, command) == WAITING_PODS + 1
    waiting = command.metric('scheduler_pending_pods{queue="unschedulable"}')
    assert waiting + command.metric('scheduler_pending_pods{queue="backoff"}') == WAITING_PODS
    for number, reason in enumerate(waiting_pods.REASONS):
        assert str(namespace.condition(waiting_pods.name_of(number))["message"]).startswith(f"{reason}: ")


@pytest.mark.promise("wait-1", "wait-2")
@pytest.mark.parametrize(
    ("case", "remedy"),
    [
        pytest.param(case, remedy, id=case.name, marks=case.marks)
        for case in CASES
        if (remedy := next((each for each in case.remedies if not each.makes_anew), None)) is not None
    ],
)
def test_a_remedy_requeues_only_the_pod_that_it_may_let_run(
    with_waiting_pods: Waiting, beside: Namespace, case: Case, remedy: Remedy
) -> None:
    """The remedy causes the bind of the pod, and no attempt for any of the waiting pods.

    Back-off and resync are ten minutes, so nothing but the event of the remedy causes the bind. All waiting pods of a
    reason would be requeued together: that is more than the attempts of the pod itself.
    """
    _, command, operator = with_waiting_pods
    case.set_up(beside)
    _ask(case, beside, command)
    attempts_before = command.attempts()

    carry_out(remedy, beside, operator)
    placed = beside.placed(case.who)
    settle(beside, command)

    assert (placed.node, placed.devices) == (remedy.node, case.given)
    assert command.attempts() - attempts_before <= remedy.attempts


def _ask(case: Case, beside: Namespace, command: Command) -> None:
    """Create the pod, and wait until its reason is reported.

    If a watch was late, it had more than one attempt, and few are made without back-off: then it is made anew.
    """
    attempts_before = command.attempts()
    beside.make(case.asker)
    case.wait_reported(beside)
    if command.attempts() - attempts_before > 1:
        beside.delete(case.who)
        beside.make(case.asker)
        case.wait_reported(beside)


def _settled(namespace: Namespace, command: Command) -> float:
    """Wait until all is decided, since a new node requeues some pods. Return the number of attempts."""
    settle(namespace, command)
    return command.attempts()


@pytest.mark.promise("wait-1", "place-3")
def test_a_removed_gate_requeues_only_its_pod(with_waiting_pods: Waiting, beside: Namespace) -> None:
    """Removing the gate of a pod concerns no other pod."""
    _, command, _ = with_waiting_pods
    beside.node("node1")
    beside.make(pod("gated-0", "0=node1:0\n", literal("0"), schedulingGates=[{"name": "example.com/wait"}]))
    attempts_before = _settled(beside, command)

    beside.kube.patch(f"{beside.pods}/gated-0", {"spec": {"schedulingGates": []}})

    assert beside.placed("gated-0").devices == "0"
    # The API server shows the pod as bound before the scheduler has read the answer and counts the attempt.
    assert _settled(beside, command) - attempts_before == 1


@pytest.mark.promise("wait-2", "text-8")
def test_the_waiting_pods_got_nothing_more(with_waiting_pods: Waiting) -> None:
    """After all tests of this file each waiting pod has one status write and one event, and each row a few."""
    namespace, *_ = with_waiting_pods
    seen = requests(namespace.kube)

    assert seen["PATCH pods/status"] <= WAITING_PODS + 3 * len(CASES)
    assert seen["POST events"] <= WAITING_PODS + 6 * (len(CASES) + 1)
