"""Replays a file of inputs: decides again at each decision of a journal, or on each pending pod of a snapshot.

LAW: pure but for its caller's file, which anyone may have written: whatever a line has, the only error is ReplayError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpu_scheduler.core.filters.volumes import StorageClass, Volume, VolumeClaim
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim
from gpu_scheduler.core.namespace_limits import NamespaceLimits
from gpu_scheduler.core.nodes.device_pools import DeviceSlice
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.pods.placement_map import NO_LINES, PlacementMap, parse_placement_map
from gpu_scheduler.core.pods.pod import ForeignPod, Pod
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.kube.objects.decoding import UNREADABLE, decode_object
from gpu_scheduler.scheduler.dry_run import DryRun
from gpu_scheduler.scheduler.journal import FORMAT, verdict
from gpu_scheduler.scheduler.ports import InputKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpu_scheduler.core.decision import Decision

    Verdict = dict[str, Any]

MAX_LINE: Final = 8 * 2**20
"""Most bytes of a line. The API server stores no object of more than 1.5 MiB."""
_VERSION: Final = 60
"""Most characters that are quoted of the program's version in a file."""
_MESSAGE: Final = 300
_FIELDS: Final = frozenset({"verdict", "placement", "reason", "message", "reserve", "selection"})
"""The fields of a journal's line that say what was decided."""

_TYPES: Final[dict[InputKind, Any]] = {
    InputKind.NODE: Node,
    InputKind.POD: Pod,
    InputKind.FOREIGN_POD: ForeignPod,
    InputKind.DEVICE_SLICE: DeviceSlice,
    InputKind.DEVICE_CLAIM: AllocatedClaim,
    InputKind.CLAIM: VolumeClaim,
    InputKind.VOLUME: Volume,
    InputKind.STORAGE_CLASS: StorageClass,
    InputKind.STRATEGY: Strategy,
    InputKind.LIMITS: NamespaceLimits,
    InputKind.RELEASED: PodRef,
    InputKind.REPAIRED: None,
}


class _Began(msgspec.Struct):
    """What identifies a first line, whatever its format."""

    format: int = 0
    version: str = ""


class _First(msgspec.Struct):
    """The first line."""

    policy: Policy
    snapshot: int | None = None
    """How many lines a snapshot has beside this one; None in a journal."""
    unread: tuple[str, ...] = ()
    """What the snapshot lacks, because its author could not read it; a sentence each."""


class _Line(msgspec.Struct):
    """Any other line: an input (`received`) or a decision (`decided`)."""

    received: InputKind | None = None
    gone: bool = False
    value: msgspec.Raw = msgspec.Raw(b"null")
    decided: str = ""
    uid: str = ""


_began = msgspec.json.Decoder(_Began)
_firsts = msgspec.json.Decoder(_First)
_lines = msgspec.json.Decoder(_Line)
_anything = msgspec.json.Decoder()
_values: dict[InputKind, msgspec.json.Decoder[Any]] = {}


class ReplayError(Exception):
    """The file cannot be replayed; the text says what is wrong, and in which line, `remedy` what helps."""

    def __init__(self, text: str, remedy: str = "write the file again") -> None:
        super().__init__(text)
        self.remedy = remedy


@immutable
class Replayed:
    """A decision that was made again."""

    line: int
    """The line of the journal's decision, or of the snapshot's pod."""
    pod: str
    before: Verdict | None
    """The decision as the file has it; None if a snapshot's pod had not been decided on."""
    now: Verdict
    differs: bool
    """Whether the decisions of a journal differ in any word, or the reasons of a snapshot's pod."""


class Replay:
    """The replay of one file. Iterate over it once: it yields the decisions in order."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        """Read the first line. ReplayError if it is none of this format, or of a newer one."""
        self.cut = False
        """Whether the last line was left out because it has no end, after a crash."""
        self._lines = enumerate(lines, 1)
        _, text = next(self._whole(), (1, b""))
        if not text:
            raise ReplayError("it has no whole line; it must begin with a policy")
        began = _decoded(_began, text, 1)
        if began.format > FORMAT:
            raise ReplayError(
                f"line 1 says format {began.format}, and this version reads up to {FORMAT}: "
                f"the file was written by gpu-scheduler {began.version[:_VERSION] or 'of an unknown version'}",
                "replay it with that version",
            )
        first = _decoded(_firsts, text, 1)
        self.unread = first.unread
        """What the file lacks, a sentence each."""
        self._inputs = first.snapshot
        self._dry_run = DryRun(first.policy)
        self._line_of: dict[str, int] = {}

    def __iter__(self) -> Iterator[Replayed]:
        """Yield each decision. ReplayError at the first line that cannot be read or applied."""
        count = 0
        for number, text in self._whole():
            line = _decoded(_lines, text, number)
            count += 1
            if line.received is not None:
                self._apply(line.received, line, number)
            elif line.decided:
                yield self._again(line, text, number)
            else:
                raise ReplayError(f"line {number} has neither an input nor a decision")
        if self._inputs is not None:
            if count != self._inputs:
                raise ReplayError(f"line 1 announces {self._inputs} lines, and {count} follow: the file was cut")
            yield from self._pending()

    def _whole(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that have an end, with their numbers."""
        for number, text in self._lines:
            if len(text) > MAX_LINE:
                raise ReplayError(f"line {number} has more than {MAX_LINE} bytes")
            if not text.endswith(b"\n"):
                self.cut = True
                return
            yield number, text

    def _apply(self, kind: InputKind, line: _Line, number: int) -> None:
        value = _decoded(_decoder(kind), line.value, number)
        if kind is InputKind.RELEASED:
            self._known(value.uid, number)
        try:
            self._dry_run.apply(kind, value, gone=line.gone)
        except Exception as error:
            raise _unusable(number, error) from error
        if kind is InputKind.POD:
            self._line_of[value.ref.uid] = number

    def _decide(self, uid: str, number: int) -> Decision | None:
        self._known(uid, number)
        try:
            return self._dry_run.decide(uid)
        except Exception as error:
            raise _unusable(number, error) from error

    def _known(self, uid: str, number: int) -> None:
        if self._dry_run.pod(uid) is None:
            raise ReplayError(f"line {number} is about a pod that no line before it has")

    def _again(self, line: _Line, text: bytes, number: int) -> Replayed:
        """Decide again at a decision of a journal."""
        now = _plain(self._decide(line.uid, number))
        written = _decoded(_anything, text, number)
        before = {key: written.get(key) for key in now.keys() | (written.keys() & _FIELDS)}
        return Replayed(number, line.decided, before, now, before != now)

    def _pending(self) -> Iterator[Replayed]:
        """Decide on the pending pods of a snapshot, and compare each with the pod's condition."""
        for pod in self._dry_run.pending():
            number = self._line_of[pod.ref.uid]
            now = _plain(self._decide(pod.ref.uid, number))
            before = _reported(pod)
            differs = before is not None and before["reason"] != now.get("reason")
            yield Replayed(number, str(pod.ref), before, now, differs)


def _reported(pod: Pod) -> Verdict | None:
    """Return why the pod waits by its condition; None if the condition does not say so."""
    condition = pod.scheduled_condition
    if condition is None or condition.status != "False":
        return None
    word = condition.message.partition(":")[0]
    reason = word if word in tuple(Reason) else condition.reason
    return {"verdict": "wait", "reason": reason, "message": condition.message}


def _plain(decision: Decision | None) -> Verdict:
    """Return the decision as its line in a journal has it."""
    found: Verdict = msgspec.json.decode(msgspec.json.encode(verdict(decision)))
    return found


def value_of(kind: InputKind, raw: bytes | msgspec.Raw) -> Any:
    """Decode the value of an input. msgspec.ValidationError if it has another shape."""
    return decode_object(_decoder(kind), raw)


def _decoder(kind: InputKind) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a kind. It is made at the first use: most files have few kinds."""
    if kind not in _values:
        _values[kind] = msgspec.json.Decoder(_TYPES[kind], dec_hook=_read_map)
    return _values[kind]


def _read_map(_: type[Any], text: str) -> PlacementMap:
    return parse_placement_map(text) if text else NO_LINES


def _decoded(decoder: msgspec.json.Decoder[Any], text: bytes | msgspec.Raw, number: int) -> Any:
    try:
        return decode_object(decoder, text)
    except msgspec.ValidationError as error:
        raise ReplayError(f"line {number} has another shape than this version reads: {error}"[:_MESSAGE]) from error
    except UNREADABLE as error:
        raise ReplayError(f"line {number} is no JSON: {error}"[:_MESSAGE]) from error


def _unusable(number: int, error: Exception) -> ReplayError:
    """Return the error of a line that has the right shape, and values that no scheduler writes."""
    return ReplayError(f"line {number} has a value that cannot be used: {type(error).__name__}: {error}"[:_MESSAGE])
