"""Which pod holds which device of which node, by any of the device's names.

LAW: holds are stored by real node name and by GPU, so that an index, a UUID and the MIG devices of one GPU are found
together. If the node's inventory does not relate two kinds of names, they count as the same device.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

from gpu_scheduler.core.cluster_events import NO_EVENTS, ClusterEvent, DeviceChanged, QuotaChanged
from gpu_scheduler.core.ledger.conflicts import Conflict, SharedBy, node_conflicts
from gpu_scheduler.core.ledger.hold import Hold, in_order
from gpu_scheduler.core.ledger.latest import LatestHold
from gpu_scheduler.core.ledger.moved_gpus import MovedGpu, moved_gpus
from gpu_scheduler.core.ledger.namespace_usage import NOTHING_HELD, Held, NamespaceUsage, NodeDevice
from gpu_scheduler.core.nodes.inventory import DevicePart, Inventory
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.placement_map import NUMBER, device_kind
from gpu_scheduler.core.policy import Sharing

T = TypeVar("T")

_Taken = tuple[str, str, DevicePart | None]
"""A device as its holder calls it, its key, and its part in the inventory if that knows it."""


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
    slices: dict[str, dict[str, frozenset[str]]] = field(default_factory=dict)
    """By the key of a GPU and by uid: the MIG devices of a pod that holds no other part of this GPU."""
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

    def meaning(self, device: str) -> DevicePart | str:
        """Return the device's part in the inventory; its name if the inventory does not know it."""
        return self.part(device)[1] or device

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
        named = [NodeDevice(holder.node, self.meaning(device)) for device in self.named(holder)]
        return Held(named, holder.limit if self.plugin else 0)

    def holds(self, uid: str, device: str) -> bool:
        """Whether a recorded pod holds this device, or one that certainly overlaps."""
        key, part = self.part(device)
        if uid not in self.by_device.get(key, ()):
            return False
        slices = self.slices.get(key, {}).get(uid)
        return slices is None or part is None or part.mig_device is None or part.mig_device in slices

    def insert(self, holder: Hold) -> None:
        uid = holder.ref.uid
        self.holders[uid] = holder
        moved = moved_gpus(self.named(holder), holder.uuids, self.inventory)
        if moved:
            self.moved[uid] = moved
        taken = self._parts(holder)
        self._put_slices(uid, taken)
        for table, key in self._keys(taken):
            table.setdefault(key, {})[uid] = holder
            if table is self.by_device and len(table[key]) > 1:
                self.contended[key] = None

    def remove(self, uid: str) -> set[str]:
        """Remove the pod. Return the keys of the devices that it held."""
        holder = self.holders.pop(uid)
        keys = set()
        for table, key in self._keys(self._parts(holder)):
            left = table.get(key, {})
            left.pop(uid, None)
            if not left:
                table.pop(key, None)
            if table is self.by_device:
                keys.add(key)
                if uid in self.slices.get(key, ()):
                    del self.slices[key][uid]
                if len(left) < 2:  # noqa: PLR2004 - one alone is no contention
                    self.contended.pop(key, None)
        self.moved.pop(uid, None)
        return keys

    def _parts(self, holder: Hold) -> list[_Taken]:
        return [(device, *self.part(device)) for device in self.taken(holder)]

    def _keys(self, taken: Iterable[_Taken]) -> Iterator[tuple[dict[str, dict[str, Hold]], str]]:
        for device, key, part in taken:
            kind = device_kind(device) or ""
            yield self.by_device, key
            yield self.by_kind, kind
            if part is None and kind != NUMBER:
                yield self.unknown_by_kind, kind

    def _put_slices(self, uid: str, taken: Iterable[_Taken]) -> None:
        found: dict[str, set[str]] = {}
        whole = set()
        for _, key, part in taken:
            if part is None or part.mig_device is None:
                whole.add(key)
            else:
                found.setdefault(key, set()).add(part.mig_device)
        for key, slices in found.items():
            if key not in whole:
                self.slices.setdefault(key, {})[uid] = frozenset(slices)

    def copied(self) -> "_NodeDevices":
        """Return a copy of what `entries` lists."""
        return _NodeDevices(
            self.inventory,
            self.plugin,
            by_device=_copied(self.by_device),
            by_kind=_copied(self.by_kind),
            unknown_by_kind=_copied(self.unknown_by_kind),
            slices=_copied(self.slices),
            moved={**self.moved},
        )

    def entries(self, node: str) -> Iterator[tuple[object, object]]:
        """List the entries of this node as pairs of key and value. Nothing may change meanwhile."""
        yield ("node", node), (self.inventory, self.plugin)
        for word, table in (("device", self.by_device), ("kind", self.by_kind), ("unknown", self.unknown_by_kind)):
            for key, holders in table.items():
                yield (word, node, key), frozenset(holders)
        for key, slices in self.slices.items():
            yield from ((("slices", node, key, uid), found) for uid, found in slices.items())
        yield ("moved", node), self.moved

    def other_kinds(self, device: str) -> list[dict[str, Hold]]:
        """Return the holders that use another kind of name, if these names may mean this device."""
        known = self.part(device)[1] is not None or (self.inventory is not None and device_kind(device) == NUMBER)
        tables = self.unknown_by_kind if known else self.by_kind
        kind = device_kind(device) if tables else None
        return [holders for other, holders in tables.items() if other != kind]


def _copied(table: dict[str, dict[str, T]]) -> dict[str, dict[str, T]]:
    return {key: {**inner} for key, inner in table.items()}


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

    def asks(self, candidate: Hold) -> tuple[int, int]:
        """Return how many devices `candidate` asks for, and how many of these no pod of its namespace holds yet."""
        held = self._nodes.get(candidate.node, _NodeDevices()).held(candidate)
        return len(set(held.named)) + held.unnamed, self.usage.more(candidate.ref.namespace, held)

    def key(self, node: str, device: str) -> str:
        """Return the key by which DeviceChanged names this device."""
        states = self._nodes.get(node)
        return device if states is None else states.part(device)[0]

    def rivals(self, node: str, device: str) -> tuple[Hold, ...]:
        """Return who holds this device, or a device that may be the same."""
        states = self._nodes.get(node)
        if states is None:
            return ()
        known, other_kinds = states.by_device.get(states.part(device)[0]), states.other_kinds(device)
        if not known and not other_kinds:
            return ()
        found = {uid: holder for uid, holder in (known or {}).items() if states.holds(uid, device)}
        for holders in other_kinds:
            found.update(holders)
        return tuple(found.values())

    def certainly_holds(self, holder: Hold, device: str) -> bool:
        """Whether a recorded holder has this device or a part of it. Otherwise it is unknown what its names mean."""
        states = self._nodes.get(holder.node)
        return states is not None and states.holds(holder.ref.uid, device)

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
        return next(iter(in_order(holders.values())), None)

    def shared_by(self, one: Hold, sharing: Sharing) -> SharedBy:
        """Return which devices of its node `one` may hold at the same time as others there."""
        states = self._nodes.get(one.node) or _NodeDevices()
        return SharedBy(one, sharing, states.meaning)

    def unchecked(self, sharing: Sharing) -> list[str]:
        """Return the nodes with devices of several pods that have changed since conflicts were looked for there."""
        return [node for node in self._contended if sharing not in self._found.get(node, ())]

    def check(self, node: str, sharing: Sharing) -> None:
        """Look for conflicts on this node, unless it has none any more or was looked at since."""
        if node in self._contended and sharing not in self._found.get(node, ()):
            self._found.setdefault(node, {})[sharing] = tuple(self._conflicts_of(node, sharing))

    def conflicts(self, sharing: Sharing) -> tuple[Conflict, ...]:
        """Return pairs of pods that hold one device against the rules, in a stable order.

        Only nodes that changed since the last call are checked again.
        """
        for node in self.unchecked(sharing):
            self.check(node, sharing)
        return tuple(conflict for node in sorted(self._contended) for conflict in self._found[node][sharing])

    def moved(self) -> Iterator[tuple[Hold, tuple[MovedGpu, ...]]]:
        """Yield the pods whose GPUs have moved, with these GPUs. The cost depends only on the nodes that have some."""
        for node in sorted(self._moved):
            states = self._nodes[node]
            for holder in in_order(states.holders[uid] for uid in states.moved):
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
        """List the entries of this moment as pairs of key and value, also if they are read after later changes."""
        nodes = [(node, states.copied()) for node, states in self._nodes.items()]
        return chain(
            chain.from_iterable(states.entries(node) for node, states in nodes),
            ((("contended", node), True) for node in tuple(self._contended)),
            self._latest.entries(),
            self.usage.entries(),
        )

    def _conflicts_of(self, node: str, sharing: Sharing) -> Iterator[Conflict]:
        states = self._nodes[node]
        # Without an inventory, the numbers of a pod with a limit may count from 0 inside its container.
        vague = states.inventory is None
        contenders = {uid: each for key in states.contended for uid, each in states.by_device[key].items()}
        proven = [each for each in contenders.values() if not (vague and each.limit) and not each.kept]
        return node_conflicts([(each, states.named(each)) for each in in_order(proven)], states.meaning, sharing)

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
