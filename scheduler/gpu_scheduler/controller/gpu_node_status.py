"""What is told of a GPUNode: which of its cards are taken, by whom, and whether the node is ready.

LAW: from the holders that the ledger's own rules derive, and from the node; nothing is counted twice.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpu_scheduler import names
from gpu_scheduler.controller.gpu_workload import StatusCondition, dated
from gpu_scheduler.core.ledger.hold import Hold
from gpu_scheduler.core.nodes.nodes import Node


@dataclass(frozen=True, slots=True)
class Allocation:
    """What one pod has: a device as the pod names it, or so many cards that the node's device plugin chose."""

    pod: str
    device: str = ""
    unnamed: int = 0
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Allocations:
    """The part of a GPUNode's status that is derived here."""

    allocated: int
    """How many cards are taken, whoever shares them."""
    allocations: tuple[Allocation, ...]
    conditions: tuple[StatusCondition, ...]


@dataclass(frozen=True, slots=True)
class GpuNode:
    """A GPUNode; `occupied` is what was told of it, None before anything was."""

    name: str
    generation: int
    occupied: Allocations | None = None


def derive_allocations(told: GpuNode, node: Node | None, holders: Iterable[Hold], now: str) -> Allocations:
    """What is right at `now` (RFC 3339); `node` is None where there is none of that name."""
    plugin = node is not None and node.advertised is not None
    ordered = sorted(holders, key=lambda holder: (holder.ref.namespace, holder.ref.name, holder.ref.uid))
    allocations = tuple(each for holder in ordered for each in _allocations(holder, plugin=plugin))
    cards = {_card(node, each.device) for each in allocations if each.device}
    before = told.occupied.conditions if told.occupied is not None else ()
    return Allocations(
        len(cards) + sum(each.unnamed for each in allocations),
        allocations,
        dated([_ready(node, told.generation)], before, now),
    )


def _allocations(holder: Hold, *, plugin: bool) -> Iterator[Allocation]:
    if plugin and holder.limit:
        yield Allocation(str(holder.ref), unnamed=holder.limit, memory=holder.memory)
        return
    for device in holder.devices:
        yield Allocation(str(holder.ref), device, memory=holder.memory)


def _card(node: Node | None, device: str) -> str:
    """The card that a device is, or is on, where the inventory knows it."""
    part = None if node is None or node.inventory is None else node.inventory.find(device)
    return device if part is None else str(part.card)


def _ready(node: Node | None, generation: int) -> StatusCondition:
    if node is None:
        found = ("False", "NodeNotFound", "there is no node of this name")
    elif node.ready:
        found = ("True", "NodeReady", "the node is ready")
    else:
        found = ("False", "NodeNotReady", "the node is not ready")
    return StatusCondition(names.CONDITION_READY, *found, generation)
