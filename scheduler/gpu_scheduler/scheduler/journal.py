"""The journal of decisions: a file with a JSON line for each value that was received, and for each decision.

The lines hold what the core read, in order, so that every decision can be reproduced. Each line is written at once: a
crash loses none. When the file reaches its limit or cannot be written, the journal ends, and the scheduler continues
without it. A snapshot is a file of the same lines without decisions.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from gpu_scheduler.core.decision import Bind, Wait
from gpu_scheduler.kube.objects.decoding import decode_object
from gpu_scheduler.kube.objects.meta import Bookmark
from gpu_scheduler.process.lifecycle import own_version
from gpu_scheduler.scheduler.ports import Journal

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import FileIO
    from pathlib import Path

    from gpu_scheduler.core.decision import Decision
    from gpu_scheduler.core.policy import Policy
    from gpu_scheduler.core.refs import PodRef
    from gpu_scheduler.scheduler.ports import InputKind

T = TypeVar("T")

LIMIT: Final = 2**28
"""Longest journal in bytes. The journal of the previous process is kept beside it."""

FORMAT: Final = 2
"""The version of the lines' format. It grows when an older program could read a line wrongly."""

log = logging.getLogger(__name__)

_bookmarks = msgspec.json.Decoder(Bookmark)
# The only value that is no dataclass is a placement map. It is written as its text.
_encoder = msgspec.json.Encoder(enc_hook=str)


class JournalError(Exception):
    """The journal's file cannot be opened; the message names it."""


class FileJournal(Journal):
    """The journal of one process. The file of the previous process is renamed to end in `.1`."""

    def __init__(
        self, path: Path, policy: Policy, *, limit: int = LIMIT, wall: Callable[[], float] = time.time
    ) -> None:
        """Open the file and write the policy, which the operator chose. JournalError if the file cannot be opened."""
        self._wall = wall
        self._room = limit
        self._versions: dict[str, str] = {}
        try:
            if path.is_file():
                path.replace(path.with_name(f"{path.name}.1"))
            self._file: FileIO | None = path.open("ab", buffering=0)
        except OSError as error:
            raise JournalError(f'cannot use DECISION_JOURNAL "{path}": {error.strerror}') from error
        self._write({"began": policy.scheduler_name, **first_line(policy)})

    def reading(self, resource: str, read: Callable[[msgspec.Raw], tuple[str, T]]) -> Callable[..., tuple[str, T]]:
        """Return a function that reads by `read`, and records which version of the resource was read last."""

        def noted(raw: msgspec.Raw) -> tuple[str, T]:
            self._versions[resource] = decode_object(_bookmarks, raw).metadata.resource_version or ""
            return read(raw)

        return noted

    def received(self, kind: InputKind, value: object, *, gone: bool = False) -> None:
        """Write a line for a received value, see Journal."""
        self._write(received_line(kind, value, gone=gone))

    def decided(self, pod: PodRef, decision: Decision | None) -> None:
        """Write a line for a decision, with the versions that were read last, see Journal."""
        self._write({"decided": str(pod), "uid": pod.uid, "versions": self._versions, **verdict(decision)})

    def close(self) -> None:
        """Close the file. Later calls write nothing."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is None:
            return
        try:
            text = encoded({"at": self._wall(), **line})
            self._room -= len(text)
            if self._room < 0:
                self._end("it has reached its limit")
            elif self._file.write(text) < len(text):
                self._end("a line could not be written whole")
        except (OSError, TypeError, ValueError) as error:
            self._end(str(error))

    def _end(self, why: str) -> None:
        """End the journal. Once a line is missing, the decisions that follow cannot be reproduced."""
        log.warning("The journal of decisions ends", extra={"why": why})
        self.close()


def first_line(policy: Policy) -> dict[str, Any]:
    """Return the fields that the first line of each journal and snapshot has."""
    return {"format": FORMAT, "version": own_version(), "policy": policy}


def received_line(kind: InputKind, value: object, *, gone: bool = False) -> dict[str, Any]:
    """Return the fields of the line for a received value."""
    return {"received": kind, "gone": gone, "value": value}


def encoded(line: dict[str, Any]) -> bytes:
    """Return a line as JSON. TypeError or ValueError if it has a value that cannot be encoded."""
    return _encoder.encode(line) + b"\n"


def verdict(decision: Decision | None) -> dict[str, Any]:
    """Return the fields of a decision for its line, without the cluster events that it waits for."""
    if decision is None:
        return {"verdict": "nothing"}
    if isinstance(decision, Bind):
        return {"verdict": "bind", "placement": decision.placement, "message": decision.message}
    details = {"reason": decision.reason, "message": decision.message}
    if not isinstance(decision, Wait):
        return {"verdict": "refuse", **details}
    selection = decision.selection
    return {
        "verdict": "wait",
        **details,
        "reserve": decision.reserve,
        "selection": None if selection is None else (selection.node, selection.claims),
    }
