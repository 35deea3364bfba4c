"""The storage of the API server in memory: objects with versions, the log of changes, and the watches that get them.

Objects are kept as dictionaries and as the bytes that are sent, so that each change is encoded once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Object = dict[str, Any]
Fields = tuple[str, ...]

MEMORY: Final = 4000
"""How many changes of a kind are kept for watches that begin at an earlier version."""
POD_FIELDS: Final = ("metadata.name", "spec.schedulerName", "spec.nodeName", "status.phase")
"""The fields of a pod that a selector may name. For all other kinds, only the first one."""

_ADDED: Final = b'{"type":"ADDED","object":'
_MODIFIED: Final = b'{"type":"MODIFIED","object":'
_DELETED: Final = b'{"type":"DELETED","object":'
_END: Final = b"}\n"


class ExpiredVersionError(Exception):
    """A watch asks for a version that is compacted."""


@dataclass(slots=True)
class Entry:
    """One object as it is now."""

    object: Object
    raw: bytes
    fields: Fields


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one object. `before` is None if the object is new, `after` is None if it is deleted."""

    version: int
    before: Fields | None
    after: Fields | None
    raw: bytes
    key: str


class Selector:
    """The objects that a list or a watch asks for."""

    def __init__(self, text: str) -> None:
        """Parse `field=value,field!=value`; empty takes all."""
        self._terms = []
        for term in filter(None, text.split(",")):
            field, differs, value = term.partition("!=")
            if not differs:
                field, _, value = term.partition("=")
            self._terms.append((POD_FIELDS.index(field), value, not differs))

    def takes(self, fields: Fields | None) -> bool:
        """Whether an object with these fields matches; None for no object."""
        return fields is not None and all((fields[at] == value) is same for at, value, same in self._terms)


class Collection:
    """All objects of one kind, by namespace and name."""

    def __init__(self, versions: Iterator[int]) -> None:
        """`versions` are those of the whole server."""
        self._versions = versions
        self.version = next(versions)
        self.entries: dict[str, Entry] = {}
        self._changes: deque[Change] = deque(maxlen=MEMORY)
        self._forgotten = 0
        self.watchers: list[Callable[[Change], None]] = []
        """Callbacks for each change, in the order of registration."""

    def put(self, key: str, made: Object) -> None:
        """Create or replace the object."""
        before = self.entries.get(key)
        self.version = next(self._versions)
        made["metadata"]["resourceVersion"] = str(self.version)
        entry = self.entries[key] = Entry(made, msgspec.json.encode(made), fields_of(made))
        self._notify(Change(self.version, None if before is None else before.fields, entry.fields, entry.raw, key))

    def remove(self, key: str) -> None:
        """Delete the object; watches get its last state."""
        entry = self.entries.pop(key)
        self.version = next(self._versions)
        entry.object["metadata"]["resourceVersion"] = str(self.version)
        self._notify(Change(self.version, entry.fields, None, msgspec.json.encode(entry.object), key))

    def forget(self) -> None:
        """Compact: no watch can continue from an earlier version."""
        self._changes.clear()
        self._forgotten = self.version

    def since(self, version: int) -> list[Change]:
        """Give the changes after that version; ExpiredVersionError if they are compacted."""
        oldest = self._changes[0].version if len(self._changes) == MEMORY else 0
        if version < self._forgotten or version < oldest:
            raise ExpiredVersionError
        return [change for change in self._changes if change.version > version]

    def _notify(self, change: Change) -> None:
        self._changes.append(change)
        for notify in tuple(self.watchers):
            notify(change)


def fields_of(made: Object) -> Fields:
    """Return the values of POD_FIELDS."""
    spec, status = made.get("spec") or {}, made.get("status") or {}
    return (
        made["metadata"]["name"],
        spec.get("schedulerName", ""),
        spec.get("nodeName", ""),
        status.get("phase", ""),
    )


def event_of(change: Change, selector: Selector) -> bytes | None:
    """Give the change as a watch with this selector gets it: an object that no longer matches is deleted."""
    before, after = selector.takes(change.before), selector.takes(change.after)
    if after:
        return (_MODIFIED if before else _ADDED) + change.raw + _END
    return _DELETED + change.raw + _END if before else None


def bookmark(version: int) -> bytes:
    """Give a bookmark: everything up to this version was sent."""
    return b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d"}}}\n' % version


def key_of(made: Object) -> str:
    """Return the key of an object, namespace/name."""
    meta = made["metadata"]
    return f"{meta.get('namespace', '')}/{meta['name']}"
