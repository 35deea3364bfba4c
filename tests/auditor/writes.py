"""I3 and I8: checks the writes in the API server's audit log."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.auditor.findings import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.auditor.audit_log import Entry
    from tests.auditor.history import Event

ACCOUNT: Final = "system:serviceaccount:gpu-scheduler-system:gpu-scheduler"


def bound_once(entries: Iterable[Entry], events: Iterable[Event]) -> Iterator[Violation]:
    """I3: a pod was bound twice, or a Binding had no uid."""
    ours = {event.seen.api_object.path for event in events if event.kind == "pods" and event.seen.api_object.ours}
    times: Counter[tuple[str, str]] = Counter()
    for entry in entries:
        if not entry.bind or not entry.done or entry.pod not in ours:
            continue
        uid = entry.request_object.metadata.uid
        if uid:
            times[entry.pod, uid] += 1
        else:
            yield Violation("I3", f"{entry.pod} was bound by {entry.user.username} without its uid")
    for (pod, uid), count in times.items():
        if count > 1:
            yield Violation("I3", f"{pod} ({uid}) was bound {count} times")


def foreign(entries: Iterable[Entry], events: Iterable[Event]) -> Iterator[Violation]:
    """I8: the scheduler wrote to a pod of another scheduler."""
    of: dict[str, set[bool]] = {}
    for event in events:
        if event.kind == "pods":
            of.setdefault(event.seen.api_object.path, set()).add(event.seen.api_object.ours)
    for entry in entries:
        if entry.done and entry.user.username == ACCOUNT and of.get(entry.pod) == {False}:
            part = entry.object_ref.subresource or "pod"
            yield Violation("I8", f"{entry.pod} is another scheduler's, and its {part} was written ({entry.verb})")
