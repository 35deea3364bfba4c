"""Sentences for users. They are printable and short, whatever a pod's author wrote.

LAW: only `quote` quotes a text, and only `sentence` shortens a message.
"""

import re
from functools import lru_cache
from typing import Final

MAX_BYTES: Final = 1000
"""Longest message. The API refuses events whose note exceeds 1,024 bytes. The rest is for callers that add a prefix."""

_MAX_QUOTED: Final = 60
_ELLIPSIS: Final = "…"
_IDENTIFIER: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._:]{0,252}")
_DIGITS: Final = re.compile(r"0*([0-9]+)")


def quote(text: str) -> str:
    """Return `text` in double quotes, at most 60 characters of it. Characters that are not printable are escaped."""
    shown = text[:_MAX_QUOTED]
    if not shown.isprintable() or '"' in shown or "\\" in shown:
        shown = "".join(map(_escape, shown))
    cut = len(text) > _MAX_QUOTED or len(shown) > _MAX_QUOTED
    return f'"{shown[:_MAX_QUOTED]}{_ELLIPSIS if cut else ""}"'


def printable(text: str) -> str:
    """Return `text` with every character escaped that is not printable. Line breaks are escaped too."""
    return text if text.isprintable() else "".join(map(_printable, text))


def identifier(text: str) -> str:
    """Return `text` as it is if it can be the name of an object, otherwise quoted: the API server takes any owner."""
    return text if _IDENTIFIER.fullmatch(text) else quote(text)


def sentence(word: str, what: str, remedy: str) -> str:
    """Return `WORD: WHAT; REMEDY` in at most 1,000 bytes of UTF-8.

    If that is too long, WHAT is shortened first, so that word and remedy stay whole. Nothing in it ends a line or
    moves a cursor, whoever wrote it.
    """
    head, what, tail = f"{word}: ", printable(what), printable(f"; {remedy}") if remedy else ""
    whole = f"{head}{what}{tail}"
    if len(whole.encode()) <= MAX_BYTES:
        return whole
    room = MAX_BYTES - len(head.encode())
    tail = _cut(tail, room - len(_ELLIPSIS.encode()))
    return f"{head}{_cut(what, room - len(tail.encode()))}{tail}"


def number_of(number: int, thing: str) -> str:
    """Return a number with its noun: `1 GPU`, `2 GPUs`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


@lru_cache(maxsize=8192)
def natural(name: str) -> str:
    """Return a sort key for `name` that compares numbers as numbers: node2 before node10."""
    return _DIGITS.sub(lambda match: f"{len(match[1]):03}{match[1]}", name)


def _cut(text: str, size: int) -> str:
    data = text.encode()
    if len(data) <= size:
        return data.decode()
    return data[: size - len(_ELLIPSIS.encode())].decode(errors="ignore") + _ELLIPSIS


def _escape(character: str) -> str:
    return f"\\{character}" if character in '"\\' else _printable(character)


def _printable(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
