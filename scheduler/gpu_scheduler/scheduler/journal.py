"""The journal of decisions: a file with a JSON line for each thing that was taken in, and for each decision.

A line holds what core saw, so that whoever reads them in order can decide again. Each line is written at once: a crash
loses none. A file that has reached its limit, or that cannot be written, ends; the scheduler goes on.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from gpu_scheduler.core.decision import Bind, Wait
from gpu_scheduler.kube.objects.decoding import decode_object
from gpu_scheduler.kube.objects.meta import Bookmark
from gpu_scheduler.process.logs import get_logger
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
"""Bytes of one journal; the one before is kept beside it."""

log = get_logger(__name__)

_bookmarks = msgspec.json.Decoder(Bookmark)
# The one value that is no dataclass is a map: it is written as its text.
_encoder = msgspec.json.Encoder(enc_hook=str)


class JournalError(Exception):
    """The journal's file cannot be opened; the text names it."""


class FileJournal(Journal):
    """One process' journal; that of the process before is renamed to end in `.1`."""

    def __init__(
        self, path: Path, policy: Policy, *, limit: int = LIMIT, wall: Callable[[], float] = time.time
    ) -> None:
        """Begin it, with what the operator chose."""
        self._wall = wall
        self._room = limit
        self._versions: dict[str, str] = {}
        try:
            if path.is_file():
                path.replace(path.with_name(f"{path.name}.1"))
            self._file: FileIO | None = path.open("ab", buffering=0)
        except OSError as error:
            raise JournalError(f'cannot use DECISION_JOURNAL "{path}": {error.strerror}') from error
        self._write({"began": policy.scheduler_name, "policy": policy})

    def reading(self, resource: str, read: Callable[[msgspec.Raw], tuple[str, T]]) -> Callable[..., tuple[str, T]]:
        """Read in this way, and remember which version of the resource was read last."""

        def noted(raw: msgspec.Raw) -> tuple[str, T]:
            self._versions[resource] = decode_object(_bookmarks, raw).metadata.resource_version or ""
            return read(raw)

        return noted

    def received(self, news: InputKind, value: object, *, gone: bool = False) -> None:
        """See Journal."""
        self._write({"took": news, "gone": gone, "value": value})

    def decided(self, pod: PodRef, decision: Decision | None) -> None:
        """See Journal."""
        self._write({"decided": str(pod), "uid": pod.uid, "versions": self._versions, **verdict(decision)})

    def close(self) -> None:
        """Write nothing more."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is None:
            return
        try:
            text = _encoder.encode({"at": self._wall(), **line}) + b"\n"
            self._room -= len(text)
            if self._room < 0:
                self._end("it has reached its limit")
            elif self._file.write(text) < len(text):
                self._end("a line could not be written whole")
        except (OSError, TypeError, ValueError) as error:
            self._end(str(error))

    def _end(self, why: str) -> None:
        """With a line missing, nobody could decide again by those that follow."""
        log.warning("The journal of decisions ends", why=why)
        self.close()


def verdict(decision: Decision | None) -> dict[str, Any]:
    """What a decision says, without what it waits for."""
    if decision is None:
        return {"verdict": "nothing"}
    if isinstance(decision, Bind):
        return {"verdict": "bind", "placement": decision.placement, "message": decision.message}
    told = {"reason": decision.reason, "message": decision.message}
    if not isinstance(decision, Wait):
        return {"verdict": "refuse", **told}
    selection = decision.selection
    return {
        "verdict": "wait",
        **told,
        "reserve": decision.reserve,
        "selection": None if selection is None else (selection.node, selection.claims),
    }
