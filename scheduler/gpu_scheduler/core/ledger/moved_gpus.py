"""GPUs that pods were given by index, and that their indices no longer mean: after a reboot, a repair or a swap.

LAW: a pod keeps the GPU that it was given and has the one that its index means now. Its process may use either, so no
other pod gets one of the two.
"""

from collections.abc import Iterable

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.nodes.inventory import Inventory


@immutable
class MovedGpu:
    """A GPU that a pod was given by a name that does not mean this GPU any more."""

    device: str
    """The name, as the pod uses it."""
    uuid: str
    """The GPU that the name meant when the pod was bound."""
    index: int | None
    """The index of that GPU now; None if the node does not have it any more."""
    instead: str | None
    """The UUID of the GPU that the name means now; None if it means none."""

    def __str__(self) -> str:
        """Return a sentence for people."""
        where = "is gone" if self.index is None else f"is GPU {self.index} now"
        now = "there is no" if self.instead is None else f"{self.instead} is"
        given = f"GPU {self.device} was {self.uuid} when the pod was bound"
        return f"{given}, but that one {where}, and {now} GPU {self.device}"


def moved_gpus(devices: Iterable[str], uuids: tuple[str, ...], inventory: Inventory | None) -> tuple[MovedGpu, ...]:
    """Return those of `devices` that meant `uuids`, in the same order, and do not mean them in this inventory.

    Without `uuids`, and with an inventory that has none, nothing is known to have moved.
    """
    if not uuids or inventory is None or not inventory.has_uuids:
        return ()
    found = []
    for device, uuid in zip(devices, uuids, strict=False):
        now, given = inventory.find(device), inventory.find(uuid)
        if now is None or now != given:
            index = None if given is None else given.index
            instead, *_ = inventory.uuids((device,)) or (None,)
            found.append(MovedGpu(device, uuid, index, instead))
    return tuple(found)
