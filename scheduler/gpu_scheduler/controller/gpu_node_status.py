"""The controller's part of a GPUNode's status: held devices, the pods that hold them, and whether the node is ready.

LAW: it is derived only from the node and from the holds, with the ledger's rules. No device is counted twice.
"""

from collections.abc import Iterable, Iterator

from gpu_scheduler import names
from gpu_scheduler.controller.gpu_workload import StatusCondition, dated
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.ledger.hold import Hold
from gpu_scheduler.core.nodes.nodes import Node


@immutable
class Allocation:
    """Devices of one pod: one device as the pod names it, or a number of devices that the node's device plugin chose.

    `memory` is in MiB of each device; 0 if the pod does not say.
    """

    pod: str
    device: str = ""
    unnamed: int = 0
    memory: int = 0


@immutable
class Allocations:
    """The controller's part of a GPUNode's status."""

    allocated: int
    """Number of devices that are held; a shared device counts once."""
    allocations: tuple[Allocation, ...]
    conditions: tuple[StatusCondition, ...]


@immutable
class GpuNode:
    """A GPUNode. `occupied` is the controller's part of its status as read, or None before the first write."""

    name: str
    generation: int
    occupied: Allocations | None = None
    uid: str = ""
    version: str = ""
    cordoned: bool = False
    """Whether an operator has cordoned any of its devices. Then it is kept, even if its node is gone."""


def derive_allocations(gpu_node: GpuNode, node: Node | None, holders: Iterable[Hold], now: str) -> Allocations:
    """Return the controller's part of the status at `now` (RFC 3339); `node` is None if no node has that name."""
    plugin = node is not None and node.advertised is not None
    ordered = sorted(holders, key=lambda holder: (holder.ref.namespace, holder.ref.name, holder.ref.uid))
    allocations = tuple(each for holder in ordered for each in _allocations(holder, plugin=plugin))
    devices = {_device_key(node, each.device) for each in allocations if each.device}
    before = gpu_node.occupied.conditions if gpu_node.occupied is not None else ()
    return Allocations(
        len(devices) + sum(each.unnamed for each in allocations),
        allocations,
        dated([_ready(node, gpu_node.generation)], before, now),
    )


def _allocations(holder: Hold, *, plugin: bool) -> Iterator[Allocation]:
    if plugin and holder.limit:
        yield Allocation(str(holder.ref), unnamed=holder.limit, memory=holder.memory)
        return
    for device in holder.devices:
        yield Allocation(str(holder.ref), device, memory=holder.memory)


def _device_key(node: Node | None, device: str) -> str:
    """Return the index of the GPU that `device` names or, for a MIG device, is part of; else `device` itself."""
    part = None if node is None or node.inventory is None else node.inventory.find(device)
    return device if part is None else str(part.index)


def _ready(node: Node | None, generation: int) -> StatusCondition:
    if node is None:
        found = ("False", "NodeNotFound", "there is no node of this name")
    elif node.ready:
        found = ("True", "NodeReady", "the node is ready")
    else:
        found = ("False", "NodeNotReady", "the node is not ready")
    return StatusCondition(names.CONDITION_READY, *found, generation)
