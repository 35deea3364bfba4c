"""The messages of docs/reasons.md, from the table of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests import messages
from tests.contracts.roles import ROOT
from tests.pages.parts import Page

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMESPACE: Final = "ml"
SINCE: Final = "2026-11-25T10:00:00Z"


def pages() -> Iterator[Page]:
    """Yield the page, with a part for each reason that has a message."""
    parts: dict[str, list[str]] = {}
    for name in messages.SHOWN:
        text = messages.text_of(name, ns=NAMESPACE, since=SINCE)
        parts.setdefault(text.partition(":")[0], []).append(text)
    yield Page(ROOT / "docs/reasons.md", {reason: ("```text", *lines, "```") for reason, lines in parts.items()})
