"""Reads docs/sources.md: the commands of the five sources, ours, and how each is known to work."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "sources.md"
HEAD: Final = ["theirs", "ours", "how it is known"]
RUN: Final = "run"
ELSEWHERE: Final = "run elsewhere: "
SAME: Final = "the same"
ANYTHING: Final = "…"

_SECTION: Final = re.compile(r"^## (.*)$", re.MULTILINE)
_BLOCK: Final = re.compile(r"^### ([^\n]*)\n\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# A bar within a cell is written with a backslash.
_BAR: Final = re.compile(r"(?<!\\)\|")
_COMMAND: Final = re.compile(r"`([^`]+)`(?: with \[[^]]*\]\(#([\w-]+)\))?")
_STATUS: Final = re.compile(
    r"(?P<status>run elsewhere: `[^`]+`|run|needs [^.]+)"
    r"(?P<prints>, prints `[^`]+`(?:, `[^`]+`)*)?"
    r"(?:; [^.]+)?"
    r"(?:\. Theirs cannot hold: (?P<reason>.+))?"
)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table: their commands, ours, how they are known to work, and what ours print."""

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    status: str
    prints: tuple[str, ...]
    reason: str

    @property
    def script(self) -> str:
        """What a reader types, for bash."""
        return "".join(f"{command}\n" for command in self.ours)

    @property
    def elsewhere(self) -> str:
        """The suite or the test that runs the row; empty if none is named."""
        return self.status.removeprefix(ELSEWHERE).strip("`") if self.status.startswith(ELSEWHERE) else ""

    def missing(self, output: str) -> list[str]:
        """Return what the row says that is not in the output. Amounts of white space do not count."""
        return [text for text in self.prints if not re.search(_pattern(text), output)]


def read(text: str | None = None) -> dict[str, list[Row]]:
    """Return source → rows of its table."""
    text = PAGE.read_text(encoding="utf-8") if text is None else text
    blocks = {anchor(heading): body for heading, body in _BLOCK.findall(text)}
    sections = _SECTION.split(text)[1:]
    tables = {title: body for title, body in zip(sections[::2], sections[1::2], strict=True) if "\n| theirs |" in body}
    return {title: _rows(body, blocks) for title, body in tables.items()}


def anchor(heading: str) -> str:
    """Return the anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")


def _rows(table: str, blocks: Mapping[str, str]) -> list[Row]:
    lines = [_cells(line) for line in table.splitlines() if line.startswith("|")]
    assert lines[0] == HEAD, lines[0]
    return [_row(cells, blocks) for cells in lines[2:]]


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in _BAR.split(line)[1:-1]]


def _row(cells: list[str], blocks: Mapping[str, str]) -> Row:
    left, right, known = cells
    found = _STATUS.fullmatch(known)
    assert found, f"cannot read {known!r} of the row of {left!r} (example: run, prints `yes`)"
    theirs = _commands(left, blocks)
    ours = theirs if right == SAME else _commands(right, blocks)
    prints = tuple(re.findall(r"`([^`]+)`", found["prints"] or ""))
    return Row(theirs, ours, found["status"], prints, found["reason"] or "")


def _commands(cell: str, blocks: Mapping[str, str]) -> tuple[str, ...]:
    """Return the commands of a cell. One with a link has the linked block as its here-document."""
    return tuple(f"{command}\n{blocks[link]}EOF" if link else command for command, link in _COMMAND.findall(cell))


def _pattern(text: str) -> str:
    parts = [r"\s+".join(map(re.escape, part.split())) for part in text.split(ANYTHING)]
    return r"[^\n]*?".join(parts)
