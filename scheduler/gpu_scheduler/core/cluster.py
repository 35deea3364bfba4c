"""Everything that a decision reads in addition to the pod, as one value."""

from dataclasses import field, replace
from sys import maxsize

from gpu_scheduler.core.cluster_events import ClusterEvent
from gpu_scheduler.core.filters.volumes import Volumes
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaims
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.line_classes import LineClasses
from gpu_scheduler.core.namespace_limits import NO_LIMITS, NamespaceLimits
from gpu_scheduler.core.nodes.device_pools import DevicePools
from gpu_scheduler.core.nodes.nodes import Nodes
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.strategies.candidates import Candidates


@immutable
class Cluster:
    """Everything that a decision reads in addition to the pod."""

    ledger: Ledger
    nodes: Nodes
    volumes: Volumes
    policy: Policy
    strategy: Strategy = Strategy.LEAST_UTILIZED
    """The default for pods that ask for a count and name no strategy."""
    limits: NamespaceLimits = NO_LIMITS
    pools: DevicePools = field(default_factory=DevicePools)
    """The GPUs that drivers of ResourceClaims publish."""
    claims: AllocatedClaims = field(default_factory=lambda: AllocatedClaims(DevicePools()))
    """The ResourceClaims, for pods that have one of their own. What they hold is in the ledger."""
    line_checks: int = maxsize
    """How many lines of a map one decision may check for a pod that takes any."""
    candidates: Candidates = field(init=False, repr=False, compare=False)
    lines: LineClasses = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidates", Candidates(self.ledger, self.nodes, self.policy))
        object.__setattr__(self, "lines", LineClasses(self.ledger, self.nodes))

    def pop_events(self) -> frozenset[ClusterEvent]:
        """Return the events of classes of pods that may be placed now, or have another reason to wait."""
        return self.candidates.pop_events() | self.lines.pop_events()

    def limited(self, limits: NamespaceLimits) -> "Cluster":
        """Return a copy with these limits.

        The copy shares `candidates` and `lines`, so that waiting pods still get their events.
        """
        cluster = replace(self, limits=limits)
        object.__setattr__(cluster, "candidates", self.candidates)
        object.__setattr__(cluster, "lines", self.lines)
        return cluster
