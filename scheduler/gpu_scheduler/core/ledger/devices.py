"""Who holds which card of which node, whatever name the card goes by.

LAW: holders are kept by real node and card; index, UUID and MIG slices of one card meet there. Where the node's
inventory cannot tell two kinds of name apart, they are taken to mean the same card.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, combinations
from typing import Final

from gpu_scheduler.core.cluster_events import ClusterEvent, DeviceChanged, QuotaChanged
from gpu_scheduler.core.ledger.hold import Hold
from gpu_scheduler.core.ledger.latest import LatestHold
from gpu_scheduler.core.ledger.namespace_usage import NOTHING_HELD, Held, NamespaceUsage, NodeDevice
from gpu_scheduler.core.nodes.inventory import DevicePart, Inventory
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.placement_map import device_kind
from gpu_scheduler.core.policy import Sharing

_NOBODY: Final[frozenset[ClusterEvent]] = frozenset()


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two pods that hold one device against the rules."""

    node: str
    device: str
    first: Hold
    second: Hold


@dataclass(slots=True)
class _NodeDevices:
    """The cards of one node."""

    inventory: Inventory | None = None
    plugin: bool = False
    """Whether a device plugin hands out cards here."""
    holders: dict[str, Hold] = field(default_factory=dict)
    cards: dict[str, dict[str, Hold]] = field(default_factory=dict)
    kinds: dict[str, dict[str, Hold]] = field(default_factory=dict)
    """By kind of name: who uses such names."""
    loose: dict[str, dict[str, Hold]] = field(default_factory=dict)
    """Likewise, but only names that the inventory does not know."""
    crowded: dict[str, None] = field(default_factory=dict)
    """Keys of cards that two pods hold."""

    def part(self, device: str) -> tuple[str, DevicePart | None]:
        """The card's key, and where the inventory has it; a device unknown to it is a card of its own."""
        part = None if self.inventory is None else self.inventory.find(device)
        return (device if part is None else sys.intern(str(part.card))), part

    def named(self, holder: Hold) -> tuple[str, ...]:
        """What it claims by name: nothing where the device plugin chooses its cards."""
        return () if self.plugin and holder.limit else holder.devices

    def held(self, holder: Hold) -> Held:
        """What counts against the limit of its namespace."""
        if not (holder.devices or holder.limit):
            return NOTHING_HELD
        named = [NodeDevice(holder.node, self.part(device)[1] or device) for device in self.named(holder)]
        return Held(named, holder.limit if self.plugin else 0)

    def same(self, device: str, other: str) -> bool:
        """Whether two names mean one device, or devices that overlap."""
        (key, part), (other_key, other_part) = self.part(device), self.part(other)
        return key == other_key and (part is None or other_part is None or part.overlaps(other_part))

    def insert(self, holder: Hold) -> None:
        self.holders[holder.ref.uid] = holder
        for table, key in self._places(holder):
            table.setdefault(key, {})[holder.ref.uid] = holder
            if table is self.cards and len(table[key]) > 1:
                self.crowded[key] = None

    def remove(self, uid: str) -> set[str]:
        """Answers the keys of the cards that it had."""
        holder = self.holders.pop(uid)
        keys = set()
        for table, key in self._places(holder):
            left = table.get(key, {})
            left.pop(uid, None)
            if not left:
                table.pop(key, None)
            if table is self.cards:
                keys.add(key)
                if len(left) < 2:  # noqa: PLR2004 - one alone is no crowd
                    self.crowded.pop(key, None)
        return keys

    def _places(self, holder: Hold) -> Iterator[tuple[dict[str, dict[str, Hold]], str]]:
        for device in self.named(holder):
            key, part = self.part(device)
            kind = device_kind(device) or ""
            yield self.cards, key
            yield self.kinds, kind
            if part is None:
                yield self.loose, kind

    def strangers(self, device: str) -> Iterator[dict[str, Hold]]:
        """Who uses names of another kind, where nobody can tell whether they mean this device."""
        tables = self.kinds if self.part(device)[1] is None else self.loose
        kind = device_kind(device) if tables else None
        return (holders for other, holders in tables.items() if other != kind)


class Devices:
    """All holders by node and card."""

    __slots__ = ("_crowded", "_found", "_racks", "_recency", "usage")

    def __init__(self) -> None:
        self._racks: dict[str, _NodeDevices] = {}
        self._recency = LatestHold()
        self.usage = NamespaceUsage()
        self._crowded: set[str] = set()
        """Nodes with a card that two pods hold."""
        self._found: dict[str, dict[Sharing, tuple[Conflict, ...]]] = {}
        """The conflicts of crowded nodes, as far as nothing has changed there since."""

    def apply_node(self, node: Node) -> frozenset[ClusterEvent]:
        """Take the node's inventory as it is now; answers whose question may have another answer."""
        states = self._racks.setdefault(node.name, _NodeDevices())
        plugin = node.advertised is not None
        if (states.inventory, states.plugin) == (node.inventory, plugin):
            self._tidy(node.name)
            return _NOBODY
        keys = {"", *states.cards}
        fresh = self._racks[node.name] = _NodeDevices(node.inventory, plugin)
        used = {holder.ref.namespace: self.usage.used(holder.ref.namespace) for holder in states.holders.values()}
        for holder in states.holders.values():
            fresh.insert(holder)
            self.usage.drop(holder.ref.namespace, states.held(holder))
            self.usage.put(holder.ref.namespace, fresh.held(holder))
        self._tidy(node.name)
        # Two names may have turned out to mean one device.
        fewer = [QuotaChanged(namespace) for namespace, count in used.items() if self.usage.used(namespace) < count]
        return frozenset((*(DeviceChanged(node.name, key) for key in keys), *fewer))

    def put(self, holder: Hold) -> None:
        """The pod holds its devices from now on."""
        states = self._racks.setdefault(holder.node, _NodeDevices())
        states.insert(holder)
        self.usage.put(holder.ref.namespace, states.held(holder))
        self._recency.put(holder)
        self._tidy(holder.node)

    def confirm(self, holder: Hold) -> None:
        """The pod, which is here already, holds the same; only when it came is known better now."""
        self._racks[holder.node].insert(holder)
        self._recency.put(holder)
        self._found.pop(holder.node, None)

    def drop(self, holder: Hold) -> frozenset[ClusterEvent]:
        """The pod holds them no longer; answers what is free."""
        states = self._racks[holder.node]
        held, keys = states.held(holder), states.remove(holder.ref.uid)
        self.usage.drop(holder.ref.namespace, held)
        self._recency.drop(holder.ref.uid)
        self._tidy(holder.node)
        freed = (DeviceChanged(holder.node, key) for key in {"", *keys}) if keys else ()
        quota = (QuotaChanged(holder.ref.namespace),) if held.named or held.unnamed else ()
        return frozenset((*freed, *quota))

    def asks(self, claim: Hold) -> tuple[int, int]:
        """How many devices a pod asks for there, and how many of them no pod of its namespace holds yet."""
        held = self._racks.get(claim.node, _NodeDevices()).held(claim)
        return len(set(held.named)) + held.unnamed, self.usage.more(claim.ref.namespace, held)

    def card(self, node: str, device: str) -> str:
        """The key by which DeviceChanged names the card of a device."""
        states = self._racks.get(node)
        return device if states is None else states.part(device)[0]

    def rivals(self, node: str, device: str) -> tuple[Hold, ...]:
        """Who claims this device, or one that may be the same, in order of name."""
        states = self._racks.get(node)
        if states is None:
            return ()
        found = {
            uid: holder
            for uid, holder in states.cards.get(states.part(device)[0], {}).items()
            if any(states.same(device, other) for other in states.named(holder))
        }
        for holders in states.strangers(device):
            found.update(holders)
        return _ordered(found)

    def holders_of(self, node: str, card: int) -> Mapping[str, Hold]:
        """Who claims the card, a part of it, or something that may be it; by uid. Costs what that card has of them."""
        states = self._racks.get(node)
        if states is None:
            return {}
        known = states.cards.get(str(card), {})
        strangers = [holders for holders in states.strangers(str(card)) if holders]
        return dict(chain.from_iterable(each.items() for each in (known, *strangers))) if strangers else known

    def held(self, node: str) -> Mapping[str, Mapping[str, Hold]]:
        """The same for all cards of the node that anybody claims, by the card's key; beside them maybe other keys."""
        states = self._racks.get(node)
        if states is None:
            return {}
        if states.inventory is None or not states.loose:
            return states.cards
        found = {str(card.index): self.holders_of(node, card.index) for card in states.inventory.cards}
        return {key: holders for key, holders in found.items() if holders}

    def newest(self) -> Hold | None:
        """Who came last of those who still hold devices: assumed ones, then by the time that their Binding wrote."""
        newest = self._recency.newest()
        return None if newest is None else self._racks[newest[0]].holders[newest[1]]

    def named_holder(self, node: str) -> Hold | None:
        """Who claims a device of the node by its name (the first by name)."""
        states = self._racks.get(node)
        holders = {} if states is None else {uid: each for uses in states.cards.values() for uid, each in uses.items()}
        return next(iter(_ordered(holders)), None)

    def may_share(self, one: Hold, other: Hold, device: str, sharing: Sharing) -> bool:
        """Whether `other` may hold `device` of its node beside `one`."""
        if sharing is Sharing.NONE:
            return False
        if sharing is Sharing.ANY or (one.sharing_any and other.sharing_any) or (one.shared and other.shared):
            return True
        if one.workload is None or one.workload != other.workload or one.index == other.index:
            return False
        states = self._racks.get(other.node) or _NodeDevices()
        return all(any(states.part(name) == states.part(device) for name in holder.named) for holder in (one, other))

    def conflicts(self, sharing: Sharing) -> tuple[Conflict, ...]:
        """Pairs that hold one device against the rules, in a stable order. Costs what shared nodes changed since."""
        for node in self._crowded:
            found = self._found.setdefault(node, {})
            if sharing not in found:
                found[sharing] = tuple(self._conflicts_of(node, sharing))
        return tuple(conflict for node in sorted(self._crowded) for conflict in self._found[node][sharing])

    def unnamed(self, holder: Hold) -> int:
        """How many cards it has of the device plugin's choice."""
        states = self._racks.get(holder.node)
        return holder.limit if states is not None and states.plugin else 0

    def entries(self) -> Iterator[tuple[object, object]]:
        """Everything that is noted, as pairs of key and value, for who compares two of these."""
        for node, states in self._racks.items():
            yield ("rack", node), (states.inventory, states.plugin)
            for word, table in (("card", states.cards), ("kind", states.kinds), ("loose", states.loose)):
                for key, holders in table.items():
                    yield (word, node, key), frozenset(holders)
        for node in self._crowded:
            yield ("crowded", node), True
        yield from self._recency.entries()
        yield from self.usage.entries()

    def _conflicts_of(self, node: str, sharing: Sharing) -> Iterator[Conflict]:
        states = self._racks[node]
        # Where nothing is known of the cards, the names of a pod with a limit may count from its container.
        vague = states.inventory is None
        proven = {uid: holder for uid, holder in states.holders.items() if not (vague and holder.limit)}
        for one, other in combinations(_ordered(proven), 2):
            for device in states.named(one):
                # Names that may or may not mean one card are no proof of anything.
                met = any(states.same(device, claimed) for claimed in states.named(other))
                if met and not self.may_share(one, other, device, sharing):
                    yield Conflict(node, device, one, other)
                    break

    def _tidy(self, node: str) -> None:
        """Note whether the node is crowded, and forget it when nothing is known of it."""
        states = self._racks[node]
        self._found.pop(node, None)
        if states.crowded:
            self._crowded.add(node)
        else:
            self._crowded.discard(node)
        if not states.holders and states.inventory is None and not states.plugin:
            del self._racks[node]


def _ordered(holders: dict[str, Hold]) -> tuple[Hold, ...]:
    if len(holders) < 2:  # noqa: PLR2004 - one alone is in order
        return tuple(holders.values())
    return tuple(sorted(holders.values(), key=lambda holder: (holder.ref.namespace, holder.ref.name, holder.ref.uid)))
