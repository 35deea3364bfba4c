"""The orderings of the strategies: in which order a strategy takes the nodes that fit, and the devices of a node.

LAW: all strategies order the same choices. A criterion is a number with a name. Choices that are equal in all criteria
come in order of the node's name, so that the same cluster always gives the same decision.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Final, NamedTuple

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.text import number_of


@immutable
class FreeDevice:
    """A device that a pod could have, in its current state."""

    index: int
    memory: int = 0
    """Free MiB; 0 if unknown."""
    utilization: int = 0
    """Percent."""
    holders: int = 0
    degraded: bool = False


class Choice(NamedTuple):
    """The devices that a pod would get on a node."""

    node: Node
    devices: tuple[FreeDevice, ...]
    spare: int = 0
    """How many devices that no pod holds remain on the node in addition to `devices`."""
    busy: int = 0
    """How many of the node's devices pods hold, per mille."""


@immutable
class LastAssigned:
    """The device that was assigned last. Round robin continues after it."""

    node: str
    index: int
    shown: str


@immutable
class Criterion:
    """One number by which choices are compared. The lowest comes first or, if `descending`, the highest."""

    name: str
    why: str
    measure: Callable[[Choice], int]
    show: Callable[[int], str]
    descending: bool = False

    def explain(self, choice: Choice) -> str:
        """Return the number as text for people."""
        return self.show(self.measure(choice))


@immutable
class Ordering:
    """A strategy: which devices of a node it takes first, and by which criteria it compares nodes, in this order."""

    device: Callable[[FreeDevice], tuple[int, ...]]
    criteria: tuple[Criterion, ...]
    reported: Criterion | None = None
    """The criterion that an event reports if no criterion decides. None for round robin: its event names the last
    device."""

    def score(self, choice: Choice) -> tuple[int, ...]:
        """Return the sort key of a choice: the lowest comes first."""
        return tuple([-each.measure(choice) if each.descending else each.measure(choice) for each in self.criteria])

    def reason(self, choice: Choice, next_best: Choice | None, last: LastAssigned | None) -> str:
        """Return, as text for people, the first criterion in which this choice and the next best differ."""
        for criterion in self.criteria:
            if next_best is not None and criterion.measure(choice) != criterion.measure(next_best):
                return f"{criterion.explain(choice)}, {criterion.why}"
        if self.reported is None:
            return "the first by name" if last is None else f"the next after {last.shown}"
        why = "the only node that fits" if next_best is None else "the first by name of those alike"
        return f"{self.reported.explain(choice)}, {why}"


def _sum(field: str) -> Callable[[Choice], int]:
    """Return a function that adds up `field` over a choice's devices."""
    read = attrgetter(field)
    return lambda choice: sum(map(read, choice.devices))


_DEGRADED: Final = Criterion(
    "degraded devices",
    "the fewest",
    _sum("degraded"),
    lambda number: number_of(number, "degraded GPU"),
)


def _least_utilized() -> Ordering:
    utilization = Criterion(
        "utilization",
        "the least",
        _sum("utilization"),
        lambda percent: f"{percent} % utilized",
    )
    holders = Criterion(
        "pods on the devices",
        "the fewest",
        _sum("holders"),
        lambda number: f"shared with {number_of(number, 'pod')}",
    )
    busy = Criterion(
        "busy devices of the node",
        "the least",
        lambda choice: choice.busy,
        lambda amount: f"{amount // 10} % of the node's GPUs held",
    )
    order = attrgetter("degraded", "utilization", "holders", "index")
    return Ordering(order, (_DEGRADED, utilization, holders, busy), utilization)


def _by_memory(*, descending: bool) -> Ordering:
    """Return an ordering by free memory: the least that is enough or, if `descending`, the most."""
    memory = Criterion(
        "free memory",
        "the most" if descending else "the least that fits",
        _sum("memory"),
        lambda amount: f"{amount} MiB free",
        descending,
    )
    spare = Criterion(
        "spare devices of the node",
        "the most" if descending else "the fewest",
        lambda choice: choice.spare,
        lambda number: f"{number_of(number, 'GPU')} of the node left over",
        descending,
    )
    sign = -1 if descending else 1
    return Ordering(
        lambda device: (device.degraded, sign * device.memory, device.index), (_DEGRADED, memory, spare), memory
    )


ORDERINGS: Final[Mapping[Strategy, Ordering]] = {
    Strategy.LEAST_UTILIZED: _least_utilized(),
    Strategy.BEST_FIT: _by_memory(descending=False),
    Strategy.PRIORITY: _by_memory(descending=True),
    Strategy.ROUND_ROBIN: Ordering(attrgetter("degraded", "index"), (_DEGRADED,)),
}
"""Health is the first criterion of every strategy: a degraded device is taken last."""
