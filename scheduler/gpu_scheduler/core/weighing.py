"""What one node has for the pods of one shape: cards that they can have, or what it lacks first.

LAW: reads one node and what the ledger has of it, never another; all pods of one shape get one answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core import feasible, fitting
from gpu_scheduler.core.constraints import Term, Toleration
from gpu_scheduler.core.counting import CountRequest, Strategy
from gpu_scheduler.core.demand import HostPort
from gpu_scheduler.core.holding import Holder, claim_of
from gpu_scheduler.core.inventory import UNREAD, Card, Health
from gpu_scheduler.core.ledger import Ledger
from gpu_scheduler.core.model import Node, Placement, Pod, Policy
from gpu_scheduler.core.reasons import Obstacle, Reason
from gpu_scheduler.core.strategies import FreeCard


@dataclass(frozen=True, slots=True)
class Shape:
    """All that decides which nodes fit a pod, and in which order; `sample` is one of the pods that have it."""

    count: int
    memory: int
    exclusive: bool
    gpu_type: str
    strategy: Strategy
    sharing_any: bool
    observer: bool
    limit: int
    selector: frozenset[tuple[str, str]]
    affinity: tuple[Term, ...] | None
    tolerations: tuple[Toleration, ...]
    requests: frozenset[tuple[str, int]]
    ports: frozenset[HostPort]
    sample: Pod = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Room:
    """A node that fits, and all of its cards that the pods could have."""

    node: Node
    cards: tuple[FreeCard, ...]
    whole: int
    """How many of the node's cards nobody holds."""
    busy: int
    """How many somebody holds, per mille."""


@dataclass(frozen=True, slots=True)
class Lack:
    """What a node lacks first, and how much of it there is."""

    reason: Reason
    offer: int = 0


def shape_of(pod: Pod, request: CountRequest, strategy: Strategy) -> Shape:
    """What the pod has in common with all that are placed alike; its volumes are its own."""
    constraints, demand = pod.constraints, pod.demand
    return Shape(
        request.count,
        request.memory,
        request.exclusive,
        request.gpu_type,
        request.strategy or strategy,
        pod.sharing_any,
        pod.observer,
        pod.gpu_limit,
        frozenset(constraints.selector.items()),
        constraints.affinity,
        constraints.tolerations,
        frozenset(demand.requests.items()),
        demand.ports,
        pod,
    )


_NOBODY: Final[Mapping[str, Holder]] = {}


class Scale:
    """Weighs nodes for the pods of one shape."""

    def __init__(self, shape: Shape, ledger: Ledger, policy: Policy) -> None:
        self.shape = shape
        self.goal = policy.utilization_goal
        self._sharing = policy.sharing
        self._ledger = ledger
        self._type = shape.gpu_type.lower()
        # What one of them would hold, wherever it goes.
        self._claim = claim_of(shape.sample, Placement("", tuple(map(str, range(shape.count))), None))

    def weigh(self, node: Node) -> Room | Lack:
        """What there is for them; what no waiting changes is asked first."""
        if by_number(self.shape, node):
            return self._plugin_lacks(node) or self._barred(node) or self._plugin_room(node)
        suited = self._suited(node)
        return self._lacks(suited) or self._barred(node) or self._room(node, suited)

    def bar(self, node: Node) -> Obstacle | None:
        """What keeps them off the node apart from its GPUs."""
        pod, occupancy = self.shape.sample, self._ledger.occupancy
        return (
            fitting.node_usable(pod, node)
            or fitting.taints_tolerated(pod, node)
            or fitting.node_selected(pod, node)
            or fitting.room_left(pod, node, occupancy)
            or fitting.ports_free(pod, node, occupancy)
        )

    def ailment(self, node: Node) -> str:
        """What is wrong with the health of GPUs that they could have otherwise, in people's words."""
        if node.stale:
            return f"the monitor of {node.name} is silent"
        ill = next(card.index for card, free in self._judged(node, self._suited(node)) if free and _is_ill(node, card))
        return f"GPU {ill} of {node.name} is unhealthy"

    def _barred(self, node: Node) -> Lack | None:
        obstacle = self.bar(node)
        return None if obstacle is None else Lack(obstacle.reason)

    def _suited(self, node: Node) -> list[Card]:
        """The cards of the type that is asked for. One that is cut into slices is nobody's as a whole."""
        return [card for card in _cards(node) if not card.slices and self._type in card.model.lower()]

    def _lacks(self, suited: list[Card]) -> Lack | None:
        """Were they all free, there would be too few, or too small ones."""
        count, memory = self.shape.count, self.shape.memory
        if len(suited) < count:
            return Lack(Reason.GPU_NOT_FOUND, len(suited))
        offer = sorted((card.memory or 0 for card in suited), reverse=True)[count - 1]
        return Lack(Reason.INSUFFICIENT_GPU_MEMORY, offer) if offer < memory else None

    def _room(self, node: Node, suited: list[Card]) -> Room | Lack:
        """Health is in the way where nothing else is."""
        if feasible.plugin_apart(self._claim, node, self._ledger) is not None:
            return Lack(Reason.NOT_ENOUGH_GPUS)
        judged = self._judged(node, suited)
        well = tuple([free for card, free in judged if free is not None and not _is_ill(node, card)])
        if len(well) < self.shape.count:
            ill = sum(free is not None for _, free in judged) >= self.shape.count
            return Lack(Reason.GPU_UNHEALTHY) if ill else Lack(Reason.NOT_ENOUGH_GPUS, len(well))
        cards, held = _cards(node), self._ledger.devices.held(node.name)
        busy = sum([str(card.index) in held for card in cards]) if held else 0
        return Room(node, well, len(cards) - busy, 1000 * busy // len(cards))

    def _judged(self, node: Node, suited: list[Card]) -> list[tuple[Card, FreeCard | None]]:
        """Each card with what they could have of it, were it well."""
        held = self._ledger.devices.held(node.name)
        return [(card, self._free(node, card, held.get(str(card.index), _NOBODY))) for card in suited]

    def _free(self, node: Node, card: Card, holders: Mapping[str, Holder]) -> FreeCard | None:
        """The card, if they could have it as far as its holders, its load and its memory go."""
        shape, reading, total = self.shape, node.readings.get(card.index, UNREAD), card.memory or 0
        booked = sum([holder.memory for holder in holders.values()]) if holders else 0
        free = max(total - max(booked, reading.used), 0)
        if shape.observer:
            # It takes nothing from anybody.
            if total < shape.memory:
                return None
        elif (
            free < shape.memory
            or reading.utilization > self.goal
            or (holders and not all(self._shares(holder, card) for holder in holders.values()))
        ):
            return None
        return FreeCard(card.index, free, reading.utilization, len(holders), reading.health is Health.DEGRADED)

    def _shares(self, holder: Holder, card: Card) -> bool:
        return self._ledger.devices.may_share(self._claim, holder, str(card.index), self._sharing)

    def _plugin_lacks(self, node: Node) -> Lack | None:
        """Which cards the plugin gives nobody knows, so all of them must do."""
        cards = _cards(node)
        there = (node.advertised or 0) if all(self._type in card.model.lower() for card in cards) else 0
        if there < self.shape.count:
            return Lack(Reason.GPU_NOT_FOUND, there)
        offer = min((card.memory or 0 for card in cards), default=0)
        return Lack(Reason.INSUFFICIENT_GPU_MEMORY, offer) if offer < self.shape.memory else None

    def _plugin_room(self, node: Node) -> Room | Lack:
        """As many as the plugin has left; any of the node's cards stand for those that it will give."""
        total = node.allocatable.get(names.GPU_RESOURCE, 0)
        left = total - self._ledger.occupancy.used(node.name, names.GPU_RESOURCE)
        if feasible.plugin_apart(self._claim, node, self._ledger) is not None:
            left = 0
        if left < self.shape.count:
            return Lack(Reason.NOT_ENOUGH_GPUS, max(left, 0))
        cards = tuple(_as_read(node, card) for card in _cards(node))
        return Room(node, cards, left, 1000 * (total - left) // total)


def by_number(shape: Shape, node: Node) -> bool:
    """Whether a device plugin chooses the cards there, so that only their number counts."""
    return node.advertised is not None and shape.limit > 0


def _as_read(node: Node, card: Card) -> FreeCard:
    reading = node.readings.get(card.index, UNREAD)
    return FreeCard(card.index, card.memory or 0, reading.utilization, 0, reading.health is Health.DEGRADED)


def _cards(node: Node) -> tuple[Card, ...]:
    return () if node.inventory is None else node.inventory.cards


def _is_ill(node: Node, card: Card) -> bool:
    """Its monitor says so, or has said nothing for too long."""
    return node.stale or node.readings.get(card.index, UNREAD).health is Health.UNHEALTHY
