"""What one node has for the pods of one kind: cards that they can have, or what it lacks first.

LAW: reads one node and what the ledger has of it, never another. All pods of one kind get one answer, however many
cards each of them asks for; it holds until something changes there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from gpu_scheduler import names
from gpu_scheduler.core.filters import gpu_filters, node_filters
from gpu_scheduler.core.ledger.hold import Hold, assumed_hold
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.inventory import UNREAD, Device, DeviceReading, Health
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.policy import Policy, Sharing
from gpu_scheduler.core.reasons import Reason, Unschedulable
from gpu_scheduler.core.strategies.equivalence import PlacementRequirements
from gpu_scheduler.core.strategies.orderings import ORDERINGS, FreeDevice


class NodeFit(NamedTuple):
    """What a node has for the pods of one kind."""

    node: Node
    suited: int
    """How many of its cards would do, were all of them free."""
    bar: Reason | None
    """What keeps the pods off the node apart from its GPUs."""
    cards: tuple[FreeDevice, ...]
    """Those that the pods can have, in the order in which their strategy takes them."""
    left: int
    """How many they can have; any of `cards`, where a device plugin chooses."""
    free: int
    """How many they could have, were all of them well."""
    whole: int
    """How many of the node's cards nobody holds."""
    busy: int
    """How many somebody holds, per mille."""


@dataclass(frozen=True, slots=True)
class FilterFailure:
    """What a node lacks first, and how much of it there is."""

    reason: Reason
    offer: int = 0


class _StaticFit(NamedTuple):
    """What of a node no pod changes."""

    node: Node
    suited: int
    bar: Reason | None
    limits: tuple[tuple[str, int], ...]
    """How much may be used of a resource, so that there is enough for one more pod."""
    every: tuple[str, ...]
    """The keys of all cards."""
    cards: tuple[FreeDevice, ...]
    """Those that the pods could have if nobody held any, in order."""
    keys: tuple[str, ...]
    """Theirs."""
    ill: tuple[str, ...]
    """The keys of those that they could have likewise, were they well."""


_NOBODY: Final[Mapping[str, Hold]] = {}
_NOTHING: Final[Mapping[str, Mapping[str, Hold]]] = {}


class NodeFilter:
    """Weighs nodes for the pods of one kind, and remembers what it found."""

    __slots__ = (
        "__weakref__",
        "_claim",
        "_known",
        "_ledger",
        "_order",
        "_sample",
        "_sharing",
        "_type",
        "alone",
        "goal",
        "kind",
    )

    def __init__(self, kind: PlacementRequirements, sample: Pod, ledger: Ledger, policy: Policy) -> None:
        """`sample` is one of the pods."""
        self.kind = kind
        self._sample = sample
        self.goal = policy.utilization_goal
        self._sharing = policy.sharing
        self._ledger = ledger
        self._type = kind.gpu_type.lower()
        self._order = ORDERINGS[kind.strategy].card
        # What one of them would hold, wherever it goes.
        self._claim = assumed_hold(sample, Placement("", ("0",), None))
        self.alone = kind.exclusive and not (kind.sharing_any or kind.observer or policy.sharing is Sharing.ANY)
        """Whether they can have no card that anybody holds, whoever that is."""
        self._known: dict[str, tuple[int, _StaticFit, NodeFit]] = {}
        """By node, and up to which change it holds."""

    def weigh(self, node: Node) -> NodeFit:
        """What there is for them; costs next to nothing where nothing has changed since."""
        touched = self._ledger.touched
        seen, static, fit = self._known.get(node.name, (-1, None, None))
        if static is None or static.node is not node:
            static = self._static_fit(node)
        elif fit is not None and seen >= touched.last(node.name):
            return fit
        fit = self._by_plugin(static) if self.kind.by_number(node) else self._by_card(static)
        self._known[node.name] = touched.now, static, fit
        return fit

    def forget(self, name: str) -> None:
        """The node is gone."""
        self._known.pop(name, None)

    def keep(self, nodes: Iterable[str]) -> None:
        """All others are gone."""
        for name in self._known.keys() - nodes:
            del self._known[name]

    def lack(self, fit: NodeFit, count: int) -> FilterFailure | None:
        """What the node lacks for those who ask for so many; what no waiting changes is asked first."""
        if fit.suited < count:
            return self._never(fit.node, count)
        if fit.bar is not None:
            return FilterFailure(fit.bar)
        if fit.left >= count:
            return None
        # Health is in the way where nothing else is.
        unhealthy = fit.free >= count
        return FilterFailure(Reason.GPU_UNHEALTHY) if unhealthy else FilterFailure(Reason.NOT_ENOUGH_GPUS, fit.left)

    def bar(self, node: Node) -> Unschedulable | None:
        """What keeps them off the node apart from its GPUs."""
        pod, occupancy = self._sample, self._ledger.occupancy
        return (
            self._closed(node)
            or node_filters.room_left(pod, node, occupancy)
            or node_filters.ports_free(pod, node, occupancy)
        )

    def ailment(self, node: Node) -> str:
        """What is wrong with the health of GPUs that they could have otherwise, in people's words."""
        if node.stale:
            return f"the monitor of {node.name} is silent"
        _, ill = self._judged(node, self._ledger.devices.held(node.name))
        return f"GPU {ill[0]} of {node.name} is unhealthy"

    def _closed(self, node: Node) -> Unschedulable | None:
        """What keeps them off the node, whoever is there."""
        pod = self._sample
        return (
            node_filters.node_usable(pod, node)
            or node_filters.taints_tolerated(pod, node)
            or node_filters.node_selected(pod, node)
        )

    def _static_fit(self, node: Node) -> _StaticFit:
        closed, every, (there, sizes) = self._closed(node), _cards(node), self._sizes(node)
        enough = sum([size >= self.kind.memory for size in sizes])
        if self.kind.by_number(node):
            # Any of the node's cards stand for those that the plugin will give.
            well = sorted([_as_read(node, card) for card in every], key=self._order)
            ill: list[int] = []
        else:
            well, ill = self._judged(node, _NOTHING)
        return _StaticFit(
            node,
            there if enough == len(sizes) else enough,
            None if closed is None else closed.reason,
            tuple([(name, there - asked) for name, asked, there in node_filters.requested_of(self._sample, node)]),
            _keys(tuple([card.index for card in every])),
            tuple(well),
            _keys(tuple([card.index for card in well])),
            _keys(tuple(ill)),
        )

    def _by_card(self, static: _StaticFit) -> NodeFit:
        node, every = static.node, len(static.every)
        held = self._ledger.devices.held(node.name)
        cards, ill = static.cards, len(static.ill)
        if gpu_filters.plugin_apart(self._claim, node, self._ledger) is not None:
            cards, ill = (), 0
        elif held and self.alone:
            cards = tuple([card for key, card in zip(static.keys, cards, strict=True) if key not in held])
            ill = sum([key not in held for key in static.ill])
        elif held:
            well, sick = self._judged(node, held)
            cards, ill = tuple(well), len(sick)
        taken = sum([key in held for key in static.every]) if held else 0
        busy = 1000 * taken // every if taken else 0
        return NodeFit(node, static.suited, self._bar(static), cards, len(cards), len(cards) + ill, every - taken, busy)

    def _by_plugin(self, static: _StaticFit) -> NodeFit:
        """As many as the plugin has left; which cards it gives nobody knows, so all of them must do."""
        node = static.node
        total = node.allocatable.get(names.GPU_RESOURCE, 0)
        left = max(total - self._ledger.occupancy.used(node.name, names.GPU_RESOURCE), 0)
        if gpu_filters.plugin_apart(self._claim, node, self._ledger) is not None:
            left = 0
        busy = 1000 * (total - left) // total if left else 1000
        return NodeFit(node, static.suited, self._bar(static), static.cards, left, left, left, busy)

    def _bar(self, static: _StaticFit) -> Reason | None:
        """The reason of `bar`."""
        name, occupancy = static.node.name, self._ledger.occupancy
        if static.bar is not None:
            return static.bar
        for resource, most in static.limits:
            if occupancy.used(name, resource) > most:
                return Reason.INSUFFICIENT_RESOURCES
        port = node_filters.ports_free(self._sample, static.node, occupancy) if self.kind.ports else None
        return None if port is None else port.reason

    def _suited(self, node: Node) -> list[Device]:
        """The cards of the type that is asked for. One that is cut into slices is nobody's as a whole."""
        return [card for card in _cards(node) if not card.slices and self._is_typed(card)]

    def _is_typed(self, card: Device) -> bool:
        return not self._type or self._type in card.model.lower()

    def _sizes(self, node: Node) -> tuple[int, list[int]]:
        """How many cards there are of the type, and the memory of each, largest first.

        Which cards a plugin gives nobody knows: all of them must do, and count as the smallest.
        """
        if not self.kind.by_number(node):
            sizes = sorted([card.memory or 0 for card in self._suited(node)], reverse=True)
            return len(sizes), sizes
        cards = _cards(node)
        there = (node.advertised or 0) if all(map(self._is_typed, cards)) else 0
        return there, [min([card.memory or 0 for card in cards], default=0)]

    def _never(self, node: Node, count: int) -> FilterFailure:
        """Were all cards free, there would be too few, or too small ones."""
        there, sizes = self._sizes(node)
        if there < count:
            return FilterFailure(Reason.GPU_NOT_FOUND, there)
        return FilterFailure(Reason.INSUFFICIENT_GPU_MEMORY, sizes[min(count, len(sizes)) - 1])

    def _judged(self, node: Node, held: Mapping[str, Mapping[str, Hold]]) -> tuple[list[FreeDevice], list[int]]:
        """What they could have of each card that is well, in order, and which are ill that they could have else."""
        well, ill = [], []
        for card in self._suited(node):
            reading = node.readings.get(card.index, UNREAD)
            free = self._free(card, reading, held.get(str(card.index), _NOBODY) if held else _NOBODY)
            # Its monitor says that it is ill, or has said nothing for too long.
            if free is not None and (node.stale or reading.health is Health.UNHEALTHY):
                ill.append(card.index)
            elif free is not None:
                well.append(free)
        return sorted(well, key=self._order), ill

    def _free(self, card: Device, reading: DeviceReading, holders: Mapping[str, Hold]) -> FreeDevice | None:
        """The card, if they could have it as far as its holders, its load and its memory go."""
        kind, total = self.kind, card.memory or 0
        booked = sum([holder.memory for holder in holders.values()]) if holders else 0
        free = max(total - max(booked, reading.used), 0)
        if kind.observer:
            # It takes nothing from anybody.
            if total < kind.memory:
                return None
        elif (
            free < kind.memory
            or reading.utilization > self.goal
            or (holders and not all(self._shares(holder, card) for holder in holders.values()))
        ):
            return None
        return _free_card(card.index, free, reading.utilization, len(holders), reading.health is Health.DEGRADED)

    def _shares(self, holder: Hold, card: Device) -> bool:
        return self._ledger.devices.may_share(self._claim, holder, str(card.index), self._sharing)


# Most cards that are free are as idle as those of other nodes: one value serves them all.
_free_card: Final = lru_cache(maxsize=4096)(FreeDevice)


@lru_cache(maxsize=64)
def _keys(indices: tuple[int, ...]) -> tuple[str, ...]:
    """The names of cards in the ledger; most nodes have the same."""
    return tuple(map(str, indices))


def _as_read(node: Node, card: Device) -> FreeDevice:
    reading = node.readings.get(card.index, UNREAD)
    return _free_card(card.index, card.memory or 0, reading.utilization, 0, reading.health is Health.DEGRADED)


def _cards(node: Node) -> tuple[Device, ...]:
    return () if node.inventory is None else node.inventory.cards
