"""Simulated GPUs, declared in a file, so that strategies can be tried on a cluster without GPUs.

Their load is derived from the pods that are bound to the node. The file may be changed while the monitor runs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NamedTuple
from uuid import NAMESPACE_DNS, uuid5

import msgspec

from gpu_scheduler.core.ledger.hold import hold_of
from gpu_scheduler.core.nodes.inventory import Health
from gpu_scheduler.core.pods.placement_map import UUID_DIGITS
from gpu_scheduler.kube.resource import EventHandler
from gpu_scheduler.monitor.ports import GpuSource, UnreadableError
from gpu_scheduler.monitor.readings import GpuReading, covered, inventory_of, let_go

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from gpu_scheduler.core.ledger.hold import Hold
    from gpu_scheduler.core.nodes.cordons import Cordon
    from gpu_scheduler.core.pods.pod import Pod

BUSY = 70
"""Utilization in percent of a GPU that one pod holds exclusively."""
TEMPERATURE = (30, 80)
"""Degrees Celsius of a GPU with a utilization of 0 %, and of 100 %."""
POWER = (50, 300)
"""Watts of a GPU with a utilization of 0 %, and of 100 %."""
MOST = 256
"""Most GPUs of one node."""
EXAMPLE = '{"node1": [{"count": 4, "model": "A100-40GB", "memoryTotalMiB": 40960}]}'

Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
Celsius = Annotated[int, msgspec.Meta(ge=-100, le=1000)]
Uuid = Annotated[str, msgspec.Meta(pattern=f"^GPU-{UUID_DIGITS}$")]
Watts = Annotated[int, msgspec.Meta(ge=0, le=100_000)]


class _Group(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """GPUs of one kind. The maps override UUID, load and health by the GPU's index on the node."""

    count: Annotated[int, msgspec.Meta(ge=0, le=MOST)]
    model: Annotated[str, msgspec.Meta(min_length=1, max_length=63, pattern="^[ -~]*$")]
    memory_total_mib: Annotated[int, msgspec.Meta(ge=1, le=2**40)] = msgspec.field(name="memoryTotalMiB")
    utilization: dict[int, Percent] = {}
    temperature: dict[int, Celsius] = {}
    power: dict[int, Watts] = {}
    health: dict[int, Health] = {}
    uuid: dict[int, Uuid] = {}


class Load(NamedTuple):
    """The part of one GPU that the node's pods use: memory in MiB, utilization in percent."""

    memory: int = 0
    utilization: int = 0


class NodePods(EventHandler["Pod"]):
    """The pods that are bound to the node and have not finished."""

    def __init__(self, node: str) -> None:
        """Start without pods; `node` is the node's name."""
        self._node = node
        self._holders: dict[str, Hold] = {}

    def applied(self, value: Pod) -> None:
        """Store what the pod holds, or remove it if it has finished or is on another node."""
        if value.finished or value.node != self._node:
            self.forgotten(value)
        else:
            self._holders[value.ref.uid] = hold_of(value, self._node)

    def forgotten(self, value: Pod) -> None:
        """Remove a pod that is gone."""
        self._holders.pop(value.ref.uid, None)

    def loads(self, gpus: Iterable[GpuReading]) -> dict[int, Load]:
        """Return the load of each GPU that a pod holds, by the GPU's index.

        A pod uses the memory that it requests, or all of the GPU's if it requests none. The utilization of a pod that
        shares a GPU is in proportion to its memory.
        """
        known = {gpu.index: gpu for gpu in gpus}
        inventory = inventory_of(known.values())
        loads: dict[int, Load] = {}
        for holder in self._holders.values():
            for device in holder.devices:
                part = inventory.find(device)
                if part is not None:
                    loads[part.index] = _more(loads.get(part.index, Load()), holder, known[part.index].total or 0)
        return loads


def _more(load: Load, holder: Hold, total: int) -> Load:
    memory = min(total, holder.memory or total)
    share = BUSY * memory // total if holder.shared else BUSY
    return Load(min(total, load.memory + memory), min(100, load.utilization + share))


class SimulatedSource(GpuSource):
    """Reads the inventory file anew at each reading."""

    def __init__(self, file: Path, node: str, pods: NodePods, cordons: Callable[[], tuple[Cordon, ...]]) -> None:
        """`cordons` returns the cordons in force; cordoned devices are shown as a monitor of real ones shows them."""
        self._file = file
        self._node = node
        self._pods = pods
        self._cordons = cordons

    async def read(self) -> tuple[GpuReading, ...]:
        """Implement GpuSource.read. UnreadableError if the file cannot be used."""
        try:
            text = self._file.read_bytes()
        except OSError as error:
            raise UnreadableError(f"cannot read inventory {self._file}: {error.strerror or error}") from error
        gpus = declared(text, self._node)
        released = covered(gpus, self._cordons())
        loaded = _loaded(gpus, self._pods.loads(gpus))
        return tuple(let_go(gpu) if gpu.index in released else gpu for gpu in loaded)


def _loaded(gpus: tuple[GpuReading, ...], loads: Mapping[int, Load]) -> tuple[GpuReading, ...]:
    """Return the GPUs with their load. Temperature and power follow it. What the file declares takes precedence."""
    found = []
    for gpu in gpus:
        load = loads.get(gpu.index, Load())
        utilization = load.utilization if gpu.utilization is None else gpu.utilization
        temperature = _at(utilization, TEMPERATURE) if gpu.temperature is None else gpu.temperature
        power = _at(utilization, POWER) if gpu.power is None else gpu.power
        found.append(replace(gpu, used=load.memory, utilization=utilization, temperature=temperature, power=power))
    return tuple(found)


def _at(utilization: int, span: tuple[int, int]) -> int:
    idle, busy = span
    return idle + (busy - idle) * utilization // 100


def declared(text: bytes, node: str) -> tuple[GpuReading, ...]:
    """Return the GPUs that the YAML or JSON `text` declares for `node`. UnreadableError with an example if invalid."""
    try:
        # Not strict, because JSON writes the index, a key, in quotes.
        groups = msgspec.yaml.decode(text, type=dict[str, list[_Group]], strict=False).get(node, [])
        return _distinct(tuple(_gpus(groups, node)))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        message = " ".join(str(error).split())
        raise UnreadableError(f"cannot use the inventory: {message} (example: {EXAMPLE})") from error


def _gpus(groups: list[_Group], node: str) -> Iterable[GpuReading]:
    first = 0
    for group in groups:
        indices = range(first, first + group.count)
        overrides = (group.utilization, group.temperature, group.power, group.health, group.uuid)
        unknown = sorted(set().union(*overrides) - set(indices))
        if unknown:
            raise ValueError(
                f"{node} has no GPU {unknown[0]} in its group of {group.model}, which has {_words(indices)}"
            )
        for index in indices:
            health = group.health.get(index, Health.HEALTHY)
            yield GpuReading(
                index=index,
                # The UUID must be the same after each restart, because pods hold GPUs by UUID.
                uuid=group.uuid.get(index, f"GPU-{uuid5(NAMESPACE_DNS, f'{node}/{index}')}"),
                bus=f"{index >> 8:08X}:{index & 0xFF:02X}:00.0",
                model=group.model,
                total=group.memory_total_mib,
                utilization=group.utilization.get(index),
                temperature=group.temperature.get(index),
                power=group.power.get(index),
                health=health,
                why="" if health is Health.HEALTHY else "the simulated inventory says so",
            )
        first = indices.stop
    if first > MOST:
        raise ValueError(f"{node} has {first} GPUs: at most {MOST} can be simulated")


def _distinct(gpus: tuple[GpuReading, ...]) -> tuple[GpuReading, ...]:
    """Return the GPUs. ValueError if two of them have one UUID: an inventory with such is ignored as a whole."""
    for uuid, number in Counter(gpu.uuid for gpu in gpus).items():
        if number > 1:
            raise ValueError(f"{number} GPUs have UUID {uuid}: each has its own")
    return gpus


def _words(indices: range) -> str:
    return f"{indices.start} to {indices.stop - 1}" if indices else "none"
