"""The history of pods and nodes from two watches, in the order of resource versions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.auditor.objects import inventory
from tests.oracle.reference import Hold, holds, plugins

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.auditor.objects import ApiObject, Seen


@dataclass(frozen=True, slots=True)
class Event:
    """One watch event; `at` is when it was received, in seconds of the monotonic clock."""

    at: float
    version: int
    kind: str
    deleted: bool
    seen: Seen


@dataclass(slots=True)
class ClusterHistory:
    """Pods by uid and nodes by name at one version; `past` has all earlier states of each node with their times."""

    pods: dict[str, Seen] = field(default_factory=dict)
    nodes: dict[str, Seen] = field(default_factory=dict)
    past: dict[str, list[tuple[float, Seen | None]]] = field(default_factory=dict)
    on: dict[str, dict[str, Seen]] = field(default_factory=dict)
    """Unfinished pods by node and uid."""

    def apply(self, event: Event) -> Seen | None:
        """Apply the event; return the object before it, or None."""
        api_object = event.seen.api_object
        if event.kind == "nodes":
            name = api_object.metadata.name
            before = self.nodes.pop(name, None)
            if not event.deleted:
                self.nodes[name] = event.seen
            self.past.setdefault(name, []).append((event.at, None if event.deleted else event.seen))
            return before
        uid, node = api_object.metadata.uid, api_object.spec.node_name
        before = self.pods.pop(uid, None)
        self.on.get(node, {}).pop(uid, None)
        if not event.deleted:
            self.pods[uid] = event.seen
            if node and not api_object.finished:
                self.on.setdefault(node, {})[uid] = event.seen
        return before

    def lately(self, node: str, since: float) -> list[ApiObject | None]:
        """Return the states of the node since then; None stands for a time without the node."""
        past = self.past.get(node, [])
        first = max((number for number, (at, _) in enumerate(past) if at <= since), default=0)
        return [None if seen is None else seen.api_object for _, seen in past[first:]]

    def hold(self, seen: Seen) -> Hold | None:
        """Return what the pod holds; None if it holds nothing or its map is invalid."""
        node = self.nodes.get(seen.api_object.spec.node_name)
        try:
            return holds([seen.read], plugins([node.read] if node else [])).get(seen.api_object.metadata.uid)
        except ValueError:
            return None

    def devices(self, node: str, devices: Iterable[str]) -> frozenset[tuple[object, str]]:
        """Return each device as (device index, MIG slice), or unchanged if the node does not list it."""
        seen = self.nodes.get(node)
        known = (inventory(seen.api_object) if seen else None) or {}
        return frozenset(known.get(device, (device, "")) for device in devices)


@dataclass(frozen=True, slots=True)
class Step:
    """One event, the object before it, and the cluster after it."""

    event: Event
    before: Seen | None
    history: ClusterHistory

    @property
    def bound(self) -> bool:
        """Whether a pod of ours has a node now and was not known to have one."""
        pod = self.event.seen.api_object
        fresh = self.before is None or not self.before.api_object.spec.node_name
        return self.event.kind == "pods" and not self.event.deleted and pod.ours and bool(pod.spec.node_name) and fresh


def steps(events: Iterable[Event]) -> Iterator[Step]:
    """Yield a step for each event by version. They share one `history`, which the next step changes."""
    history = ClusterHistory()
    for event in sorted(events, key=lambda event: event.version):
        yield Step(event, history.apply(event), history)


def overlap(one: frozenset[tuple[object, str]], other: frozenset[tuple[object, str]]) -> bool:
    """Return whether the sets share a device: the same MIG slice, or a slice and the whole device."""
    return any(
        device == second and (part == slice_ or not part or not slice_)
        for device, part in one
        for second, slice_ in other
    )
