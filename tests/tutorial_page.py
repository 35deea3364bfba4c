"""Reads docs/tutorial.md: what it types, and what it shows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = ROOT / "docs" / "tutorial.md"
_STEP: Final = re.compile(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
_CHANGING: Final = re.compile(r"\d+(?:ms|s)\b")
"""Ages, in a page and in an output."""
_NAMES: Final = re.compile(r"[A-Z]\w+(?=:)|\S*[\d/\"]\S*")


def steps(*left_out: str) -> Iterator[tuple[str, str | None]]:
    """Yield the commands of each block but those that begin so, and what the page shows right below, if anything."""
    others = re.compile(rf"^(?:{'|'.join(map(re.escape, left_out))}) .*\n", re.MULTILINE)
    for found in _STEP.finditer(PAGE.read_text(encoding="utf-8")):
        typed = others.sub("", found[1])
        if typed:
            yield typed, found[2]


def script(commands: str, folder: str) -> str:
    """Return a script of bash that types a block in the folder. What a block exports, the next ones read."""
    return f"cd {folder}; test ! -e exported || . ./exported\n{commands}\nexport -p | grep IMAGE >exported"


def agrees(shown: str, printed: str) -> bool:
    """Whether a command printed what the page shows.

    A line of the page that ends with `…` shows the beginning of a message: of it, only the reason and the names count,
    which are its words with a digit, a slash or a quotation mark.
    """
    lines, others = collapsed(shown).splitlines(), collapsed(printed).splitlines()
    return len(lines) == len(others) and all(map(_line_agrees, lines, others))


def _line_agrees(shown: str, printed: str) -> bool:
    if not shown.endswith(" …"):
        return shown == printed
    names = _NAMES.findall(shown)
    return names == _NAMES.findall(printed)[: len(names)]


def collapsed(text: str) -> str:
    """Return the text without ages, and without the widths of its columns."""
    return "\n".join(" ".join(line.split()) for line in _CHANGING.sub("AGE", text).strip().splitlines())
