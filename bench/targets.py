"""The targets of the benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.comparison import OURS, added, at, compared, least, most, of_ours, sizes_compared
from bench.figures import (
    answer_rate,
    claim_memory,
    cpu_a_pod,
    creation,
    event_delay,
    event_rate,
    first_bind,
    gap,
    idle_share,
    latency,
    memory_beside_pods,
    memory_growth,
    memory_share,
    pod_memory,
    reads_a_pod,
    writes_a_pod,
)
from bench.results import Cell

if TYPE_CHECKING:
    from bench.comparison import Estimate, Find

GROWTH: Final = "growth"
CHURNED: Final = (1000, 1000)
"""Nodes and pods of the cluster on which many more pods are placed and removed before the measurement."""
AFTER: Final = "after 50,000 pods"
WITH_CLAIMS: Final = "with claims"
CLAIMED: Final = (1000, 10_000)
"""Nodes and pods of the cluster in which each pod has a ResourceClaim."""
_LEASE: Final = 15.0
"""Duration of the Lease in seconds, as in the defaults of the scheduler's role."""
_ELECTION: Final = 0.005
"""A new leader lists each collection once more: in a workload of many pods less than one read for 200 pods."""


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on one figure of a workload; `find` returns None without cells for it."""

    workload: str
    what: str
    contenders: str
    bound: float
    at_least: bool
    find: Find
    unit: str = ""

    def met(self, found: Estimate | None) -> bool | None:
        """Return whether the value is within the bound; None without a value."""
        if found is None or found.value is None:
            return None
        return found.value >= self.bound if self.at_least else found.value <= self.bound


def _size_of(nodes: int, pods: int, variant: str = "") -> Cell:
    return Cell(GROWTH, OURS, variant, nodes, pods)


_CHURN: Final = sizes_compared(lambda growth: growth.line, _size_of(*CHURNED, AFTER), _size_of(*CHURNED))
_BY_MAP: Final = sizes_compared(lambda growth: growth.pinned, _size_of(5000, 100), _size_of(10, 100))
_BY_STRATEGY: Final = sizes_compared(lambda growth: growth.strategy, _size_of(5000, 1000), _size_of(100, 1000))
_WAIT: Final = of_ours("neighbour", latency(99))
_SUSTAINED: Final = compared("W2-sustained", ("W2-sustained", "A"))
TARGETS: Final = (
    Target("W1", "rate to the last bind", "O/L0", 0.8, True, compared("W1", ("W1", "L0"))),
    Target("W1", "rate to the last event", "O/L", 0.95, True, compared("W1", ("W1", "L"), event_rate)),
    Target("W1", "rate to the last bind", "O/F", 0.95, True, compared("W1", ("W1", "F"))),
    Target("W1", "rate to the last bind", "O/K", 1.5, True, compared("W1", ("W1", "K"))),
    Target("W1", "least of the interval of that", "O/K", 1.4, True, least(compared("W1", ("W1", "K")))),
    Target("W1", "rate to the last bind", "O/N", 5.0, True, compared("W1", ("W1", "N"))),
    Target("W1", "CPU a pod", "O", 0.4, False, of_ours("W1", cpu_a_pod), "ms"),
    Target("W1", "CPU a pod that decisions cost", "O-F", 0.04, False, added("W1", "F", cpu_a_pod), "ms"),
    Target("W1", "writes a pod", "O", 2.0, False, of_ours("W1", writes_a_pod)),
    Target("W1", "reads a pod, an election's lists included", "O", _ELECTION, False, of_ours("W1", reads_a_pod)),
    Target("W2", "from creation to bind, p50", "O", 5.0, False, of_ours("W2", latency(50)), "ms"),
    Target("W2", "added to that of A, p99", "O-A", 50.0, False, added("W2", "A", latency(99)), "ms"),
    Target("W2", "from bind to event, p99", "O", 1.0, False, of_ours("W2", event_delay), "s"),
    Target("W2-sustained", "most of the interval of the rate", "O/A", 0.95, True, most(_SUSTAINED)),
    Target("W1-5000", "rate to the last bind", "O/N", 30.0, True, compared("W1-5000", ("W1-5000", "N"))),
    Target(
        "W3", "rate to the last event, 70 % full", "O/L", 0.7, True, at("70%", compared("W3", ("W3", "L"), event_rate))
    ),
    Target(
        "W3", "rate to the last event, 95 % full", "O/L", 0.7, True, at("95%", compared("W3", ("W3", "L"), event_rate))
    ),
    Target("W3", "rate to the last bind, 70 % full", "O/K", 1.0, True, at("70%", compared("W3", ("W3", "K")))),
    Target("W3", "rate to the last bind, 95 % full", "O/K", 1.0, True, at("95%", compared("W3", ("W3", "K")))),
    Target("W4", "rate of the stream beside that of W2", "O/O", 0.9, True, compared("W4", ("W2", OURS))),
    Target("W5", "growth of memory", "O", 1.0, False, of_ours("W5", memory_growth), "MB/min"),
    Target("W6", "from start to first bind", "O", 2.0, False, of_ours("W6", first_bind), "s"),
    Target("W6", "memory beside 2.5 kB a pod", "O", 70.0, False, of_ours("W6", memory_beside_pods), "MB"),
    Target("W7", "gap, leader killed", "O", _LEASE + 2, False, at("SIGKILL", of_ours("W7", gap)), "s"),
    Target("W7", "gap, leader told to stop", "O", 2.0, False, at("SIGTERM", of_ours("W7", gap)), "s"),
    Target("W8", "added to a creation, p50", "O-P", 1.0, False, at("creations", added("W8", "P", creation(50))), "ms"),
    Target("W8", "added to a creation, p99", "O-P", 5.0, False, at("creations", added("W8", "P", creation(99))), "ms"),
    Target("W8", "creations a second", "O/P", 0.57, True, at("creations", compared("W8", ("W8", "P"), answer_rate))),
    Target("W8", "creations a second", "O/H", 0.9, True, at("creations", compared("W8", ("W8", "H"), answer_rate))),
    Target(
        "W8",
        "CPU a review beside the bare handler",
        "O-H",
        0.04,
        False,
        at("reviews", added("W8", "H", cpu_a_pod)),
        "ms",
    ),
    Target("claims", "rate to the last bind", "O/K", 1.0, True, compared("claims", ("claims", "K"))),
    Target("claims", "rate to the last bind", "O/KC", 1.0, True, compared("claims", ("claims", "KC"))),
    Target(
        "claims", "rate beside the same pods without claims", "O/O", 0.3, True, compared("claims", ("claims-env", OURS))
    ),
    Target("claims", "writes a pod", "O", 4.0, False, of_ours("claims", writes_a_pod)),
    Target("idle", "of a core, alone", "O", 0.5, False, at("alone", of_ours("idle", idle_share)), "%"),
    Target("idle", "of a core, beside monitors", "O", 3.0, False, at("monitors", of_ours("idle", idle_share)), "%"),
    Target("idle", "of a core, beside others' churn", "O", 5.0, False, at("others", of_ours("idle", idle_share)), "%"),
    *(
        Target("neighbour", f"from creation to bind, p99, {variant}", "O", 1000.0, False, at(variant, _WAIT), "ms")
        for variant in ("alone", "replicas", "requests", "patches", "large lines")
    ),
    Target("neighbour", "memory at most", "O", 75.0, False, of_ours("neighbour", memory_share), "% of its limit"),
    Target(GROWTH, "decision by map at 5,000 nodes beside 10", "O/O", 1.1, False, _BY_MAP),
    Target(GROWTH, "decision by strategy at 5,000 nodes beside 100", "O/O", 1.3, False, _BY_STRATEGY),
    Target(GROWTH, f"decision on a free line {AFTER}, beside none", "O/O", 1.1, False, _CHURN),
    Target(GROWTH, "memory a pod", "O", 2.5, False, of_ours(GROWTH, pod_memory), "kB"),
    Target(GROWTH, "memory a claim", "O", 2.0, False, at(WITH_CLAIMS, of_ours(GROWTH, claim_memory)), "kB"),
)
