"""Faults of the scheduler's writes: lost answers, refusals and late answers."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.faults.proxied_replica import BINDING, CALL_TIMEOUT, EVENTS, LEASE, PODS, STATUS
from tests.integration.faults.proxy_faults import WATCH, Act, Answer, Cut, Delay, Fault, Hang, Lose, Truncate, Twice
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.auditor.audit_log import Entry
    from tests.auditor.auditor import Auditor
    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.faults.proxy import FaultProxy
    from tests.integration.namespace import Namespace

pytestmark = pytest.mark.usefixtures("audited")
UNANSWERED: Final = {
    "the answer to a delivered bind is lost": Cut(delivered=True),
    "a bind is lost on its way": Cut(delivered=False),
    "a delivered bind is never answered": Hang(delivered=True),
    "a bind is never answered nor delivered": Hang(delivered=False),
    "a bind is delivered two seconds after its time-out": Delay(CALL_TIMEOUT + 2),
    "a bind is delivered just after its time-out": Delay(CALL_TIMEOUT + 0.1),
    "the answer is cut in its middle": Truncate(),
    "a delivered bind is answered with 500": Answer(500, delivered=True),
    "a delivered bind is answered with 504": Answer(504, delivered=True),
    "a bind is delivered twice": Twice(),
}
"""Faults after which the scheduler cannot know whether the pod is bound."""


@pytest.mark.parametrize("act", UNANSWERED.values(), ids=UNANSWERED)
def test_a_gpu_whose_bind_is_ambiguous_is_not_assigned_again(
    namespace: Namespace, proxy: FaultProxy, proxied: Command, act: Act
) -> None:
    """F2. The pod is bound once, with one event. A rival created meanwhile reports GpuHeld."""
    namespace.node("node1")
    with proxy.breaking(Fault("POST", BINDING, act)):
        namespace.pod("first-0", "0=node1:0\n", "0")
        eventually("a bind was sent", lambda: proxy.count("POST", f"{namespace.name}{BINDING}"))
        namespace.pod("rival-0", "0=node1:0\n1=node1:1\n", "0")
        namespace.wait_bound("first-0", "node1", seconds=20)
        namespace.wait_message("rival-0", "GpuHeld: ", seconds=20)

    namespace.wait_event("first-0", "Scheduled")
    assert namespace.node_of("rival-0") == ""
    assert [event["reason"] for event in namespace.events("first-0")].count("Scheduled") == 1
    namespace.delete("first-0")
    namespace.wait_bound("rival-0", "node1", seconds=20)


def test_a_bind_that_arrives_when_its_pod_has_gone_does_nothing(
    namespace: Namespace, proxy: FaultProxy, proxied: Command, audited: Auditor
) -> None:
    """F2. A second try bound the pod. When the first arrives, the name and the GPU belong to other pods."""
    namespace.node("node1")
    bind = f"{namespace.name}/pods/first-0/binding$"
    with proxy.breaking(Fault("POST", bind, Delay(600))) as fault:
        namespace.pod("first-0", "0=node1:0\n", "0")
        namespace.wait_bound("first-0", "node1", seconds=20)
        assert fault.struck
        namespace.delete("first-0")
        namespace.pod("first-0", "0=node1:5\n", "5")
        namespace.pod("rival-0", "0=node1:0\n1=node1:1\n", "0")
        namespace.wait_bound("rival-0", "node1", seconds=20)
    # At the end of the fault the first bind is delivered, if it was not before: it is the third of this name.
    eventually("the API server has answered it", lambda: len(_binds(audited, f"{namespace.name}/first-0")) == 3)
    assert (namespace.placed("first-0").devices, namespace.placed("rival-0").devices) == ("5", "0")


def _binds(auditor: Auditor, pod: str) -> list[Entry]:
    """Return the answered binds of all pods of this name."""
    return [
        each for each in auditor.log.entries() if each.bind and each.pod == pod and each.stage == "ResponseComplete"
    ]


def test_no_gpu_is_assigned_twice_while_all_answers_are_lost(
    namespace: Namespace, proxy: FaultProxy, proxied: Command
) -> None:
    """F2. The bind's answer, watch events of bound pods and GETs of the pod are lost: the GPU stays held meanwhile."""
    namespace.node("node1")
    one_pod = f"{namespace.name}/pods/first-0$"
    with proxy.breaking(Fault(WATCH, PODS, Lose(b'"nodeName"'), times=None)) as no_answer:
        eventually("the watch loses events", lambda: no_answer.struck, seconds=20)
        with (
            proxy.breaking(Fault("POST", BINDING, Cut(delivered=True), times=None)) as lost,
            proxy.breaking(Fault("GET", one_pod, Cut(delivered=False), times=None)) as unread,
        ):
            namespace.pod("first-0", "0=node1:0\n", "0")
            eventually("neither the bind nor the GET is answered", lambda: lost.struck and unread.struck, seconds=20)
            namespace.pod("rival-0", "0=node1:0\n1=node1:1\n", "0")
            namespace.wait_message("rival-0", "GpuHeld: ", seconds=20)
            eventually("it was tried again and again", lambda: len(lost.struck) > 3, seconds=20)
            assert namespace.node_of("rival-0") == ""
        namespace.wait_event("first-0", "Scheduled")
        assert namespace.node_of("rival-0") == ""
    namespace.delete("first-0")
    namespace.wait_bound("rival-0", "node1", seconds=20)


def test_unanswered_events_and_conditions_delay_no_bind(
    namespace: Namespace, proxy: FaultProxy, proxied: Command
) -> None:
    """No status and no event is answered: pods that fit are bound at once, waiting pods get their condition later."""
    namespace.node("node1")
    silent = Hang(delivered=False)
    with (
        proxy.breaking(Fault("PATCH", STATUS, silent, times=None)) as conditions,
        proxy.breaking(Fault("POST", EVENTS, silent, times=None)) as events,
    ):
        for number in range(8):
            namespace.pod(f"waits{number}-0", f"0=later:{number}\n", str(number))
        eventually("conditions hang", lambda: conditions.struck)
        for number in range(40):
            namespace.pod(f"goes{number}-0", f"0=node1:{number}\n", str(number))
        eventually("all are bound", lambda: namespace.count_bound() == 40)
        eventually("events hang too", lambda: events.struck, seconds=20)
        # A pod whose status is being written is bound as soon as that call has timed out.
        namespace.node("later")
        eventually("all are bound", lambda: namespace.count_bound() == 48, seconds=CALL_TIMEOUT + 5)
    namespace.wait_event("goes39-0", "Scheduled")


REFUSING: Final = {
    "a bind": ("POST", BINDING),
    "a renewal": ("PUT", LEASE),
    "a watch": (WATCH, PODS),
    "a list": ("GET", PODS),
    "a condition": ("PATCH", STATUS),
}


@pytest.mark.parametrize("refused", REFUSING.values(), ids=REFUSING)
def test_a_token_that_is_refused_is_read_again(
    plane: ControlPlane, namespace: Namespace, proxy: FaultProxy, proxied: Command, refused: tuple[str, str]
) -> None:
    """Whichever call gets 401 first, the file is read again and all calls use the new token. The replica leads on."""
    namespace.node("node1")
    file = proxied.process.log.with_suffix(".kubeconfig")
    old = json.loads(file.read_text())["users"][0]["user"]["token"]
    plane.kubeconfig(file, plane.service_account_token(SYSTEM_NAMESPACE, "gpu-scheduler"), proxy.port)
    with ExitStack() as faults:
        fault = faults.enter_context(proxy.breaking(Fault(*refused, Answer(401), times=None, bearer=old)))
        if refused[0] == "GET":
            # The scheduler lists only after a watch has failed.
            faults.enter_context(proxy.breaking(Fault(WATCH, PODS, Answer(410))))
        namespace.pod("waits-0", "0=later:0\n", "0")
        namespace.pod("goes-0", "0=node1:1\n", "1")
        namespace.wait_bound("goes-0", "node1", seconds=20)
        namespace.wait_message("waits-0", "NodeNotFound: ", seconds=20)
        eventually("it was refused", lambda: fault.struck, seconds=20)
    namespace.pod("after-0", "0=node1:2\n", "2")
    namespace.wait_bound("after-0", "node1", seconds=20)
    assert proxied.leads()
