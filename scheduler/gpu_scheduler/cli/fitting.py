"""Fits columns and texts into a terminal's width. The functions are pure."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def width_of(text: str) -> int:
    """Return how many columns of a terminal the text takes: some characters take two, some none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in {"W", "F"} else 1
        for each in text
    )


def ljust(text: str, width: int) -> str:
    """Return the text with spaces at its end, so that it takes `width` columns."""
    return text + " " * (width - width_of(text))


def fitted(natural: Sequence[int], kinds: Sequence[tuple[int, int]], width: int | None, gap: int) -> list[int | None]:
    """Return the width of each column, or None for one that is left out.

    `natural` are the widths without a limit, `kinds` say of each column how narrow it may become, 0 if it may not, and
    whether it can be spared: the highest number first. If even that does not suffice, no column is narrowed: the
    terminal itself breaks the lines.
    """
    kept = list(range(len(natural)))
    if width is None:
        return list(natural)
    while True:
        room = width - gap * (len(kept) - 1)
        least = sum(min(natural[at], kinds[at][0] or natural[at]) for at in kept)
        spare = max((at for at in kept if kinds[at][1]), key=lambda at: kinds[at][1], default=None)
        if least <= room or spare is None:
            break
        kept.remove(spare)
    widths = {at: natural[at] for at in kept}
    if least <= room:
        widths |= _narrowed(
            {at: (natural[at], kinds[at][0]) for at in kept if kinds[at][0]}, room - _rigid(kept, natural, kinds)
        )
    return [widths.get(at) for at in range(len(natural))]


def _rigid(kept: Sequence[int], natural: Sequence[int], kinds: Sequence[tuple[int, int]]) -> int:
    """Return the width of the columns that cannot become narrower."""
    return sum(natural[at] for at in kept if not kinds[at][0])


def _narrowed(columns: Mapping[int, tuple[int, int]], room: int) -> dict[int, int]:
    """Return widths for these columns, given as (natural width, least width), that take `room` together at most.

    Each gets its least width. The widest ones share what the narrower ones leave.
    """
    widths = {at: min(natural, least) for at, (natural, least) in columns.items()}
    room -= sum(widths.values())
    growing = sorted(columns, key=lambda at: columns[at][0] - widths[at])
    for number, at in enumerate(growing):
        more = min(columns[at][0] - widths[at], room // (len(growing) - number))
        widths[at] += more
        room -= more
    return widths


def wrapped(text: str, width: int) -> list[str]:
    """Return the text as lines of at most `width` columns; a line breaks at spaces, and else inside of a word."""
    return list(_lines(text, width)) if width_of(text) > width else [text]


def _lines(text: str, width: int) -> Iterator[str]:
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if width_of(longer) <= width:
            line = longer
            continue
        if line:
            yield line
        rest = word
        while width_of(rest) > width:
            piece = _piece(rest, width)
            yield piece
            rest = rest[len(piece) :]
        line = rest
    if line:
        yield line


def _piece(word: str, width: int) -> str:
    """Return the beginning of a word that fits; it ends behind a slash, comma or hyphen if there is one."""
    size = len(word)
    while size > 1 and width_of(word[:size]) > width:
        size -= 1
    marks = [found.end() for found in re.finditer("[/,-]", word[:size])]
    return word[: marks[-1] if marks else size]
