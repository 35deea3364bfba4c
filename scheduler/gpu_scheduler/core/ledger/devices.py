"""Which pod holds which device of which node, by any of the device's names.

LAW: holds are stored by real node name and by GPU, so that an index, a UUID and the MIG devices of one GPU are found
together. If the node's inventory does not relate two kinds of names, they count as the same device.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, combinations

from gpu_scheduler.core.cluster_events import NO_EVENTS, ClusterEvent, DeviceChanged, QuotaChanged
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.ledger.hold import Hold
from gpu_scheduler.core.ledger.latest import LatestHold
from gpu_scheduler.core.ledger.moved_gpus import MovedGpu, moved_gpus
from gpu_scheduler.core.ledger.namespace_usage import NOTHING_HELD, Held, NamespaceUsage, NodeDevice
from gpu_scheduler.core.nodes.inventory import DevicePart, Inventory
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.placement_map import NUMBER, device_kind
from gpu_scheduler.core.policy import Sharing


@immutable
class Conflict:
    """Two pods, or a pod and a claim, that hold one device against the rules."""

    node: str
    device: str
    first: Hold
    second: Hold


@dataclass(slots=True)
class _NodeDevices:
    """The devices of one node."""

    inventory: Inventory | None = None
    plugin: bool = False
    """Whether a device plugin hands out devices here."""
    holders: dict[str, Hold] = field(default_factory=dict)
    by_device: dict[str, dict[str, Hold]] = field(default_factory=dict)
    by_kind: dict[str, dict[str, Hold]] = field(default_factory=dict)
    """Holders by the kind of name that they use (number, GPU or MIG)."""
    unknown_by_kind: dict[str, dict[str, Hold]] = field(default_factory=dict)
    """Holders by kind of name, only for names that the inventory does not know. No numbers: it has those of all its
    devices, so another number is none of them."""
    contended: dict[str, None] = field(default_factory=dict)
    """Keys of devices that more than one pod holds."""
    moved: dict[str, tuple[MovedGpu, ...]] = field(default_factory=dict)
    """By uid: GPUs of pods whose names for them mean others now."""

    def part(self, device: str) -> tuple[str, DevicePart | None]:
        """Return the device's key and its part in the inventory.

        If the inventory does not know it, return its name and None.
        """
        part = None if self.inventory is None else self.inventory.find(device)
        return (device if part is None else sys.intern(str(part.index))), part

    def named(self, holder: Hold) -> tuple[str, ...]:
        """Return the devices that the pod holds by name: none if the device plugin chooses its devices."""
        return () if self.plugin and holder.limit else holder.devices

    def taken(self, holder: Hold) -> tuple[str, ...]:
        """Return the devices that no other pod gets while the recorded pod has its own.

        They are those that it holds by name, and those that these names meant when it was bound.
        """
        moved = self.moved.get(holder.ref.uid)
        named = self.named(holder)
        return named if moved is None else (*named, *(each.uuid for each in moved if each.index is not None))

    def held(self, holder: Hold) -> Held:
        """Return what counts against the limit of the pod's namespace. What a claim holds counts with its pods."""
        if holder.is_claim or not (holder.devices or holder.limit):
            return NOTHING_HELD
        named = [NodeDevice(holder.node, self.part(device)[1] or device) for device in self.named(holder)]
        return Held(named, holder.limit if self.plugin else 0)

    def same(self, device: str, other: str) -> bool:
        """Whether two names mean one device, or devices that overlap."""
        (key, part), (other_key, other_part) = self.part(device), self.part(other)
        return key == other_key and (part is None or other_part is None or part.overlaps(other_part))

    def insert(self, holder: Hold) -> None:
        self.holders[holder.ref.uid] = holder
        moved = moved_gpus(self.named(holder), holder.uuids, self.inventory)
        if moved:
            self.moved[holder.ref.uid] = moved
        for table, key in self._keys(holder):
            table.setdefault(key, {})[holder.ref.uid] = holder
            if table is self.by_device and len(table[key]) > 1:
                self.contended[key] = None

    def remove(self, uid: str) -> set[str]:
        """Remove the pod. Return the keys of the devices that it held."""
        holder = self.holders.pop(uid)
        keys = set()
        for table, key in self._keys(holder):
            left = table.get(key, {})
            left.pop(uid, None)
            if not left:
                table.pop(key, None)
            if table is self.by_device:
                keys.add(key)
                if len(left) < 2:  # noqa: PLR2004 - one alone is no contention
                    self.contended.pop(key, None)
        self.moved.pop(uid, None)
        return keys

    def _keys(self, holder: Hold) -> Iterator[tuple[dict[str, dict[str, Hold]], str]]:
        for device in self.taken(holder):
            key, part = self.part(device)
            kind = device_kind(device) or ""
            yield self.by_device, key
            yield self.by_kind, kind
            if part is None and kind != NUMBER:
                yield self.unknown_by_kind, kind

    def other_kinds(self, device: str) -> list[dict[str, Hold]]:
        """Return the holders that use another kind of name, if these names may mean this device."""
        known = self.part(device)[1] is not None or (self.inventory is not None and device_kind(device) == NUMBER)
        tables = self.unknown_by_kind if known else self.by_kind
        kind = device_kind(device) if tables else None
        return [holders for other, holders in tables.items() if other != kind]


class Devices:
    """All holders by node and device."""

    __slots__ = ("_contended", "_found", "_latest", "_moved", "_nodes", "usage")

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeDevices] = {}
        self._latest = LatestHold()
        self.usage = NamespaceUsage()
        self._contended: set[str] = set()
        """Nodes with a device that more than one pod holds."""
        self._found: dict[str, dict[Sharing, tuple[Conflict, ...]]] = {}
        """Cached conflicts of the nodes in `_contended`. A change on a node removes its entry."""
        self._moved: set[str] = set()
        """Nodes with a pod whose GPU has moved."""

    def apply_node(self, node: Node) -> frozenset[ClusterEvent]:
        """Store the node's inventory. Return the cluster events that its change causes."""
        states = self._nodes.setdefault(node.name, _NodeDevices())
        plugin = node.advertised is not None
        if (states.inventory, states.plugin) == (node.inventory, plugin):
            self._after_change(node.name)
            return NO_EVENTS
        keys = {"", *states.by_device}
        fresh = self._nodes[node.name] = _NodeDevices(node.inventory, plugin)
        used = {holder.ref.namespace: self.usage.used(holder.ref.namespace) for holder in states.holders.values()}
        for holder in states.holders.values():
            fresh.insert(holder)
            self.usage.drop(holder.ref.namespace, states.held(holder))
            self.usage.put(holder.ref.namespace, fresh.held(holder))
        self._after_change(node.name)
        # The new inventory may show that two names mean one device. Then the namespace holds fewer devices.
        fewer = [QuotaChanged(namespace) for namespace, count in used.items() if self.usage.used(namespace) < count]
        return frozenset((*(DeviceChanged(node.name, key) for key in keys), *fewer))

    def put(self, holder: Hold) -> None:
        """Record that the pod holds its devices."""
        states = self._nodes.setdefault(holder.node, _NodeDevices())
        states.insert(holder)
        self.usage.put(holder.ref.namespace, states.held(holder))
        self._latest.put(holder)
        self._after_change(holder.node)

    def confirm(self, holder: Hold) -> None:
        """Replace the hold of a recorded pod whose devices are the same. Only the time of its bind is new."""
        self._nodes[holder.node].insert(holder)
        self._latest.put(holder)
        self._found.pop(holder.node, None)

    def drop(self, holder: Hold) -> frozenset[ClusterEvent]:
        """Remove the pod's hold. Return the cluster events of what became free."""
        states = self._nodes[holder.node]
        held, keys = states.held(holder), states.remove(holder.ref.uid)
        self.usage.drop(holder.ref.namespace, held)
        self._latest.drop(holder.ref.uid)
        self._after_change(holder.node)
        freed = (DeviceChanged(holder.node, key) for key in {"", *keys}) if keys else ()
        quota = (QuotaChanged(holder.ref.namespace),) if held.named or held.unnamed else ()
        return frozenset((*freed, *quota))

    def asks(self, claim: Hold) -> tuple[int, int]:
        """Return how many devices `claim` asks for. Return also how many of these no pod of its namespace holds yet."""
        held = self._nodes.get(claim.node, _NodeDevices()).held(claim)
        return len(set(held.named)) + held.unnamed, self.usage.more(claim.ref.namespace, held)

    def key(self, node: str, device: str) -> str:
        """Return the key by which DeviceChanged names this device."""
        states = self._nodes.get(node)
        return device if states is None else states.part(device)[0]

    def rivals(self, node: str, device: str) -> tuple[Hold, ...]:
        """Return who holds this device, or a device that may be the same, in order of name."""
        states = self._nodes.get(node)
        if states is None:
            return ()
        known, other_kinds = states.by_device.get(states.part(device)[0]), states.other_kinds(device)
        if not known and not other_kinds:
            return ()
        found = {
            uid: holder
            for uid, holder in (known or {}).items()
            if any(states.same(device, other) for other in states.taken(holder))
        }
        for holders in other_kinds:
            found.update(holders)
        return _ordered(found)

    def certainly_holds(self, holder: Hold, device: str) -> bool:
        """Whether a recorded holder has this device or a part of it. Otherwise it is unknown what its names mean."""
        states = self._nodes.get(holder.node)
        return states is not None and any(states.same(device, other) for other in states.taken(holder))

    def holders_of(self, node: str, index: int) -> Mapping[str, Hold]:
        """Return by uid who holds the device, a part of it, or a device that may be the same.

        The cost depends only on the number of these holders.
        """
        states = self._nodes.get(node)
        if states is None:
            return {}
        known = states.by_device.get(str(index), {})
        other_kinds = [holders for holders in states.other_kinds(str(index)) if holders]
        return dict(chain.from_iterable(each.items() for each in (known, *other_kinds))) if other_kinds else known

    def held(self, node: str) -> Mapping[str, Mapping[str, Hold]]:
        """Return the holders of all held devices of the node, by the device's key and by uid.

        There may be keys that the inventory does not know.
        """
        states = self._nodes.get(node)
        if states is None:
            return {}
        if states.inventory is None or not states.unknown_by_kind:
            return states.by_device
        found = {str(device.index): self.holders_of(node, device.index) for device in states.inventory.devices}
        return {key: holders for key, holders in found.items() if holders}

    def newest(self) -> Hold | None:
        """Return the newest hold with devices, or None.

        Assumed holds are the newest, then the time in the Binding decides.
        """
        newest = self._latest.newest()
        return None if newest is None else self._nodes[newest[0]].holders[newest[1]]

    def named_holder(self, node: str) -> Hold | None:
        """Return the first pod, in order of name, that holds a device of the node by the device's name."""
        states = self._nodes.get(node)
        holders = (
            {} if states is None else {uid: each for uses in states.by_device.values() for uid, each in uses.items()}
        )
        return next(iter(_ordered(holders)), None)

    def may_share(self, one: Hold, other: Hold, device: str, sharing: Sharing) -> bool:
        """Whether `other` may hold `device` of its node at the same time as `one`."""
        if other.kept and (one.workload, one.index) == (other.workload, other.index):
            # The line is kept for this pod.
            return True
        if one.is_claim or other.is_claim or (one.claims and other.claims):
            # A kubelet gives a device to the pods of one claim alone.
            same = one.ref.namespace == other.ref.namespace and not frozenset(one.claims).isdisjoint(other.claims)
            if not same or one.is_claim or other.is_claim:
                return same
        if sharing is Sharing.NONE:
            return False
        if sharing is Sharing.ANY or (one.sharing_any and other.sharing_any) or (one.shared and other.shared):
            return True
        if one.workload is None or one.workload != other.workload or one.index == other.index:
            return False
        states = self._nodes.get(other.node) or _NodeDevices()
        return all(any(states.part(name) == states.part(device) for name in holder.named) for holder in (one, other))

    def conflicts(self, sharing: Sharing) -> tuple[Conflict, ...]:
        """Return pairs of pods that hold one device against the rules, in a stable order.

        Only nodes that changed since the last call are checked again.
        """
        for node in self._contended:
            found = self._found.setdefault(node, {})
            if sharing not in found:
                found[sharing] = tuple(self._conflicts_of(node, sharing))
        return tuple(conflict for node in sorted(self._contended) for conflict in self._found[node][sharing])

    def moved(self) -> Iterator[tuple[Hold, tuple[MovedGpu, ...]]]:
        """Yield the pods whose GPUs have moved, with these GPUs. The cost depends only on the nodes that have some."""
        for node in sorted(self._moved):
            states = self._nodes[node]
            for holder in _ordered({uid: states.holders[uid] for uid in states.moved}):
                yield holder, states.moved[holder.ref.uid]

    def moved_of(self, holder: Hold) -> tuple[MovedGpu, ...]:
        """Return the GPUs of a recorded pod that have moved."""
        states = self._nodes.get(holder.node)
        return () if states is None else states.moved.get(holder.ref.uid, ())

    def unnamed(self, holder: Hold) -> int:
        """Return how many devices the device plugin chose for the pod."""
        states = self._nodes.get(holder.node)
        return holder.limit if states is not None and states.plugin else 0

    def entries(self) -> Iterator[tuple[object, object]]:
        """List all entries as pairs of key and value, so that two ledgers can be compared."""
        for node, states in self._nodes.items():
            yield ("node", node), (states.inventory, states.plugin)
            for word, table in (
                ("device", states.by_device),
                ("kind", states.by_kind),
                ("unknown", states.unknown_by_kind),
            ):
                for key, holders in table.items():
                    yield (word, node, key), frozenset(holders)
            yield ("moved", node), states.moved
        for node in self._contended:
            yield ("contended", node), True
        yield from self._latest.entries()
        yield from self.usage.entries()

    def _conflicts_of(self, node: str, sharing: Sharing) -> Iterator[Conflict]:
        states = self._nodes[node]
        # Without an inventory, the numbers of a pod with a limit may count from 0 inside its container.
        vague = states.inventory is None
        proven = {
            uid: holder for uid, holder in states.holders.items() if not (vague and holder.limit) and not holder.kept
        }
        for one, other in combinations(_ordered(proven), 2):
            if one.is_claim and other.is_claim:
                # Neither is a pod, so nobody would get the event. What a user's claims share, their driver decides.
                continue
            for device in states.named(one):
                # Only names that certainly mean the same device prove a conflict.
                met = any(states.same(device, claimed) for claimed in states.named(other))
                if met and not self.may_share(one, other, device, sharing):
                    yield Conflict(node, device, one, other)
                    break

    def _after_change(self, node: str) -> None:
        """Update `_contended` and `_moved`, and drop cached conflicts.

        Forget a node without holders, inventory and device plugin.
        """
        states = self._nodes[node]
        self._found.pop(node, None)
        if states.contended:
            self._contended.add(node)
        else:
            self._contended.discard(node)
        if states.moved:
            self._moved.add(node)
        else:
            self._moved.discard(node)
        if not states.holders and states.inventory is None and not states.plugin:
            del self._nodes[node]


def _ordered(holders: dict[str, Hold]) -> tuple[Hold, ...]:
    if len(holders) < 2:  # noqa: PLR2004 - one alone is in order
        return tuple(holders.values())
    return tuple(sorted(holders.values(), key=lambda holder: (holder.ref.namespace, holder.ref.name, holder.ref.uid)))
