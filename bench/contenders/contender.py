"""What all contenders have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bench.cluster import ClusterUnderTest
    from bench.cluster_objects import ClusterObjects
    from bench.results import Cost


class Contender(Protocol):
    """Places the pods that carry its `scheduler`; prepared before the clock starts, as far as it can be."""

    name: str
    scheduler: str
    """The pods' schedulerName."""
    pinned: bool
    """Whether the pods say their node by affinity too."""
    events: bool
    """Whether it writes an event for each pod."""
    devices: bool
    """Whether it says which GPU."""

    def prepare(self, cluster: ClusterUnderTest, objects: ClusterObjects) -> None:
        """With nodes and pods there: do everything that is not measured."""

    def go(self) -> None:
        """Begin."""

    def cost(self) -> Cost:
        """What it used up since then; asked before it is stopped."""

    def stop(self) -> None:
        """End it."""
