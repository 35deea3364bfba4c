"""docs/reasons.md has an entry for each reason, with messages that the code writes; docs/alerts.md is alike."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import pytest

from gpu_scheduler.core.reasons import RANKING, REFUSED_AT_ADMISSION, Reason
from tests.contracts.roles import ROOT
from tests.integration.test_feasibility import CASES
from tests.messages import text_of
from tests.pages.reasons import NAMESPACE, SINCE

ENTRY: Final = re.compile(
    r"\n(?:<!-- .+\n```text\n(?P<messages>(?:.+\n)+)```\n<!-- .+\n\n)?"
    r"(?P<meaning>(?:(?!```).+\n)+)\n"
    r"```sh\n(?P<command>.+)\n```\n\n"
    r"\*\*Remedy\*\*: (?P<remedy>(?:.+\n)+)"
)


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


def test_each_reason_has_one_entry() -> None:
    """In the order in which reasons are reported."""
    assert list(REASONS) == list(dict.fromkeys(str(reason) for reason, _ in RANKING))
    assert [heading for heading, texts in REASONS.items() if len(texts) > 1] == []


@pytest.mark.promise("text-17")
@pytest.mark.parametrize("reason", REASONS)
def test_an_entry_has_messages_a_meaning_one_command_and_a_remedy(reason: str) -> None:
    """`make fmt` writes the messages, from the table that test_messages.py compares with the code."""
    messages = read(REASONS[reason][0]).messages

    assert messages
    assert {message.partition(":")[0] for message in messages} == {reason}


def test_a_reason_with_two_ranks_has_a_message_of_each() -> None:
    """What no waiting cures reads otherwise than what passes."""
    ranks = {text_of(case.entry, ns=NAMESPACE, since=SINCE): case.ranked_reason for case in CASES}
    twice = {reason for reason, beyond in RANKING if beyond}

    for reason in twice:
        shown = {ranks[text] for text in read(REASONS[reason][0]).messages if text in ranks}
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
