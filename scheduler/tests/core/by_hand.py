"""Automatic placement as the requirements tell it, without any list that is kept: every node is looked at each time.

Shares nothing with what it checks but the values that go in.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from gpu_scheduler.core.nodes.inventory import UNREAD, Device, Health
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.count_request import CountRequest, Strategy
from gpu_scheduler.core.policy import Sharing

GPU = "nvidia.com/gpu"
Key = Callable[[Device], tuple[int, ...]]
ORDER = [
    "GpuUnhealthy",
    "NotEnoughGpus",
    "InsufficientResources",
    "PortInUse",
    "NodeNotReady",
    "NodeUnschedulable",
    "TaintNotTolerated",
    "InsufficientGpuMemory",
    "NodeAffinityMismatch",
    "GpuNotFound",
]


@dataclass(frozen=True)
class Live:
    """A pod that is bound, ours or not; `came` says in which order."""

    name: str
    node: str
    came: int
    devices: tuple[str, ...] = ()
    memory: int = 0
    shared: bool = False
    sharing_any: bool = False
    limit: int = 0
    cpu: int = 0
    port: bool = False


@dataclass(frozen=True)
class Ask:
    """What a pod asks for."""

    request: CountRequest
    strategy: Strategy
    sharing_any: bool = False
    observer: bool = False
    limit: int = 0
    cpu: int = 0
    port: bool = False
    zone: str = ""


@dataclass(frozen=True)
class Cluster:
    """All that there is."""

    nodes: tuple[Node, ...]
    live: tuple[Live, ...]
    sharing: Sharing
    goal: int = 80

    def on(self, node: Node) -> list[Live]:
        return [each for each in self.live if each.node == node.name]

    def holders(self, node: Node, index: int) -> list[Live]:
        plugin = node.advertised is not None
        return [each for each in self.on(node) if str(index) in each.devices and not (plugin and each.limit)]

    def place(self, ask: Ask) -> tuple[str, tuple[int, ...]] | str:
        """Node and cards, or the word that is told."""
        answers = {node.name: self.look(node, ask) for node in self.nodes}
        rooms = {name: cards for name, cards in answers.items() if isinstance(cards, list)}
        if not rooms:
            return min((str(answer) for answer in answers.values()), key=ORDER.index, default="GpuNotFound")
        by_name = {node.name: node for node in self.nodes}
        if ask.strategy is Strategy.ROUND_ROBIN:
            name, cards = self.in_turn({name: (by_name[name], cards) for name, cards in rooms.items()}, ask)
        else:
            choices = {name: self.best(by_name[name], cards, ask) for name, cards in rooms.items()}
            name = min(choices, key=lambda name: (self.score(by_name[name], choices[name], ask), natural(name)))
            cards = choices[name]
        if self.by_number(by_name[name], ask):
            return name, tuple(range(ask.request.count))
        return name, tuple(sorted(card.index for card in cards))

    def by_number(self, node: Node, ask: Ask) -> bool:
        return node.advertised is not None and ask.limit > 0

    def look(self, node: Node, ask: Ask) -> list[Device] | str:
        """The cards that fit, or what is in the way."""
        every = [] if node.inventory is None else list(node.inventory.cards)
        typed = [card for card in every if ask.request.gpu_type.lower() in card.model.lower()]
        answer = self.by_plugin if self.by_number(node, ask) else self.by_name
        return answer(node, ask, every, typed)

    def by_plugin(self, node: Node, ask: Ask, every: list[Device], typed: list[Device]) -> list[Device] | str:
        """Any of them: their number counts."""
        if typed != every or (node.advertised or 0) < ask.request.count:
            return "GpuNotFound"
        if min(card.memory or 0 for card in every) < ask.request.memory:
            return "InsufficientGpuMemory"
        left = node.allocatable.get(GPU, 0) - sum(each.limit for each in self.on(node))
        named = any(each.devices and not each.limit for each in self.on(node))
        return self.barred(node, ask) or ("NotEnoughGpus" if named or left < ask.request.count else every)

    def by_name(self, node: Node, ask: Ask, _: list[Device], typed: list[Device]) -> list[Device] | str:
        """Just these."""
        count = ask.request.count
        cards = [card for card in typed if not card.slices]
        if len(cards) < count:
            return "GpuNotFound"
        if sum((card.memory or 0) >= ask.request.memory for card in cards) < count:
            return "InsufficientGpuMemory"
        unsure = node.advertised is not None and not ask.observer and any(each.limit for each in self.on(node))
        free = [card for card in cards if not unsure and self.free(node, card, ask)]
        well = [card for card in free if not self.ill(node, card)]
        lacking = "GpuUnhealthy" if len(free) >= count else "NotEnoughGpus"
        return self.barred(node, ask) or (well if len(well) >= count else lacking)

    def barred(self, node: Node, ask: Ask) -> str:
        """The first thing that keeps pods off the node, whatever its cards."""
        here = self.on(node)
        used = sum(each.cpu for each in here)
        # Who asks for none is not kept away by what others have taken too much of.
        no_cpu = ask.cpu > 0 and used + ask.cpu > node.allocatable["cpu"]
        questions = {
            "NodeNotReady": not node.ready,
            "NodeUnschedulable": node.unschedulable,
            "TaintNotTolerated": node.taints,
            "NodeAffinityMismatch": ask.zone and node.labels.get("zone") != ask.zone,
            "InsufficientResources": len(here) >= node.allocatable["pods"] or no_cpu,
            "PortInUse": ask.port and any(each.port for each in here),
        }
        return next((word for word, yes in questions.items() if yes), "")

    def ill(self, node: Node, card: Device) -> bool:
        return node.stale or node.readings.get(card.index, UNREAD).health is Health.UNHEALTHY

    def room(self, node: Node, card: Device) -> int:
        booked = sum(each.memory for each in self.holders(node, card.index))
        return max(0, (card.memory or 0) - max(booked, node.readings.get(card.index, UNREAD).used))

    def free(self, node: Node, card: Device, ask: Ask) -> bool:
        if ask.observer:
            return (card.memory or 0) >= ask.request.memory
        if node.readings.get(card.index, UNREAD).utilization > self.goal or self.room(node, card) < ask.request.memory:
            return False
        return all(self.lets_in(each, ask) for each in self.holders(node, card.index))

    def lets_in(self, other: Live, ask: Ask) -> bool:
        if self.sharing is not Sharing.SAME_WORKLOAD:
            return self.sharing is Sharing.ANY
        return (other.shared and not ask.request.exclusive) or (other.sharing_any and ask.sharing_any)

    def best(self, node: Node, cards: list[Device], ask: Ask) -> list[Device]:
        """Of one node's cards, those that the strategy takes."""
        keys: dict[Strategy, Key] = {
            Strategy.LEAST_UTILIZED: lambda card: (self.load(node, card), len(self.held(node, card, ask)), card.index),
            Strategy.BEST_FIT: lambda card: (self.left(node, card, ask), card.index),
            Strategy.PRIORITY: lambda card: (-self.left(node, card, ask), card.index),
        }
        key = keys[ask.strategy]
        return sorted(cards, key=lambda card: (self.worn(node, card), *key(card)))[: ask.request.count]

    def score(self, node: Node, cards: list[Device], ask: Ask) -> tuple[int, ...]:
        """How good they are in comparison with other nodes' cards: the lowest wins."""
        worn = sum(self.worn(node, card) for card in cards)
        total, busy = self.busy(node, ask)
        if ask.strategy is Strategy.LEAST_UTILIZED:
            pods = sum(len(self.held(node, card, ask)) for card in cards)
            return worn, sum(self.load(node, card) for card in cards), pods, 1000 * busy // total
        spare = total - busy - sum(not self.held(node, card, ask) for card in cards)
        sign = -1 if ask.strategy is Strategy.PRIORITY else 1
        return worn, sign * sum(self.left(node, card, ask) for card in cards), sign * spare

    def busy(self, node: Node, ask: Ask) -> tuple[int, int]:
        """How many cards there are, and how many of them are taken."""
        if self.by_number(node, ask):
            return node.allocatable.get(GPU, 0), sum(each.limit for each in self.on(node))
        cards = node.inventory.cards if node.inventory is not None else ()
        return len(cards), sum(bool(self.holders(node, card.index)) for card in cards)

    def left(self, node: Node, card: Device, ask: Ask) -> int:
        return (card.memory or 0) if self.by_number(node, ask) else self.room(node, card)

    def held(self, node: Node, card: Device, ask: Ask) -> list[Live]:
        return [] if self.by_number(node, ask) else self.holders(node, card.index)

    def load(self, node: Node, card: Device) -> int:
        return node.readings.get(card.index, UNREAD).utilization

    def worn(self, node: Node, card: Device) -> bool:
        return node.readings.get(card.index, UNREAD).health is Health.DEGRADED

    def in_turn(self, rooms: dict[str, tuple[Node, list[Device]]], ask: Ask) -> tuple[str, list[Device]]:
        """The first that comes behind the newest pod's last card, of those that are worn the least."""
        came = [each for each in self.live if each.devices]
        newest = max(came, key=lambda each: each.came, default=None)
        place = None if newest is None else (natural(newest.node), self.last_card(newest))
        found = []
        for node, cards in rooms.values():
            mine = place is not None and place[0] == natural(node.name)
            after = place[1] if place is not None and mine else -1
            taken = sorted(cards, key=lambda card: (self.worn(node, card), card.index <= after, card.index))
            taken = taken[: ask.request.count]
            if place is None:
                lap = 0
            elif mine:
                lap = 0 if all(card.index > after for card in taken) else 2
            else:
                lap = 0 if natural(node.name) > place[0] else 1
            worn = sum(self.worn(node, card) for card in taken)
            found.append(((worn, lap, natural(node.name)), node.name, taken))
        _, name, taken = min(found, key=lambda each: each[0])
        return name, taken

    def last_card(self, live: Live) -> int:
        node = next((node for node in self.nodes if node.name == live.node), None)
        if node is not None and node.advertised is not None and live.limit:
            return 10**6
        return max(map(int, live.devices))


def natural(name: str) -> list[int | str]:
    """Numbers count as numbers."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]
