"""The interface of a contender."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bench.cluster import ClusterUnderTest
    from bench.cluster_objects import ClusterObjects
    from bench.results import Cost


class Contender(Protocol):
    """A scheduler, or the limit, that places the pods with its `scheduler` as schedulerName."""

    name: str
    scheduler: str
    """The pods' schedulerName."""
    pinned: bool
    """Whether the pods name their node by node affinity too."""
    events: bool
    """Whether it writes an event for each pod."""
    devices: bool
    """Whether it assigns devices."""

    def prepare(self, cluster: ClusterUnderTest, objects: ClusterObjects) -> None:
        """Do all that is not measured. Nodes and pods exist at this time."""

    def go(self) -> None:
        """Begin to place pods."""

    def cost(self) -> Cost:
        """Return its costs since `go`; call it before `stop`."""

    def stop(self) -> None:
        """End it."""
