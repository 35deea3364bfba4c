"""Puts text that is made into a page, between two comments. What is outside of them is written by hand."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.columns import NONE, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from bench.medians import CellMedians, Medians

BEGIN: Final = "<!-- {}: written by make fmt -->"
END: Final = "<!-- end of what make fmt writes -->"
_NAME: Final = "([A-Za-z -]+)"
_PART: Final = re.compile(rf"^{BEGIN.format(_NAME)}\n.*?^{END}$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Page:
    """A page, and the lines of its parts by their names."""

    path: Path
    parts: Mapping[str, Sequence[str]]

    def written(self, text: str) -> str:
        """Return the page's text with its parts as they are now.

        ValueError if a part has no place in the text, or a place has no part.
        """
        places = _PART.findall(text)
        if sorted(places) != sorted(self.parts):
            raise ValueError(f"{self.path} has places for {places}, but its parts are {list(self.parts)}")
        return _PART.sub(lambda found: "\n".join((BEGIN.format(found[1]), *self.parts[found[1]], END)), text)


def measured(found: Medians) -> str:
    """Return the line that says when, at which commit and on which machine it was measured."""
    machine = f"{found.machine.processor}, {found.machine.cores} cores"
    return f"Measured {found.began[:10]} at commit `{found.commit}`: {machine}."


def medians_of(cell: CellMedians, shown: Iterable[str]) -> Iterator[str]:
    """Yield the medians of these figures, as numbers for people."""
    figures = (cell.figures.get(figure) for figure in shown)
    return (NONE if each is None else number(each.median) for each in figures)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table. A bar within a cell is written with a backslash."""
    yield _line(head)
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield _line([cell.replace("|", "\\|") for cell in row])


def code(text: str) -> str:
    """Return the text as code; nothing for no text."""
    return f"`{text}`" if text else ""


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
