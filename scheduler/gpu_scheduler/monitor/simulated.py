"""GPUs that are only declared, so that strategies can be tried on a cluster that has none.

Their load follows the pods that are bound to the node; their health and more can be changed in the file while all runs.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from gpu_scheduler.core.ledger.hold import hold_of
from gpu_scheduler.core.nodes.inventory import Device, Health, Inventory
from gpu_scheduler.kube.resource import EventHandler
from gpu_scheduler.monitor.ports import GpuSource, UnreadableError
from gpu_scheduler.monitor.readings import GpuReading

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from gpu_scheduler.core.ledger.hold import Hold
    from gpu_scheduler.core.pods.pod import Pod

BUSY = 70
"""Percent at which a GPU runs that somebody has alone."""
MOST = 256
"""GPUs of one node."""
EXAMPLE = '{"node1": [{"count": 4, "model": "A100-40GB", "memoryTotalMiB": 40960}]}'

Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]


class _Group(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """GPUs of one kind; what stands in the two maps overrides their load and their health, by index on the node."""

    count: Annotated[int, msgspec.Meta(ge=0, le=MOST)]
    model: Annotated[str, msgspec.Meta(min_length=1, max_length=63, pattern="^[ -~]*$")]
    memory_total_mib: Annotated[int, msgspec.Meta(ge=1, le=2**40)] = msgspec.field(name="memoryTotalMiB")
    utilization: dict[int, Percent] = {}
    health: dict[int, Health] = {}


class Load(NamedTuple):
    """What the pods of the node take of one GPU."""

    memory: int = 0
    utilization: int = 0


class NodePods(EventHandler["Pod"]):
    """The pods that are bound to the node, finished ones left out."""

    def __init__(self, node: str) -> None:
        """Nobody is known."""
        self._node = node
        self._holders: dict[str, Hold] = {}

    def applied(self, value: Pod) -> None:
        """See Observer."""
        if value.finished or value.node != self._node:
            self.forgotten(value)
        else:
            self._holders[value.ref.uid] = hold_of(value, self._node)

    def forgotten(self, value: Pod) -> None:
        """See Observer."""
        self._holders.pop(value.ref.uid, None)

    def loads(self, gpus: Iterable[GpuReading]) -> dict[int, Load]:
        """By index, what they take: what they say, else all of a GPU's memory; they work as much as they take."""
        known = {gpu.index: gpu for gpu in gpus}
        inventory = Inventory(tuple(Device(index, gpu.uuid) for index, gpu in known.items()))
        loads: dict[int, Load] = {}
        for holder in self._holders.values():
            for device in holder.devices:
                part = inventory.find(device)
                if part is not None:
                    loads[part.card] = _more(loads.get(part.card, Load()), holder, known[part.card].total or 0)
        return loads


def _more(load: Load, holder: Hold, total: int) -> Load:
    memory = min(total, holder.memory or total)
    share = BUSY * memory // total if holder.shared else BUSY
    return Load(min(total, load.memory + memory), min(100, load.utilization + share))


class SimulatedSource(GpuSource):
    """Reads the declared inventory anew at each look."""

    def __init__(self, file: Path, node: str, pods: NodePods, synced: asyncio.Event, *, deadline: float) -> None:
        """`synced` is set when the node's pods are known."""
        self._file = file
        self._node = node
        self._pods = pods
        self._synced = synced
        self._deadline = deadline

    async def read(self) -> tuple[GpuReading, ...]:
        """See GpuSource."""
        try:
            text = self._file.read_bytes()
        except OSError as error:
            raise UnreadableError(f"cannot read inventory {self._file}: {error.strerror or error}") from error
        gpus = declared(text, self._node)
        try:
            async with asyncio.timeout(self._deadline):
                await self._synced.wait()
        except TimeoutError:
            raise UnreadableError("the pods of this node have not been listed yet") from None
        return _loaded(gpus, self._pods.loads(gpus))


def _loaded(gpus: tuple[GpuReading, ...], loads: Mapping[int, Load]) -> tuple[GpuReading, ...]:
    """What the file says of a GPU's utilization stands."""
    found = []
    for gpu in gpus:
        load = loads.get(gpu.index, Load())
        utilization = load.utilization if gpu.utilization is None else gpu.utilization
        found.append(replace(gpu, used=load.memory, utilization=utilization))
    return tuple(found)


def declared(text: bytes, node: str) -> tuple[GpuReading, ...]:
    """The GPUs of `node` as YAML or JSON declares them; UnreadableError with an example where it can't be read."""
    try:
        # Not strict: an index in quotes, as JSON writes it, is one too.
        groups = msgspec.yaml.decode(text, type=dict[str, list[_Group]], strict=False).get(node, [])
        return tuple(_gpus(groups, node))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        said = " ".join(str(error).split())
        raise UnreadableError(f"cannot use the inventory: {said} (example: {EXAMPLE})") from error


def _gpus(groups: list[_Group], node: str) -> Iterable[GpuReading]:
    first = 0
    for group in groups:
        indices = range(first, first + group.count)
        strange = sorted((group.utilization.keys() | group.health.keys()) - set(indices))
        if strange:
            raise ValueError(
                f"{node} has no GPU {strange[0]} in its group of {group.model}, which has {_words(indices)}"
            )
        for index in indices:
            health = group.health.get(index, Health.HEALTHY)
            yield GpuReading(
                index=index,
                # The same at each start: whoever was given one by its UUID still has it.
                uuid=f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{node}/{index}')}",
                bus=f"{index >> 8:08X}:{index & 0xFF:02X}:00.0",
                model=group.model,
                total=group.memory_total_mib,
                utilization=group.utilization.get(index),
                health=health,
                why="" if health is Health.HEALTHY else "the simulated inventory says so",
            )
        first = indices.stop
    if first > MOST:
        raise ValueError(f"{node} has {first} GPUs: at most {MOST} can be simulated")


def _words(indices: range) -> str:
    return f"{indices.start} to {indices.stop - 1}" if indices else "none"
