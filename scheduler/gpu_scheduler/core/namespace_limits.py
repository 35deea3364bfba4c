"""The operator's limits of a namespace: how many devices its pods may hold, and their highest priority.

LAW: this module reads text and returns values. If a text has faults, the caller decides which limits apply.
"""

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import field
from typing import Final

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.pods.count_request import MAX_PRIORITY
from gpu_scheduler.core.text import quote

EXAMPLE: Final = "team-a: devices=8 priority=1000"
EVERY_OTHER: Final = "*"
"""The namespace of the line that holds for all namespaces without a line of their own."""

_UNLIMITED: Final = "unlimited"
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DEVICES: Final = re.compile(r"0|[1-9][0-9]{0,5}")
_PRIORITY: Final = re.compile(r"0|-?[1-9][0-9]{0,9}")


@immutable
class Limit:
    """The limits of one namespace. None means no limit."""

    devices: int | None = None
    priority: int | None = None
    readable: bool = True
    """False if its line cannot be read. Then its pods get no further devices."""


@immutable
class NamespaceLimits:
    """The limits of all namespaces."""

    lines: Mapping[str, Limit] = field(default_factory=dict, hash=False)
    """By namespace. A limit that a line leaves out is already taken from the line `*`."""
    others: Limit = Limit()
    """The limits of all namespaces without a line."""

    def of(self, namespace: str) -> Limit:
        """Return the limits of this namespace."""
        return self.lines.get(namespace, self.others)

    def priority(self, namespace: str, asked: int) -> int:
        """Return the priority `asked` of a pod of this namespace, but at most the namespace's limit."""
        most = self.of(namespace).priority
        return asked if most is None else min(asked, most)


NO_LIMITS: Final = NamespaceLimits()


class _LineError(ValueError):
    """A line cannot be read. `str()` says why."""


def parse_limits(text: str) -> tuple[NamespaceLimits, tuple[str, ...]]:
    """Parse one line for each namespace. Return the limits, and every fault with the number of its line.

    If there are faults, the other lines still apply. A namespace whose own line cannot be read gets no further devices.
    A line that cannot be read is ignored if it is the line `*` or has no valid name of a namespace.
    """
    written: dict[str, dict[str, int | None]] = {}
    seen: set[str] = set()
    unreadable: set[str] = set()
    faults: list[str] = []
    for number, line in _lines(text):
        namespace = line.partition(":")[0].strip()
        try:
            written[namespace] = _read(line, seen)
        except _LineError as error:
            faults.append(f"line {number}: {error} (example: {EXAMPLE})")
            unreadable.add(namespace)
        seen.add(namespace)
    sound = {namespace: limits for namespace, limits in written.items() if namespace not in unreadable}
    others = sound.pop(EVERY_OTHER, {})
    lines = {namespace: _limit({**others, **limits}) for namespace, limits in sound.items()}
    closed = {name: Limit(0, 0, readable=False) for name in unreadable if _NAMESPACE.fullmatch(name)}
    return NamespaceLimits({**lines, **closed}, _limit(others)), tuple(faults)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        content = line.strip()
        if content and not content.startswith("#"):
            yield number, content


def _read(line: str, seen: Container[str]) -> dict[str, int | None]:
    """Return the limits of one line by word.

    Raise _LineError if it cannot be read, or if its namespace is in `seen`.
    """
    namespace, colon, limits = (part.strip() for part in line.partition(":"))
    if not colon:
        raise _LineError(f"cannot read {quote(line)}: it must begin with a namespace, or *, and a colon")
    if namespace != EVERY_OTHER and not _NAMESPACE.fullmatch(namespace):
        rule = "it must be a namespace's name (lower-case letters, digits and hyphens), or * for all others"
        raise _LineError(f"cannot read namespace {quote(namespace)}: {rule}")
    if namespace in seen:
        raise _LineError(f"cannot read {quote(line)}: {namespace} has a line already, and each has one")
    found: dict[str, int | None] = {}
    for part in limits.split():
        word, _, value = part.partition("=")
        if word in found:
            raise _LineError(f"cannot read {quote(part)}: {word} occurs twice")
        found[word] = _number(part, word, value)
    if not found:
        raise _LineError(f"cannot read {quote(line)}: it must say devices=NUMBER, priority=NUMBER, or both")
    return found


def _number(part: str, word: str, value: str) -> int | None:
    match word:
        case "devices":
            form, rule = _DEVICES, "a number from 0 to 999999, or unlimited"
        case "priority":
            form, rule = _PRIORITY, f"a number from -{MAX_PRIORITY} to {MAX_PRIORITY}, or unlimited"
        case _:
            raise _LineError(f"cannot read {quote(part)}: it must be devices=NUMBER or priority=NUMBER")
    if value == _UNLIMITED:
        return None
    if not form.fullmatch(value) or abs(int(value)) > MAX_PRIORITY:
        raise _LineError(f"cannot read {quote(part)}: {word} must be {rule}")
    return int(value)


def _limit(limits: Mapping[str, int | None]) -> Limit:
    return Limit(limits.get("devices"), limits.get("priority"))
