"""An explanation as a value: what is decided on a pod, all that is in its way, and the smallest remedy.

LAW: values only. Text for people, JSON and exit codes are all made from them.
"""

from enum import StrEnum

from gpu_scheduler.core.decision import Decision
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.reasons import Fault, Reason, Unschedulable, rank_of
from gpu_scheduler.core.refs import PodRef


class DeviceUse(StrEnum):
    """What keeps the pod from one device, if anything does."""

    FREE = "free"
    """The pod could have it. Its holders, if any, share it."""
    HELD = "held"
    CORDONED = "cordoned"
    """An operator has taken it out of service."""
    UNHEALTHY = "unhealthy"
    UNSUITABLE = "unsuitable"
    """The pod asks for another type, for more memory, or for one that is used less."""
    MISSING = "missing"


@immutable
class Holder:
    """A pod or ResourceClaim that holds a device, or a workload for which a line is kept. Times are RFC 3339."""

    ref: PodRef
    """The pod or the claim; for a kept line, the workload's controller."""
    since: str
    """When it was bound; empty if that is not known."""
    until: str
    """When its GPUWorkload expects it to end; empty if it says nothing."""
    deleting_since: str
    """Empty if it is not being deleted."""
    line: int | None = None
    """The index of a line that is kept, because its pods start together; None if the holder is a pod or a claim."""
    kind: str = "Pod"
    """As `Hold.kind`."""
    certain: bool = True
    """Whether it has this device. Otherwise it is unknown which device its name for it means."""

    @property
    def is_pod(self) -> bool:
        """Whether the end of a pod frees the device."""
        return self.kind == "Pod"


@immutable
class DeviceAnswer:
    """A device that the pod could have."""

    node: str
    device: str
    use: DeviceUse
    why: str = ""
    """Why it is missing, unhealthy or unsuitable."""
    holders: tuple[Holder, ...] = ()


@immutable
class Place:
    """Where the pod could be: a line of its map or, if it asks for a count, a node."""

    node: str
    """The name of the node; as the map names it, if there is no such node."""
    index: int | None
    devices: tuple[DeviceAnswer, ...]
    """Empty if a device plugin chooses them."""
    of_pod: tuple[Unschedulable, ...] = ()
    """What is wrong with the pod's own text, if it is to have this line."""
    of_devices: tuple[Unschedulable, ...] = ()
    of_node: tuple[Unschedulable, ...] = ()
    of_volumes: Unschedulable | None = None

    @property
    def obstacles(self) -> tuple[Unschedulable, ...]:
        """Return all that is in the way, the one that a decision reports first."""
        volumes = () if self.of_volumes is None else (self.of_volumes,)
        found = (*self.of_pod, *self.of_devices, *self.of_node, *volumes)
        return tuple(sorted(found, key=lambda each: rank_of(each.ranked_reason)))


@immutable
class Step:
    """One change of a remedy."""

    reasons: tuple[Reason, ...]
    """What it cures."""
    remedy: str
    command: str
    """The remedy as a command; empty if it is none."""
    until: str
    """When waiting has the same effect, as the holders' GPUWorkloads expect (RFC 3339); empty if that is not known."""


@immutable
class Remedy:
    """The smallest remedy: steps after which the pod can be placed, and the line of a map that needs none of them."""

    node: str
    """The node of the place that the steps open; empty if no place is near."""
    index: int | None
    steps: tuple[Step, ...]
    line: str
    """A line `INDEX=NODE:ID,ID` that the pod could have now, if its map had it; empty if there is none."""


@immutable
class Explanation:
    """Why a pod waits, or where it would be placed now."""

    decision: Decision | None
    """None if the pod needs no placement."""
    of_pod: tuple[Fault, ...] = ()
    """What is in the way at every place: the pod's own text, its namespace's limit, the lines of its map."""
    places: tuple[Place, ...] = ()
    """The place that is nearest comes first."""
    others: tuple[tuple[Reason, int], ...] = ()
    """How many further places there are, by the reason of each."""
    remedy: Remedy | None = None
    """None if the pod can be placed now, or needs no placement."""
