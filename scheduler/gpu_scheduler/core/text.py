"""Sentences for users: whatever a pod's author wrote, what we answer is printable and short.

LAW: texts are quoted by `quote` and cut by `sentence`, and nowhere else.
"""

import re
from functools import lru_cache
from typing import Final

MAX_BYTES: Final = 1000
"""Longest message. The API refuses events whose note exceeds 1,024 bytes; the rest is for who repeats a message."""

_MAX_QUOTED: Final = 60
_ELLIPSIS: Final = "…"
_DIGITS: Final = re.compile(r"0*([0-9]+)")


def quote(text: str) -> str:
    """`text` in double quotes, at most 60 characters of it, with all that is not printable escaped."""
    shown = text[:_MAX_QUOTED]
    if not shown.isprintable() or '"' in shown or "\\" in shown:
        shown = "".join(map(_escape, shown))
    cut = len(text) > _MAX_QUOTED or len(shown) > _MAX_QUOTED
    return f'"{shown[:_MAX_QUOTED]}{_ELLIPSIS if cut else ""}"'


def sentence(word: str, what: str, remedy: str) -> str:
    """`WORD: WHAT; CURE` in at most 1,000 bytes of UTF-8.

    Where that is too long, WHAT is cut first, so that word and cure survive.
    """
    head, tail = f"{word}: ", f"; {remedy}" if remedy else ""
    whole = f"{head}{what}{tail}"
    if len(whole.encode(errors="replace")) <= MAX_BYTES:
        return whole
    room = MAX_BYTES - len(head.encode(errors="replace"))
    tail = _cut(tail, room - len(_ELLIPSIS.encode()))
    return f"{head}{_cut(what, room - len(tail.encode()))}{tail}"


def number_of(number: int, thing: str) -> str:
    """`1 GPU`, `2 GPUs`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


@lru_cache(maxsize=8192)
def natural(name: str) -> str:
    """What names sort by so that numbers in them count as numbers: node2 before node10."""
    return _DIGITS.sub(lambda match: f"{len(match[1]):03}{match[1]}", name)


def _cut(text: str, size: int) -> str:
    data = text.encode(errors="replace")
    if len(data) <= size:
        return data.decode()
    return data[: size - len(_ELLIPSIS.encode())].decode(errors="ignore") + _ELLIPSIS


def _escape(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else character.encode("unicode_escape").decode()
