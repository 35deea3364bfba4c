"""The figures of growth: each quantity by cluster size, along nodes and along pods."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from bench.results import Growth, Measured


@dataclass(frozen=True, slots=True)
class Quantity:
    """A quantity that may grow with the cluster."""

    what: str
    unit: str
    of: Callable[[Growth], float | None]


QUANTITIES: Final = (
    Quantity("decision by map", "µs", lambda growth: growth.pinned),
    Quantity("decision by strategy", "µs", lambda growth: growth.strategy),
    Quantity("decision on a free line", "µs", lambda growth: growth.line),
    Quantity("taking in a pod", "µs", lambda growth: growth.event),
    Quantity("first decision of a kind", "ms", lambda growth: growth.first),
    Quantity("full collection", "ms", lambda growth: growth.collection),
    Quantity("memory a pod", "kB", lambda growth: growth.pod_memory and growth.pod_memory / 1000),
    Quantity("memory a claim", "kB", lambda growth: growth.claim_memory and growth.claim_memory / 1000),
    Quantity("memory a node", "kB", lambda growth: growth.node_memory and growth.node_memory / 1000),
)


@dataclass(frozen=True, slots=True)
class Grown:
    """The medians of one quantity by nodes and pods, without repetitions that went wrong."""

    quantity: Quantity
    values: Mapping[tuple[int, int], float]

    @property
    def fewest(self) -> int:
        """The least number of pods: the curve along nodes uses it."""
        return min((pods for _, pods in self.values), default=0)

    @property
    def most(self) -> int:
        """The greatest number of nodes: the curve along pods uses it."""
        return max((nodes for nodes, _ in self.values), default=0)

    def by_nodes(self) -> dict[int, float]:
        """The values along nodes, at the least number of pods."""
        return {nodes: value for (nodes, pods), value in sorted(self.values.items()) if pods == self.fewest}

    def by_pods(self) -> dict[int, float]:
        """The values along pods, at the greatest number of nodes."""
        return {pods: value for (nodes, pods), value in sorted(self.values.items()) if nodes == self.most}


def grown(measured: Iterable[Measured]) -> list[Grown]:
    """Return every measured quantity. Cells with a variant are ignored: other pods were placed there before."""
    right = [(each.cell, each.growth) for each in measured if each.growth and not each.wrong and not each.cell.variant]
    found = []
    for quantity in QUANTITIES:
        values: dict[tuple[int, int], list[float]] = defaultdict(list)
        for cell, growth in right:
            value = quantity.of(growth)
            if value is not None:
                values[cell.nodes, cell.pods].append(value)
        if values:
            found.append(Grown(quantity, {size: median(every) for size, every in values.items()}))
    return found
