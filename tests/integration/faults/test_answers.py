"""Faults of what the scheduler writes: what nobody answered, what was refused, and what came late."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.bench import SYSTEM_NAMESPACE
from tests.integration.faults.acts import WATCH, Act, Answer, Cut, Delay, Fault, Hang, Lose, Truncate, Twice
from tests.integration.faults.afar import BINDING, CALL_TIMEOUT, EVENTS, LEASE, PODS, STATUS
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.bench import Bench
    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.faults.proxy import FaultProxy

pytestmark = pytest.mark.usefixtures("audited")
UNANSWERED: Final = {
    "the answer to a delivered bind is lost": Cut(delivered=True),
    "a bind is lost on its way": Cut(delivered=False),
    "a delivered bind is never answered": Hang(delivered=True),
    "a bind is never answered nor delivered": Hang(delivered=False),
    "a bind is delivered when nobody waits for it any more": Delay(CALL_TIMEOUT + 2),
    "a bind is delivered just when nobody waits for it any more": Delay(CALL_TIMEOUT + 0.1),
    "the answer is cut in its middle": Truncate(),
    "a delivered bind is answered with 500": Answer(500, delivered=True),
    "a delivered bind is answered with 504": Answer(504, delivered=True),
    "a bind is delivered twice": Twice(),
}
"""What leaves open whether a pod was bound."""


@pytest.mark.parametrize("act", UNANSWERED.values(), ids=UNANSWERED)
def test_nobody_gets_a_gpu_whose_bind_is_in_doubt(bench: Bench, proxy: FaultProxy, far: Command, act: Act) -> None:
    """F2. The pod is bound once, with one event; a rival that came meanwhile is told that the GPU is held."""
    bench.node("node1")
    with proxy.breaking(Fault("POST", BINDING, act)):
        bench.pod("first-0", "0=node1:0\n", "0")
        eventually("a bind has flown", lambda: proxy.count("POST", f"{bench.namespace}{BINDING}"))
        bench.pod("rival-0", "0=node1:0\n1=node1:1\n", "0")
        bench.wait_bound("first-0", "node1", seconds=20)
        bench.wait_message("rival-0", "GpuHeld: ", seconds=20)

    bench.wait_event("first-0", "Scheduled")
    assert bench.node_of("rival-0") == ""
    assert [event["reason"] for event in bench.events("first-0")].count("Scheduled") == 1
    bench.delete("first-0")
    bench.wait_bound("rival-0", "node1", seconds=20)


@pytest.mark.parametrize("act", [Cut(delivered=True), Hang(delivered=True)], ids=["lost", "never given"])
def test_an_event_whose_answer_is_lost_is_told_once(bench: Bench, proxy: FaultProxy, far: Command, act: Act) -> None:
    """F3. The next try finds it there."""
    bench.node("node1")
    with proxy.breaking(Fault("POST", f"{bench.namespace}{EVENTS}", act)):
        bench.pod("asker-0", "0=node1:0\n", "0")
        eventually("it was tried again", lambda: proxy.count("POST", f"{bench.namespace}{EVENTS}") == 2, seconds=20)

    assert [event["reason"] for event in bench.events("asker-0")] == ["Scheduled"]


@pytest.mark.parametrize("seconds", [CALL_TIMEOUT + 2, pytest.param(60, marks=pytest.mark.long)])
def test_a_bind_that_arrives_when_its_pod_has_gone_does_nothing(
    bench: Bench, proxy: FaultProxy, far: Command, seconds: float
) -> None:
    """F2. It was tried again and bound; by the time the first try arrives, the name and the GPU have other owners."""
    bench.node("node1")
    bind = f"{bench.namespace}/pods/first-0/binding$"
    with proxy.breaking(Fault("POST", bind, Delay(seconds))) as fault:
        bench.pod("first-0", "0=node1:0\n", "0")
        bench.wait_bound("first-0", "node1", seconds=20)
        (left,) = (each.at for each in proxy.seen if each.fault is fault)
        bench.delete("first-0")
        bench.pod("first-0", "0=node1:5\n", "5")
        bench.pod("rival-0", "0=node1:0\n1=node1:1\n", "0")
        bench.wait_bound("rival-0", "node1", seconds=20)
        time.sleep(max(0.0, left + seconds + 1 - time.monotonic()))
    assert (bench.placed("first-0").devices, bench.placed("rival-0").devices) == ("5", "0")


def test_nothing_is_given_twice_while_everything_is_silent(bench: Bench, proxy: FaultProxy, far: Command) -> None:
    """F2. The answer is lost, the watch tells of no bound pod and no pod can be read: it is held until one speaks."""
    bench.node("node1")
    one_pod = f"{bench.namespace}/pods/first-0$"
    with proxy.breaking(Fault(WATCH, PODS, Lose(b'"nodeName"'), times=None)) as deaf:
        eventually("the watch is deaf", lambda: deaf.struck, seconds=20)
        with (
            proxy.breaking(Fault("POST", BINDING, Cut(delivered=True), times=None)) as lost,
            proxy.breaking(Fault("GET", one_pod, Cut(delivered=False), times=None)) as unread,
        ):
            bench.pod("first-0", "0=node1:0\n", "0")
            eventually("neither write nor look is answered", lambda: lost.struck and unread.struck, seconds=20)
            bench.pod("rival-0", "0=node1:0\n1=node1:1\n", "0")
            bench.wait_message("rival-0", "GpuHeld: ", seconds=20)
            eventually("it was tried again and again", lambda: len(lost.struck) > 3, seconds=20)
            assert bench.node_of("rival-0") == ""
        bench.wait_event("first-0", "Scheduled")
        assert bench.node_of("rival-0") == ""
    bench.delete("first-0")
    bench.wait_bound("rival-0", "node1", seconds=20)


REFUSED: Final = {
    "429": Answer(429),
    "500": Answer(500),
    "503": Answer(503),
    "409": Answer(409),
    "403": Answer(403),
}
"""Answers to a bind that did nothing."""


@pytest.mark.parametrize("act", REFUSED.values(), ids=REFUSED)
def test_a_refused_bind_is_tried_again(bench: Bench, proxy: FaultProxy, far: Command, act: Act) -> None:
    """F3. Twice refused, the third is accepted; no more than one attempt a back-off."""
    bench.node("node1")
    with proxy.breaking(Fault("POST", f"{bench.namespace}{BINDING}", act, times=2)) as fault:
        bench.pod("asker-0", "0=node1:0\n", "0")
        bench.wait_bound("asker-0", "node1", seconds=20)

    assert len(fault.struck) == 2
    assert proxy.count("POST", f"{bench.namespace}{BINDING}") == 3


@pytest.mark.parametrize("status", [429, 503])
def test_patience_that_is_asked_for_is_given(bench: Bench, proxy: FaultProxy, far: Command, status: int) -> None:
    """F3. Retry-After is longer than the longest back-off here: that pod's next bind is no sooner, others go on."""
    bench.node("node1")
    binds = f"{bench.namespace}/pods/asker-0/binding$"
    with proxy.breaking(Fault("POST", binds, Answer(status, (("Retry-After", "2"),)))):
        bench.pod("asker-0", "0=node1:0\n", "0")
        bench.pod("other-0", "0=node1:1\n", "1")
        bench.wait_bound("other-0", "node1", seconds=1.5)
        bench.wait_bound("asker-0", "node1", seconds=20)

    first, second = proxy.times("POST", binds)
    assert second - first >= 2


@pytest.mark.parametrize("status", [404, 410])
def test_a_bind_of_a_pod_that_is_gone_costs_one_try(bench: Bench, proxy: FaultProxy, far: Command, status: int) -> None:
    """F3. Whoever hears that the pod is gone holds nothing for it; where it is there all the same it is tried again."""
    bench.node("node1")
    with proxy.breaking(Fault("POST", f"{bench.namespace}{BINDING}", Answer(status))):
        bench.pod("asker-0", "0=node1:0\n", "0")
        bench.wait_bound("asker-0", "node1", seconds=20)
    assert proxy.count("POST", f"{bench.namespace}{BINDING}") == 2


def test_a_refusal_that_lasts_is_no_storm(bench: Bench, proxy: FaultProxy, far: Command) -> None:
    """F3. Three seconds of 500: binds double their distance up to the longest, one condition and one event are told."""
    bench.node("node1")
    binds = f"{bench.namespace}{BINDING}"
    with proxy.breaking(Fault("POST", binds, Answer(500), times=None)) as fault:
        bench.pod("asker-0", "0=node1:0\n", "0")
        eventually("six tries", lambda: len(fault.struck) == 6, seconds=20)
    bench.wait_bound("asker-0", "node1", seconds=20)

    gaps = [later - sooner for sooner, later in pairwise(proxy.times("POST", binds))]
    assert all(gap >= least for gap, least in zip(gaps, (0.2, 0.4, 0.8, 1, 1), strict=False)), gaps
    bench.wait_event("asker-0", "Scheduled")
    assert [event["reason"] for event in bench.events("asker-0")].count("FailedScheduling") == 1


def test_a_decision_never_lands_on_the_next_pod_of_that_name(bench: Bench, proxy: FaultProxy, far: Command) -> None:
    """F4. Between decision and bind the pod is deleted and made anew, with another line: it gets its own."""
    bench.node("node1")
    with proxy.breaking(Fault("POST", BINDING, Delay(CALL_TIMEOUT))) as fault:
        bench.pod("train-0", "0=node1:0\n", "0")
        eventually("the bind is on its way", lambda: fault.struck)
        bench.delete("train-0")
        bench.pod("train-0", "0=node1:5\n", "5")
        assert bench.placed("train-0", 20).devices == "5"

    bench.pod("next-0", "0=node1:0\n1=node1:1\n", "0")
    bench.wait_bound("next-0", "node1")


def test_a_decision_is_dropped_when_the_next_pod_of_that_name_waits(
    bench: Bench, proxy: FaultProxy, far: Command
) -> None:
    """F4. The old bind arrives while the new pod has no node yet: its uid is another, and it stays where it is."""
    bench.node("node1")
    with proxy.breaking(Fault("POST", BINDING, Delay(CALL_TIMEOUT))) as fault:
        bench.pod("train-0", "0=node1:0\n", "0")
        eventually("the bind is on its way", lambda: fault.struck)
        bench.delete("train-0")
        bench.pod("train-0", "0=node2:5\n", "5")
        bench.wait_message("train-0", "NodeNotFound: ")
    bench.node("node2")
    assert bench.placed("train-0", 20).devices == "5"


def test_silent_tellings_starve_no_bind(bench: Bench, proxy: FaultProxy, far: Command) -> None:
    """No status and no event is answered: who waits is told later, who can be placed is placed at once."""
    bench.node("node1")
    silent = Hang(delivered=False)
    with (
        proxy.breaking(Fault("PATCH", STATUS, silent, times=None)) as conditions,
        proxy.breaking(Fault("POST", EVENTS, silent, times=None)) as events,
    ):
        for number in range(8):
            bench.pod(f"waits{number}-0", f"0=later:{number}\n", str(number))
        eventually("conditions hang", lambda: conditions.struck)
        for number in range(40):
            bench.pod(f"goes{number}-0", f"0=node1:{number}\n", str(number))
        eventually("all are bound", lambda: bench.count_bound() == 40, seconds=3)
        eventually("events hang too", lambda: events.struck, seconds=20)
        # Who is being told this very moment is placed as soon as that is over.
        bench.node("later")
        eventually("all are bound", lambda: bench.count_bound() == 48, seconds=CALL_TIMEOUT + 5)
    bench.wait_event("goes39-0", "Scheduled")


def test_an_event_that_is_refused_is_dropped(bench: Bench, proxy: FaultProxy, far: Command) -> None:
    """Events are news: three tries each, and what comes afterwards is told as ever."""
    events = f"{bench.namespace}{EVENTS}"
    with proxy.breaking(Fault("POST", events, Answer(503), times=None)) as fault:
        bench.pod("waits-0", "0=node1:0\n", "0")
        bench.wait_message("waits-0", "NodeNotFound: ")
        eventually("three tries", lambda: len(fault.struck) == 3, seconds=20)
        bench.pod("waits-1", "1=node1:1\n", "1")
        eventually("six tries", lambda: len(fault.struck) == 6, seconds=20)
    bench.node("node1")
    bench.wait_event("waits-0", "Scheduled")
    assert [event["reason"] for event in bench.events("waits-0")] == ["Scheduled"]


REFUSING: Final = {
    "a bind": ("POST", BINDING),
    "a renewal": ("PUT", LEASE),
    "a watch": (WATCH, PODS),
    "a list": ("GET", PODS),
    "a condition": ("PATCH", STATUS),
}


@pytest.mark.parametrize("refused", REFUSING.values(), ids=REFUSING)
def test_a_token_that_is_refused_is_read_again(
    plane: ControlPlane, bench: Bench, proxy: FaultProxy, far: Command, refused: tuple[str, str]
) -> None:
    """Whichever call hears 401 first: the file is read again, and what it has now serves them all. The lead stays."""
    bench.node("node1")
    file = far.process.log.with_suffix(".kubeconfig")
    old = json.loads(file.read_text())["users"][0]["user"]["token"]
    plane.kubeconfig(file, plane.service_account_token(SYSTEM_NAMESPACE, "gpu-scheduler"), proxy.port)
    with ExitStack() as faults:
        fault = faults.enter_context(proxy.breaking(Fault(*refused, Answer(401), times=None, bearer=old)))
        if refused[0] == "GET":
            # Nobody lists without a reason.
            faults.enter_context(proxy.breaking(Fault(WATCH, PODS, Answer(410))))
        bench.pod("waits-0", "0=later:0\n", "0")
        bench.pod("goes-0", "0=node1:1\n", "1")
        bench.wait_bound("goes-0", "node1", seconds=20)
        bench.wait_message("waits-0", "NodeNotFound: ", seconds=20)
        eventually("it was refused", lambda: fault.struck, seconds=20)
    bench.pod("after-0", "0=node1:2\n", "2")
    bench.wait_bound("after-0", "node1", seconds=20)
    assert far.leads()
