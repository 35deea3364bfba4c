"""The decisions of the past in one order: what events, pods and log lines say, each decision once.

LAW: pure. A text that has another form gives no entry, and no error.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler import names
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.reasons import REFUSED_AT_ADMISSION, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpu_scheduler.kube.objects.pod_objects import PodObject

    PodName = tuple[str, str]


class What(StrEnum):
    """What was decided."""

    BOUND = "Bound"
    WAITING = "Waiting"
    REFUSED = "Refused"
    CONFLICT = "Conflict"


class Source(StrEnum):
    """Where it is written."""

    EVENT = "event"
    POD = "pod"
    """The pod's annotations for a bind, its condition for a wait."""
    LOG = "log"


@immutable
class Entry:
    """One decision, as one source or several tell of it."""

    time: datetime
    namespace: str
    pod: str
    what: What
    source: Source
    uid: str = ""
    """Empty in a log line, which does not have it."""
    node: str | None = None
    devices: tuple[str, ...] | None = None
    """None if the source does not say it."""
    observer: bool = False
    reason: Reason | str | None = None
    message: str = ""
    by: str = ""
    """The replica that decided."""
    count: int = 1
    last: datetime | None = None
    """When it was decided last; None if that was once."""
    sources: tuple[Source, ...] = field(default=())

    @property
    def until(self) -> datetime:
        """When it was decided last."""
        return self.last or self.time


@immutable
class PodEvent:
    """An event on a pod."""

    namespace: str
    pod: str
    uid: str
    reason: str
    note: str
    times: tuple[str | None, ...]
    """When it was first seen: the first of these that is written."""
    last: tuple[str | None, ...]
    """When it was seen last, likewise."""
    count: int
    by: str


_ASSIGNED: Final = re.compile(r"Successfully assigned \S+ to (\S+) with (?:no GPU|GPUs? (\S+)) \((.*)\)", re.DOTALL)
"""The message of a Bind."""
_WAITS: Final = " waits: "
_BOUND: Final = "Bound "
_SAME_BIND: Final = timedelta(seconds=60)
"""How far a log line may be from the bind of which it tells: binds and their events are retried."""
_PRECEDENCE: Final = (Source.POD, Source.LOG, Source.EVENT)
"""Whose word counts if several sources tell of one bind: only the scheduler writes a pod's annotations."""


def from_event(event: PodEvent) -> Entry | None:
    """Return what an event of the scheduler says; None if it is about something else."""
    time = _first(event.times)
    if time is None:
        return None
    last = _first(event.last)
    whole = Entry(
        time, event.namespace, event.pod, What.BOUND, Source.EVENT, event.uid, by=event.by, count=event.count, last=last
    )
    if event.reason == names.EVENT_SCHEDULED:
        found = _ASSIGNED.fullmatch(event.note)
        if found is None:
            return replace(whole, message=event.note)
        node, devices, how = found.groups()
        return replace(whole, node=node, devices=_devices(devices or ""), message=how)
    if event.reason == names.EVENT_CONFLICT:
        return replace(whole, what=What.CONFLICT, reason=names.EVENT_CONFLICT, message=_after(event.note))
    return replace(whole, **_wait(event.note)) if event.reason == names.EVENT_FAILED else None


def from_pod(pod: PodObject) -> Iterator[Entry]:
    """Yield the bind that the pod's annotations tell of, or the wait that its condition tells of."""
    meta, given = pod.metadata, pod.metadata.annotations or {}
    where: dict[str, Any] = {
        "namespace": meta.namespace or "",
        "pod": meta.name or "",
        "uid": meta.uid or "",
        "source": Source.POD,
    }
    at = _time(given.get(names.ASSIGNED_AT))
    if pod.spec.node_name and at is not None:
        yield Entry(
            time=at,
            what=What.BOUND,
            node=given.get(names.ASSIGNED_NODE) or pod.spec.node_name,
            devices=_devices(given.get(names.ASSIGNED_DEVICES, "")),
            observer=given.get(names.OBSERVER) == "true",
            message=given.get(names.ASSIGNED_REASON, ""),
            by=given.get(names.ASSIGNED_BY, ""),
            **where,
        )
    for condition in (pod.status and pod.status.conditions) or ():
        since = _time(condition.last_transition_time)
        if condition.type == names.CONDITION_POD_SCHEDULED and condition.status == "False" and since is not None:
            yield Entry(time=since, **where, **_wait(condition.message or "", condition.reason))


def from_log(line: Mapping[str, Any], replica: str) -> Entry | None:
    """Return what a log line of the scheduler says; None if it tells of no decision."""
    text, time = line.get("event"), _time(line.get("timestamp"))
    namespace, slash, pod = str(line.get("pod", "")).partition("/")
    if not isinstance(text, str) or time is None or not slash:
        return None
    whole = Entry(time, namespace, pod, What.BOUND, Source.LOG, by=replica)
    if text.startswith(f"{_BOUND}{namespace}/{pod} to "):
        how = ": ".join(str(line[key]) for key in ("strategy", "reason") if key in line)
        devices = _devices(str(line.get("devices", "")))
        return replace(whole, node=str(line.get("node", "")) or None, devices=devices, message=how)
    head, waits, message = text.partition(_WAITS)
    return replace(whole, **_wait(message)) if waits and head == f"{namespace}/{pod}" else None


def timeline(entries: Iterable[Entry], since: datetime | None = None) -> list[Entry]:
    """Return the decisions, oldest first, each once; only those that were made `since` then, or still were."""
    by_pod: defaultdict[PodName, list[Entry]] = defaultdict(list)
    # In one order, so that the answer does not depend on which source was read first.
    for entry in sorted(entries, key=_position):
        by_pod[entry.namespace, entry.pod].append(replace(entry, sources=(entry.source,)))
    found = chain.from_iterable(map(_of_pod, by_pod.values()))
    shown = (entry for entry in found if since is None or entry.until >= since)
    return sorted(shown, key=lambda entry: (entry.time, entry.namespace, entry.pod))


def _position(entry: Entry) -> tuple[object, ...]:
    return entry.time, entry.source, entry.uid, entry.what, entry.message, entry.node or ""


def _of_pod(entries: Sequence[Entry]) -> list[Entry]:
    """Return the decisions on the pods of one name."""
    binds = [entry for entry in entries if entry.what is What.BOUND]
    conditions = [entry for entry in entries if entry.what is not What.BOUND and entry.source is Source.POD]
    reported = [entry for entry in entries if entry.what is not What.BOUND and entry.source is not Source.POD]
    return [*_binds(binds), *_waits(reported, conditions)]


def _binds(entries: Iterable[Entry]) -> list[Entry]:
    """Return each bind once. A pod is bound once; a log line tells of the bind to its node that is nearest in time."""
    by_uid: defaultdict[str, list[Entry]] = defaultdict(list)
    logged: list[Entry] = []
    for entry in entries:
        (by_uid[entry.uid] if entry.uid else logged).append(entry)
    groups = list(by_uid.values())
    for line in logged:
        near = [
            group
            for group in groups
            if all(each.source is not Source.LOG for each in group) and _same_bind(group[0], line)
        ]
        nearest = min(near, key=lambda group: abs(group[0].time - line.time), default=None)
        if nearest is None:
            groups.append([line])
        else:
            nearest.append(line)
    return [_one_bind(group) for group in groups]


def _same_bind(bind: Entry, line: Entry) -> bool:
    return bind.node in {None, line.node} and abs(bind.time - line.time) <= _SAME_BIND


def _one_bind(group: list[Entry]) -> Entry:
    """Return one entry of all that tell of a bind: each field from the first source that has it."""
    first, *others = sorted(group, key=lambda entry: _PRECEDENCE.index(entry.source))
    for other in others:
        first = replace(
            first,
            uid=first.uid or other.uid,
            node=first.node or other.node,
            devices=first.devices if first.devices is not None else other.devices,
            message=first.message or other.message,
            by=first.by or other.by,
            sources=_union(first, other),
        )
    return replace(first, count=1, last=None)


def _waits(reported: Iterable[Entry], conditions: Iterable[Entry]) -> list[Entry]:
    """Return the waits and conflicts in order, with those that follow each other and say the same as one.

    A condition keeps the time of its first message. So it belongs to the last entry with its message, if there is one.
    """
    found: list[Entry] = []
    for entry in reported:
        if found and _same_wait(found[-1], entry):
            found[-1] = _one_wait(found[-1], entry)
        else:
            found.append(entry)
    for condition in conditions:
        number = next((at for at in reversed(range(len(found))) if _same_wait(found[at], condition)), None)
        if number is None:
            found.append(condition)
        else:
            at = found[number]
            found[number] = replace(at, uid=condition.uid, sources=_union(at, condition))
    return found


def _same_wait(one: Entry, other: Entry) -> bool:
    return (one.what, one.message) == (other.what, other.message) and (
        one.uid == other.uid or "" in {one.uid, other.uid}
    )


def _one_wait(one: Entry, other: Entry) -> Entry:
    """Return both as one. Of two sources each tells of the same decisions; of one source each tells of another."""
    again = other.source is one.source
    return replace(
        one,
        uid=one.uid or other.uid,
        by=one.by or other.by,
        count=one.count + other.count if again else max(one.count, other.count),
        last=max(one.until, other.until),
        sources=_union(one, other),
    )


def _union(one: Entry, other: Entry) -> tuple[Source, ...]:
    return tuple(source for source in Source if source in {*one.sources, *other.sources})


def _wait(message: str, otherwise: str | None = None) -> dict[str, Any]:
    """Return the fields of a decision not to place a pod; its message begins with the reason."""
    word = message.partition(": ")[0]
    reason = Reason(word) if word in tuple(Reason) else None
    what = What.REFUSED if reason in REFUSED_AT_ADMISSION else What.WAITING
    return {"what": what, "reason": reason or otherwise, "message": _after(message) if reason else message}


def _after(message: str) -> str:
    """Return a message without the word that it begins with."""
    return message.partition(": ")[2]


def _devices(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _first(texts: Iterable[str | None]) -> datetime | None:
    return next(filter(None, map(_time, texts)), None)


def _time(text: object) -> datetime | None:
    """Read a time (RFC 3339); None if it is none."""
    try:
        time = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return time if time is None or time.tzinfo else time.replace(tzinfo=UTC)
