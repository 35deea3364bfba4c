"""The nodes that fit pods of one shape, in the order of their strategy, and what all other nodes lack.

LAW: one node at a time is looked at anew, whatever the others are; the best is found without looking at the rest.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Final, NamedTuple
from weakref import ReferenceType, ref

from gpu_scheduler.core.cluster_events import ClassChanged
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.strategies.diagnosis import Diagnosis, FailureCount, NodeNumbers
from gpu_scheduler.core.strategies.equivalence import EquivalenceClass
from gpu_scheduler.core.strategies.node_fit import NodeFilter, NodeFit
from gpu_scheduler.core.strategies.orderings import ORDERINGS, Choice, FreeDevice, LastAssigned
from gpu_scheduler.core.text import natural

_Key = tuple[int | str, ...]

_FOR_GOOD: Final = frozenset(
    {Reason.INSUFFICIENT_GPU_MEMORY, Reason.NODE_AFFINITY_MISMATCH, Reason.GPU_NOT_FOUND},
)
"""What nodes lack that no other pod's end gives them."""


class _RankedNode(NamedTuple):
    """A node that fits, and where it stands."""

    key: _Key
    fit: NodeFit
    choice: Choice


class Ranking:
    """Begins without nodes; whoever has it shows it every one, and again when it changed."""

    __slots__ = (
        "_begun",
        "_diagnosis",
        "_entries",
        "_order",
        "_ordering",
        "_told",
        "_waiting",
        "scale",
        "seen",
        "shape",
        "turn",
    )

    def __init__(self, shape: EquivalenceClass, scale: NodeFilter, places: NodeNumbers) -> None:
        self.shape = shape
        self.scale = scale
        self.turn: LastAssigned | None = None
        """Where a strategy that takes turns goes on."""
        self._ordering = ORDERINGS[shape.kind.strategy]
        self.clear(places)
        self._waiting: ReferenceType[ClassChanged] | None = None
        self._told: Reason | None = None
        self._begun = False

    def clear(self, places: NodeNumbers) -> None:
        """Begin anew, without nodes."""
        self.seen = -1
        """The number of the last change that it was shown."""
        self._entries: dict[str, _RankedNode] = {}
        self._order: list[_Key] = []
        self._diagnosis = Diagnosis(places)

    @property
    def takes_turns(self) -> bool:
        """Whether the last card that was given matters."""
        return self._ordering.telling is None

    def look(self, name: str, node: Node | None) -> None:
        """Take the node as it is now; None is gone."""
        before = self._entries.pop(name, None)
        if before is not None:
            del self._order[bisect_left(self._order, before.key)]
        if node is None:
            self.scale.forget(name)
            self._diagnosis.put(name, None)
            return
        fit = self.scale.weigh(node)
        lack = self.scale.lack(fit, self.shape.gpus)
        if lack is None:
            entry = self._entries[name] = self._entry(fit)
            insort(self._order, entry.key)
            # Labels decide which volumes can be reached, and those are asked for each pod.
            self._begun |= before is None or _relabelled(before.fit.node, node)
        self._diagnosis.put(name, lack)

    def choices(self) -> Iterator[Choice]:
        """What a pod could have, the best first."""
        if self.turn is not None:
            return self._in_turn(self.turn)
        return (self._entries[str(key[-1])].choice for key in self._order)

    def beside(self, cards: Mapping[str, Collection[int]]) -> Iterator[Choice]:
        """What a pod could have of these nodes, these cards before the node's others; the best node first."""
        if self.scale.alone:
            return
        entries = [self._entries[name] for name in cards if name in self._entries]
        for entry in sorted(entries, key=attrgetter("key")):
            first = cards[entry.fit.node.name]
            yield self._choice(entry.fit, sorted(entry.fit.cards, key=lambda card: card.index not in first))

    def reason(self, choice: Choice, rival: Choice | None) -> str:
        """Why this choice and not the next, in people's words."""
        return self._ordering.reason(choice, rival, self.turn)

    @property
    def lacks_for_good(self) -> bool:
        """Whether no node fits, and no waiting cures that."""
        return not self._order and self.lacking in _FOR_GOOD

    @property
    def lacking(self) -> Reason:
        """What is told of where no node fits."""
        return self._diagnosis.leading()

    def count(self, reason: Reason) -> FailureCount:
        """The nodes that lack this."""
        return self._diagnosis.count(reason)

    def wait(self) -> ClassChanged:
        """Somebody waits; what is no news to the first who does is none to whoever joins."""
        wake = self.waiting
        if wake is None:
            wake = ClassChanged(self.shape)
            self._waiting, self._told, self._begun = ref(wake), self._leading(), False
        return wake

    @property
    def waiting(self) -> ClassChanged | None:
        """What wakes those who wait, as long as somebody does."""
        return None if self._waiting is None else self._waiting()

    def tell(self) -> bool:
        """Whether there is news for those who wait; they are told once."""
        if not self._begun and self._leading() is self._told:
            return False
        self._waiting = None
        return True

    def _leading(self) -> Reason | None:
        return None if self._order else self.lacking

    def _entry(self, fit: NodeFit) -> _RankedNode:
        choice, name = self._choice(fit, fit.cards), fit.node.name
        return _RankedNode((*self._ordering.score(choice), natural(name), name), fit, choice)

    def _choice(self, fit: NodeFit, cards: Sequence[FreeDevice]) -> Choice:
        """The first of these cards, as many as are asked for."""
        chosen = tuple(cards[: self.shape.gpus])
        return Choice(fit.node, chosen, fit.whole - sum([not card.holders for card in chosen]), fit.busy)

    def _in_turn(self, turn: LastAssigned) -> Iterator[Choice]:
        """All nodes that are equally worn, beginning behind the card, then those that are worn more."""
        order, here, first = self._order, (natural(turn.node), turn.node), 0
        while first < len(order):
            worn = order[first][0]
            end = bisect_left(order, (int(worn) + 1,), first)
            at = bisect_left(order, (worn, *here), first, end)
            last: list[Choice] = []
            if at < end and order[at][1:] == here:
                last.append(self._behind(self._entries[turn.node].fit, turn.index))
                if all(card.index > turn.index for card in last[0].cards):
                    yield last.pop()
            there = bisect_left(order, (worn, *here, ""), at, end)
            for number in chain(range(there, end), range(first, at)):
                yield self._entries[str(order[number][-1])].choice
            yield from last
            first = end

    def _behind(self, fit: NodeFit, index: int) -> Choice:
        """What the node gives to whoever goes on behind one of its cards."""
        cards = sorted(fit.cards, key=lambda card: (card.degraded, card.index <= index, card.index))
        return self._choice(fit, cards)


def _relabelled(before: Node, node: Node) -> bool:
    return before is not node and before.labels != node.labels
