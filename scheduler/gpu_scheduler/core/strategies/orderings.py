"""How the strategies differ: by the order in which they take nodes, and cards of a node, where a pod fits.

LAW: a table of orderings over one result. What makes one choice better than another is a number with a name; those that
are alike in all of them come in order of name, so that the same cluster always gives the same answer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple

from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.text import number_of


@dataclass(frozen=True, slots=True)
class FreeDevice:
    """A card that a pod could have, as it is now."""

    index: int
    free: int = 0
    """MiB that nobody has; 0 where nobody knows."""
    utilization: int = 0
    """Percent."""
    holders: int = 0
    degraded: bool = False


class Choice(NamedTuple):
    """The cards that a pod would get on a node."""

    node: Node
    cards: tuple[FreeDevice, ...]
    spare: int = 0
    """How many cards that nobody holds stay on the node beside them."""
    busy: int = 0
    """How many of the node's cards somebody holds, per mille."""


@dataclass(frozen=True, slots=True)
class LastAssigned:
    """The card that was given last: whoever takes turns goes on behind it."""

    node: str
    index: int
    shown: str


@dataclass(frozen=True, slots=True)
class Criterion:
    """One number by which choices are compared: the least comes first or, `turned`, the most."""

    name: str
    why: str
    measure: Callable[[Choice], int]
    show: Callable[[int], str]
    turned: bool = False

    def explain(self, choice: Choice) -> str:
        """The number in people's words."""
        return self.show(self.measure(choice))


@dataclass(frozen=True, slots=True)
class Ordering:
    """A strategy: which cards of a node it takes first, and by which terms it compares nodes, the first before all."""

    card: Callable[[FreeDevice], tuple[int, ...]]
    terms: tuple[Criterion, ...]
    telling: Criterion | None = None
    """The term that is told where none decides; None where it takes turns: then it goes on behind the last card."""

    def score(self, choice: Choice) -> tuple[int, ...]:
        """What the choice is sorted by: whose score is lower comes first."""
        return tuple([-term.measure(choice) if term.turned else term.measure(choice) for term in self.terms])

    def reason(self, choice: Choice, rival: Choice | None, turn: LastAssigned | None) -> str:
        """Why this choice and not `rival`, the next best: the first term in which they differ, in people's words."""
        for term in self.terms:
            if rival is not None and term.measure(choice) != term.measure(rival):
                return f"{term.explain(choice)}, {term.why}"
        if self.telling is None:
            return "the first by name" if turn is None else f"the next after {turn.shown}"
        why = "the only node that fits" if rival is None else "the first by name of those alike"
        return f"{self.telling.explain(choice)}, {why}"


def _sum(field: str) -> Callable[[Choice], int]:
    """That of a choice's cards."""
    read = attrgetter(field)
    return lambda choice: sum(map(read, choice.cards))


_WORN: Final = Criterion(
    "degraded cards",
    "the fewest",
    _sum("degraded"),
    lambda number: number_of(number, "degraded GPU"),
)


def _least_utilized() -> Ordering:
    load = Criterion(
        "utilization",
        "the least",
        _sum("utilization"),
        lambda percent: f"{percent} % utilized",
    )
    company = Criterion(
        "pods on the cards",
        "the fewest",
        _sum("holders"),
        lambda number: f"shared with {number_of(number, 'pod')}",
    )
    busy = Criterion(
        "busy cards of the node",
        "the least",
        lambda choice: choice.busy,
        lambda amount: f"{amount // 10} % of the node's GPUs held",
    )
    return Ordering(attrgetter("degraded", "utilization", "holders", "index"), (_WORN, load, company, busy), load)


def _by_room(*, turned: bool) -> Ordering:
    """The room that fits best or, turned round, the roomiest."""
    room = Criterion(
        "free memory",
        "the most" if turned else "the least that fits",
        _sum("free"),
        lambda amount: f"{amount} MiB free",
        turned,
    )
    spare = Criterion(
        "spare cards of the node",
        "the most" if turned else "the fewest",
        lambda choice: choice.spare,
        lambda number: f"{number_of(number, 'GPU')} of the node left over",
        turned,
    )
    sign = -1 if turned else 1
    return Ordering(lambda card: (card.degraded, sign * card.free, card.index), (_WORN, room, spare), room)


ORDERINGS: Final[Mapping[Strategy, Ordering]] = {
    Strategy.LEAST_UTILIZED: _least_utilized(),
    Strategy.BEST_FIT: _by_room(turned=False),
    Strategy.PRIORITY: _by_room(turned=True),
    Strategy.ROUND_ROBIN: Ordering(attrgetter("degraded", "index"), (_WORN,)),
}
"""Health comes before all else: a card that wears is taken last."""
