"""Reads a journal of decisions, and decides again at each of its decisions.

LAW: pure but for its caller's file. A line that a crash has cut is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpu_scheduler.core.filters.volumes import StorageClass, Volume, VolumeClaim
from gpu_scheduler.core.namespace_limits import NamespaceLimits
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.pods.placement_map import NO_LINES, PlacementMap, parse_placement_map
from gpu_scheduler.core.pods.pod import ForeignPod, Pod
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.scheduler.dry_run import DryRun
from gpu_scheduler.scheduler.journal import verdict
from gpu_scheduler.scheduler.ports import InputKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TYPES: Final[dict[InputKind, Any]] = {
    InputKind.NODE: Node,
    InputKind.POD: Pod,
    InputKind.FOREIGN_POD: ForeignPod,
    InputKind.CLAIM: VolumeClaim,
    InputKind.VOLUME: Volume,
    InputKind.STORAGE_CLASS: StorageClass,
    InputKind.STRATEGY: Strategy,
    InputKind.LIMITS: NamespaceLimits,
    InputKind.RELEASED: PodRef,
    InputKind.REPAIRED: None,
}


class Line(msgspec.Struct):
    """One line of the journal: a policy, an input (`received`), or a decision (`decided`)."""

    policy: Policy | None = None
    received: InputKind | None = None
    gone: bool = False
    value: msgspec.Raw = msgspec.Raw(b"null")
    decided: str = ""
    uid: str = ""


_lines = msgspec.json.Decoder(Line)


def differences(lines: Iterable[bytes]) -> Iterator[str]:
    """Yield a sentence for each decision that differs: its line, the old and the new decision."""
    dry_run: DryRun | None = None
    for number, text in enumerate(lines, 1):
        line = _lines.decode(text)
        if line.policy is not None:
            dry_run = DryRun(line.policy)
        if dry_run is None:
            raise ValueError("a journal begins with the operator's policy")
        if line.received is not None:
            dry_run.apply(line.received, value_of(line.received, line.value), gone=line.gone)
        elif line.decided:
            again = msgspec.json.decode(msgspec.json.encode(verdict(dry_run.decide(line.uid))))
            output = msgspec.json.decode(text)
            before = {key: output.get(key) for key in again.keys() | output.keys() & {"placement", "reason", "message"}}
            if before != again:
                yield f"line {number}, {line.decided}: it was {before}, and is {again}"


def value_of(kind: InputKind, raw: msgspec.Raw) -> Any:
    """Decode the value of an input. msgspec.ValidationError if it has another shape."""
    return msgspec.json.decode(raw, type=_TYPES[kind], dec_hook=_read_map)


def _read_map(_: type[Any], text: str) -> PlacementMap:
    return parse_placement_map(text) if text else NO_LINES


def whole_lines(text: bytes) -> list[bytes]:
    """Return the complete lines: a crash may have cut the last one."""
    return text.split(b"\n")[:-1]
