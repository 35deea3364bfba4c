"""What happened to pods and nodes, in the order of the API server's own versions, as two watches showed it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.auditor.objects import inventory
from tests.oracle.reader import Hold, holds, plugins

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.auditor.objects import Seen, Thing


@dataclass(frozen=True, slots=True)
class Event:
    """One change; `at` is when it was heard, by the monotonic clock."""

    at: float
    version: int
    kind: str
    deleted: bool
    seen: Seen


@dataclass(slots=True)
class World:
    """Pods by uid and nodes by name at one version; what was there a moment before is still known of nodes."""

    pods: dict[str, Seen] = field(default_factory=dict)
    nodes: dict[str, Seen] = field(default_factory=dict)
    past: dict[str, list[tuple[float, Seen | None]]] = field(default_factory=dict)
    on: dict[str, dict[str, Seen]] = field(default_factory=dict)
    """Live pods by node and uid."""

    def apply(self, event: Event) -> Seen | None:
        """Take the change; gives what the object was before."""
        thing = event.seen.thing
        if event.kind == "nodes":
            name = thing.metadata.name
            before = self.nodes.pop(name, None)
            if not event.deleted:
                self.nodes[name] = event.seen
            self.past.setdefault(name, []).append((event.at, None if event.deleted else event.seen))
            return before
        uid, node = thing.metadata.uid, thing.spec.node_name
        before = self.pods.pop(uid, None)
        self.on.get(node, {}).pop(uid, None)
        if not event.deleted:
            self.pods[uid] = event.seen
            if node and not thing.finished:
                self.on.setdefault(node, {})[uid] = event.seen
        return before

    def lately(self, node: str, since: float) -> list[Thing | None]:
        """Give what the node has been since then; None where it was not there."""
        past = self.past.get(node, [])
        first = max((number for number, (at, _) in enumerate(past) if at <= since), default=0)
        return [None if seen is None else seen.thing for _, seen in past[first:]]

    def hold(self, seen: Seen) -> Hold | None:
        """Tell what a pod holds; None where it holds nothing, or cannot be read."""
        node = self.nodes.get(seen.thing.spec.node_name)
        try:
            return holds([seen.read], plugins([node.read] if node else [])).get(seen.thing.metadata.uid)
        except ValueError:
            return None

    def cards(self, node: str, devices: Iterable[str]) -> frozenset[tuple[object, str]]:
        """Name the devices by card and slice, where the node lists them."""
        seen = self.nodes.get(node)
        known = (inventory(seen.thing) if seen else None) or {}
        return frozenset(known.get(device, (device, "")) for device in devices)


@dataclass(frozen=True, slots=True)
class Step:
    """One change, what its object was before, and the world as it is after."""

    event: Event
    before: Seen | None
    world: World

    @property
    def bound(self) -> bool:
        """Whether a pod of ours has a node now and was not known to have one."""
        pod = self.event.seen.thing
        fresh = self.before is None or not self.before.thing.spec.node_name
        return self.event.kind == "pods" and not self.event.deleted and pod.ours and bool(pod.spec.node_name) and fresh


def steps(events: Iterable[Event]) -> Iterator[Step]:
    """Let it happen again; the world of a step is good until the next."""
    world = World()
    for event in sorted(events, key=lambda event: event.version):
        yield Step(event, world.apply(event), world)


def overlap(one: frozenset[tuple[object, str]], other: frozenset[tuple[object, str]]) -> bool:
    """Whether any two are one card: the same slice of it, or one of them the whole."""
    return any(
        card == second and (part == slice_ or not part or not slice_) for card, part in one for second, slice_ in other
    )
