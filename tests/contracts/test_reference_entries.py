"""docs/reasons.md has an entry for each reason, with messages that the code writes; docs/alerts.md is alike."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pytest

from gpu_scheduler.core.claim_allocation import gpus_asked
from gpu_scheduler.core.decision import Refuse, Wait
from gpu_scheduler.core.filters.environment import BY_FIELD
from gpu_scheduler.core.filters.gpu_filters import gpu_in_service
from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim, AllocatedClaims
from gpu_scheduler.core.nodes.cordons import Cordon
from gpu_scheduler.core.nodes.device_pools import DevicePools
from gpu_scheduler.core.nodes.inventory import Device, Inventory
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.container_env import ContainerClaims
from gpu_scheduler.core.pods.own_claim import OwnClaim
from gpu_scheduler.core.reasons import RANKING, REFUSED_AT_ADMISSION, Reason, Unschedulable
from tests.contracts.roles import ROOT
from tests.integration.test_feasibility import CASES
from tests.objects import gpu
from unit_tests.core.build import (
    KEEP,
    POLICY,
    ROOM,
    claimed,
    container,
    decided,
    device_id,
    isolated,
    ledger,
    nodes,
    pod,
)
from unit_tests.scheduler.test_claim_allocator import failed

if TYPE_CHECKING:
    from collections.abc import Iterator

QUOTA: Final = Reason.QUOTA_EXCEEDED
OWN_CLAIM: Final = "gpu-scheduler-c3f4aec860cdf1f93eb7fd826cf750e5"
NAMESPACE: Final = "ml"
SINCE: Final = "2026-11-25T10:00:00Z"
ENTRY: Final = re.compile(
    r"\n(?:```text\n(?P<messages>(?:.+\n)+)```\n\n)?"
    r"(?P<meaning>(?:(?!```).+\n)+)\n"
    r"```sh\n(?P<command>.+)\n```\n\n"
    r"\*\*Remedy\*\*: (?P<remedy>(?:.+\n)+)"
)
ALERT: Final = "\nIt means this.\n\n```sh\nkubectl get nodes\n```\n\n**Remedy**: Wait.\n"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: messages as the scheduler writes them, and a command that shows more."""

    messages: tuple[str, ...]
    command: str


def entries(page: str) -> dict[str, list[str]]:
    """Return heading → the texts under it. A heading that stands twice has two."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found: dict[str, list[str]] = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        found.setdefault(heading, []).append(body)
    return found


def read(text: str) -> Entry:
    """Return the entry. It has a meaning, one command and a remedy, and nothing else."""
    found = ENTRY.fullmatch(f"{text.rstrip()}\n")
    assert found, f"an entry is messages, what they mean, one command and its remedy: {text}"
    return Entry(tuple((found["messages"] or "").splitlines()), found["command"])


REASONS: Final = entries("reasons.md")
ORDER: Final = REASONS.pop("Which one is reported")
ALERTS: Final = entries("alerts.md")


def written() -> set[str]:
    """Return the messages that the scheduler writes in the tests, in the namespace of the page."""
    cordoned = gpu_in_service(
        ["0"],
        Node(
            "node1",
            inventory=Inventory((Device(0, gpu(0)),)),
            cordons=(Cordon(gpu(0), 0, "Xid 79, ticket 4711", "alice", SINCE),),
        ),
        plugin_chooses=False,
    )
    assert cordoned is not None
    claims = (
        failed(f"{OWN_CLAIM}: it has another spec than this scheduler writes; delete it").message,
        failed(f'HTTP 403: resourceclaims.resource.k8s.io "{OWN_CLAIM}" is forbidden: exceeded quota', QUOTA).message,
        *_of_claims(),
    )
    filled = (case.message.replace("{ns}", NAMESPACE).replace("{since}", SINCE) for case in CASES)
    return {cordoned.message, *claims, *filled}


def _of_claims() -> Iterator[str]:
    """Yield messages about ResourceClaims."""
    known = nodes(Node("node1", inventory=Inventory((Device(0, gpu(0)),)), allocatable=ROOM))
    held = AllocatedClaim(NAMESPACE, "training", "1", (device_id("node1", gpu(0)),))
    plain = pod("train-0", "0=node1:0", namespace=NAMESPACE)
    with_claims = isolated("train-0", "0=node1:0", namespace=NAMESPACE)
    wrong = isolated("train-0", "0=node1:0", namespace=NAMESPACE, resource_claims=("gpu-scheduler-mine",))
    keeping = pod("train-0", "0=node1:0", namespace=NAMESPACE, wants_claims=True, annotations=KEEP)
    uncounted = nodes(Node("node1", allocatable=ROOM))
    for decision in (
        decided(plain, claimed(ledger(known=known), known, held), known),
        decided(
            with_claims, ledger(known=known), known, replace(POLICY, reads_claims=True), published=nodes(Node("node2"))
        ),
        decided(with_claims, ledger(known=uncounted), uncounted),
        decided(wrong, ledger(known=known), known),
    ):
        assert isinstance(decision, Wait | Refuse)
        yield decision.message
    assert keeping.request.fault is not None
    yield keeping.request.fault.message
    used = container(BY_FIELD, claims=ContainerClaims(("gpu",), has_resources=True))
    bringing = pod("train-0", None, namespace=NAMESPACE, containers=(used,), own_claim=OwnClaim("gpu", "mine"))
    claims = AllocatedClaims(DevicePools())
    for _ in range(2):
        found = gpus_asked(bringing, claims, replace(POLICY, reads_claims=True))
        assert isinstance(found, Unschedulable)
        yield found.message
        claims.apply(AllocatedClaim(NAMESPACE, "mine", "1", unread="spec.devices.constraints is not read"))


def test_each_reason_has_one_entry() -> None:
    """In the order in which reasons are reported."""
    assert list(REASONS) == list(dict.fromkeys(str(reason) for reason, _ in RANKING))
    assert [heading for heading, texts in REASONS.items() if len(texts) > 1] == []


@pytest.mark.promise("text-17")
@pytest.mark.parametrize("reason", REASONS)
def test_each_message_of_an_entry_is_one_that_the_scheduler_writes(reason: str) -> None:
    """Word for word. The messages of the tests are what a scheduler on a real API server wrote."""
    messages = read(REASONS[reason][0]).messages

    assert messages
    assert [message for message in messages if message not in written()] == []
    assert {message.partition(":")[0] for message in messages} == {reason}


def test_a_reason_with_two_ranks_has_a_message_of_each() -> None:
    """What no waiting cures reads otherwise than what passes."""
    ranks = {case.message.replace("{ns}", NAMESPACE): case.ranked_reason for case in CASES}
    twice = {reason for reason, beyond in RANKING if beyond}

    for reason in twice:
        shown = {ranks[message] for message in read(REASONS[reason][0]).messages if message in ranks}
        assert shown == {(reason, True), (reason, False)}


@pytest.mark.promise("text-9")
def test_the_order_of_the_page_is_the_ranking() -> None:
    """Message, metric and page use one closed list. The page has the order in which reasons are reported."""
    shown = re.findall(r"\[`(\w+)`\]\(#(\w+)\)(, more than there is)?", ORDER[0])

    assert [(reason, bool(beyond)) for reason, _, beyond in shown] == [
        (str(reason), beyond) for reason, beyond in RANKING
    ]
    assert all(anchor == reason.lower() for reason, anchor, _ in shown)
    assert {reason for reason, _ in RANKING} == set(Reason)


def test_the_page_names_what_admission_refuses() -> None:
    """In one sentence."""
    (sentence,) = re.findall(r"^Admission refuses (.*?) if the webhook", ORDER[0], re.MULTILINE | re.DOTALL)

    assert set(re.findall(r"`(\w+)`", sentence)) == {str(reason) for reason in REFUSED_AT_ADMISSION}


def test_the_page_has_each_alert_in_the_order_of_the_rules() -> None:
    """And no other."""
    rules = (ROOT / "roles" / "observability" / "templates" / "rules.yaml.j2").read_text(encoding="utf-8")

    assert list(ALERTS) == re.findall(r"\balert\('(\w+)'", rules)


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_one_entry_with_a_command_and_a_remedy(alert: str) -> None:
    """Its heading is the alert's name, so that the link of the alert leads to it."""
    (text,) = ALERTS[alert]

    assert re.fullmatch(r"Gpu\w+", alert)
    assert read(text).command


@pytest.mark.parametrize(
    "text",
    [
        ALERT.replace("kubectl get nodes\n", "kubectl get nodes\nkubectl get pods\n"),
        ALERT.replace("\n\n**Remedy**: Wait.", ""),
        ALERT.replace("It means this.\n\n", ""),
        f"{ALERT}\nMore.\n",
    ],
    ids=["two commands", "no remedy", "no meaning", "something after the remedy"],
)
def test_an_entry_of_another_form_is_refused(text: str) -> None:
    """Every entry is read in the same way."""
    assert read(ALERT) == Entry((), "kubectl get nodes")
    with pytest.raises(AssertionError, match="an entry is messages"):
        read(text)
