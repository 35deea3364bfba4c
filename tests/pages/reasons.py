"""The messages of docs/reasons.md and docs/device-plugin.md, from the table of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests import messages
from tests.contracts.roles import ROOT
from tests.pages.parts import Page

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMESPACE: Final = "ml"
SINCE: Final = "2026-11-25T10:00:00Z"
CLAIM: Final = "gpu-scheduler-c3f4aec860cdf1f93eb7fd826cf750e5"
OF_A_PLUGIN: Final = {
    "a held GPU": "a pod that names a device waits for a pod with one of the device plugin",
    "too few GPUs": "devices of the device plugin are counted",
}
"""The parts of docs/device-plugin.md, and their messages."""


def pages() -> Iterator[Page]:
    """Yield both pages; docs/reasons.md has a part for each reason."""
    parts: dict[str, list[str]] = {}
    for name in messages.SHOWN:
        text = messages.text_of(name, ns=NAMESPACE, since=SINCE, claim=CLAIM)
        parts.setdefault(text.partition(":")[0], []).append(text)
    yield _page("docs/reasons.md", parts)
    of_a_plugin = {part: [messages.text_of(name, ns="default")] for part, name in OF_A_PLUGIN.items()}
    yield _page("docs/device-plugin.md", of_a_plugin)


def _page(name: str, parts: dict[str, list[str]]) -> Page:
    return Page(ROOT / name, {part: ("```text", *lines, "```") for part, lines in parts.items()})
