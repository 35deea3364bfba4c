"""The GPUs of this machine, read from NVIDIA's driver through NVML.

NVML's calls block, and they never return if the driver hangs. So they run in a thread of their own, and a reading waits
no longer than its deadline. Every metric is optional: older GPUs, MIG devices and virtual GPUs have fewer.

LAW: a cordoned GPU is released. A driver resets a GPU only if no process has it open, so it is not even asked whether
it is still there. NVML opens every GPU that it looks for, so no new one is looked for while one is released.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pynvml  # type: ignore[import-untyped]

from gpu_scheduler.core.nodes.inventory import Health
from gpu_scheduler.monitor.ports import GpuSource, UnreadableError
from gpu_scheduler.monitor.readings import GpuReading, MigDevice, covered, let_go

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from gpu_scheduler.core.nodes.cordons import Cordon

T = TypeVar("T")
Handle = Any

MIB = 2**20
MILLIWATTS = 1000
# These errors of a metric mean that the whole GPU is gone, so they are not treated as a missing metric.
_GONE = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)
# By NVML's documentation a GPU is opened when its handle is asked for, with either of these flags. The first rules out
# that it is opened earlier. Drivers may find no GPU with it, though, and the other GPUs of the node must not seem lost.
_UNATTACHED = (pynvml.NVML_INIT_FLAG_NO_ATTACH, 0)


class NvmlSource(GpuSource):
    """Reads GPUs through NVML. A GPU that was read once is listed as unhealthy when it can no longer be read."""

    def __init__(
        self,
        *,
        deadline: float,
        remember: Callable[[], Awaitable[tuple[GpuReading, ...] | None]],
        cordons: Callable[[], tuple[Cordon, ...]],
    ) -> None:
        """`deadline` is in seconds. `remember` returns the GPUs that an earlier monitor wrote, or None if unknown.

        They give the identity of a GPU that could not be read since the monitor started. `cordons` returns the cordons
        in force.
        """
        self._deadline = deadline
        self._remember = remember
        self._cordons = cordons
        self._last: dict[str, GpuReading] | None = None
        self._seen: dict[str, GpuReading] = {}
        self._known: tuple[GpuReading, ...] = ()
        """The last result; before the first one, what an earlier monitor wrote."""
        self._open = False
        self._released: frozenset[int] = frozenset()
        """The GPUs without which NVML was opened, by index."""
        self._reading: asyncio.Future[tuple[GpuReading, ...] | UnreadableError] | None = None

    async def read(self) -> tuple[GpuReading, ...]:
        """Implement GpuSource.read. UnreadableError also if the driver does not answer within the deadline."""
        if self._last is None:
            last = await self._remember()
            self._last = None if last is None else _by_bus(last)
            self._known = self._known or last or ()
        try:
            async with asyncio.timeout(self._deadline):
                if self._reading is not None:
                    # The previous reading missed its deadline. Wait for its thread, and discard its old result.
                    await asyncio.wait({self._reading})
                self._reading = reading = self._begin()
                await asyncio.wait({reading})
        except TimeoutError:
            raise UnreadableError(f"the driver has not answered for {self._deadline:g} s") from None
        self._reading = None
        result = reading.result()
        if isinstance(result, UnreadableError):
            raise result
        return result

    def _begin(self) -> asyncio.Future[tuple[GpuReading, ...] | UnreadableError]:
        """Start a reading in a daemon thread, so that the process can end while the driver hangs."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[GpuReading, ...] | UnreadableError] = loop.create_future()
        cordons = self._cordons()

        def run() -> None:
            result = self._read_all(cordons)
            # The event loop may have been closed in the meantime.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(future.set_result, result)

        threading.Thread(target=run, name="nvml", daemon=True).start()
        return future

    def _read_all(self, cordons: tuple[Cordon, ...]) -> tuple[GpuReading, ...] | UnreadableError:
        try:
            gpus = self._known
            if not covered(gpus, cordons):
                # So does a first reading on a node that nothing is known of: which GPUs a cordon means is not known.
                gpus = self._read_every()
            if released := covered(gpus, cordons):
                gpus = self._read_others(gpus, released)
        except pynvml.NVMLError as error:
            self._close()
            return UnreadableError(f"cannot read GPUs from NVML: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the loop must hear of it
            return UnreadableError(f"cannot read GPUs from NVML: {error!r}")
        self._known = gpus
        return gpus

    def _read_every(self) -> tuple[GpuReading, ...]:
        """Look for the GPUs and read them."""
        self._release(frozenset())
        self._initialize(0)
        answers = [
            _read_gpu(pynvml.nvmlDeviceGetHandleByIndex, number) for number in range(pynvml.nvmlDeviceGetCount())
        ]
        gpus = self._named(answers)
        self._close_if_any_failed(answers)
        return gpus

    def _read_others(self, known: tuple[GpuReading, ...], released: frozenset[int]) -> tuple[GpuReading, ...]:
        """Read the known GPUs that are not released. Each keeps its index.

        A GPU without a known bus id is let go too: NVML may open others while it looks for it by another name.
        """
        self._release(released)
        buses = {gpu.index: gpu.bus for gpu in known if gpu.bus is not None and gpu.index not in released}
        answers = self._ask(buses)
        self._seen |= _by_bus(answer for answer in answers.values() if isinstance(answer, GpuReading))
        self._close_if_any_failed(answers.values())
        gpus = []
        for gpu in known:
            answer = answers.get(gpu.index)
            if answer is None:
                gpus.append(let_go(gpu))
            else:
                read = answer if isinstance(answer, GpuReading) else _lost(gpu, answer)
                gpus.append(replace(read, index=gpu.index, bus=gpu.bus))
        return tuple(gpus)

    def _ask(self, buses: Mapping[int, str]) -> dict[int, GpuReading | str]:
        """Read the GPUs at these PCI buses and open no other. The keys of the answers are those of `buses`."""
        answers: dict[int, GpuReading | str] = {}
        for flags in _UNATTACHED if buses else ():
            self._initialize(flags)
            answers = {index: _read_gpu(pynvml.nvmlDeviceGetHandleByPciBusId, bus) for index, bus in buses.items()}
            if any(isinstance(answer, GpuReading) and answer.bus is not None for answer in answers.values()):
                break
            self._close()
        return answers

    def _release(self, released: frozenset[int]) -> None:
        """Close NVML if these are not the GPUs without which it was opened."""
        if released != self._released:
            self._close()
        self._released = released

    def _initialize(self, flags: int) -> None:
        if not self._open:
            pynvml.nvmlInitWithFlags(flags)
            self._open = True

    def _close_if_any_failed(self, answers: Iterable[GpuReading | str]) -> None:
        """NVML lists a GPU that has recovered only after it is initialized again."""
        if any(isinstance(answer, str) for answer in answers):
            self._close()

    def _named(self, answers: list[GpuReading | str]) -> tuple[GpuReading, ...]:
        """Number the GPUs. A GPU that cannot be read keeps the identity (UUID, bus id, model) that it had before."""
        present = [answer for answer in answers if isinstance(answer, GpuReading)]
        self._seen |= _by_bus(present)
        buses = {gpu.bus for gpu in present}
        lost = [gpu for bus, gpu in sorted(self._seen.items()) if bus not in buses]
        silent = len(answers) - len(present) - len(lost)
        unseen = [gpu for bus, gpu in sorted((self._last or {}).items()) if bus not in buses and bus not in self._seen]
        names = sorted((*lost, *unseen[: max(silent, 0)]), key=_bus)
        gpus = [
            answer if isinstance(answer, GpuReading) else _lost(names.pop(0) if names else GpuReading(0), answer)
            for answer in answers
        ]
        gpus += [_lost(gpu, "it is no longer there") for gpu in names]
        if all(gpu.bus for gpu in gpus):
            gpus.sort(key=_bus)
        # If a bus id is unknown, keep NVML's own order. On every machine checked so far it is the order of bus ids.
        return tuple(replace(gpu, index=index) for index, gpu in enumerate(gpus))

    def _close(self) -> None:
        if self._open:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()
        self._open = False


def _bus(gpu: GpuReading) -> str:
    return (gpu.bus or "").lower()


def _by_bus(gpus: Iterable[GpuReading]) -> dict[str, GpuReading]:
    return {gpu.bus: gpu for gpu in gpus if gpu.bus is not None}


def _lost(gpu: GpuReading, why: str) -> GpuReading:
    return GpuReading(
        0, gpu.uuid, gpu.bus, gpu.model, gpu.total, health=Health.UNHEALTHY, why=why, mig_devices=gpu.mig_devices
    )


def _read_gpu(find: Callable[[T], Handle], name: T) -> GpuReading | str:
    """Read the GPU that NVML's function `find` finds by this name; return the reading, or why it cannot be read."""
    try:
        return _read_device(find(name))
    except pynvml.NVMLError as error:
        return f"it cannot be asked: {error}"


def _read_device(handle: Handle) -> GpuReading:
    pci = _metric(pynvml.nvmlDeviceGetPciInfo, handle)
    memory = _metric(pynvml.nvmlDeviceGetMemoryInfo, handle)
    rates = _metric(pynvml.nvmlDeviceGetUtilizationRates, handle)
    power = _metric(pynvml.nvmlDeviceGetPowerUsage, handle)
    mig_devices = _mig_devices(handle)
    health, why = _health(handle, mig=bool(mig_devices))
    return GpuReading(
        index=0,
        uuid=_metric(pynvml.nvmlDeviceGetUUID, handle),
        bus=None if pci is None else str(pci.busId),
        model=_metric(pynvml.nvmlDeviceGetName, handle),
        total=None if memory is None else memory.total // MIB,
        used=None if memory is None else memory.used // MIB,
        utilization=None if rates is None else rates.gpu,
        temperature=_temperature(handle),
        power=None if power is None else round(power / MILLIWATTS),
        health=health,
        why=why,
        mig_devices=mig_devices,
    )


def _temperature(handle: Handle) -> int | None:
    """Return degrees Celsius. Drivers before 560 have only the older call."""
    for ask in (pynvml.nvmlDeviceGetTemperatureV, pynvml.nvmlDeviceGetTemperature):
        temperature: int | None = _metric(ask, handle, pynvml.NVML_TEMPERATURE_GPU)
        if temperature is not None:
            return temperature
    return None


def _mig_devices(handle: Handle) -> tuple[MigDevice, ...]:
    """List the MIG devices of a GPU; none if it is not in MIG mode."""
    mode = _metric(pynvml.nvmlDeviceGetMigMode, handle)
    if mode is None or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return ()
    mig_devices = []
    for number in range(_metric(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        device = _metric(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
        uuid = None if device is None else _metric(pynvml.nvmlDeviceGetUUID, device)
        if uuid is not None:
            memory = _metric(pynvml.nvmlDeviceGetMemoryInfo, device)
            mig_devices.append(MigDevice(uuid, None if memory is None else memory.total // MIB))
    return tuple(mig_devices)


def _health(handle: Handle, *, mig: bool) -> tuple[Health, str]:
    """Return the health of a GPU's memory and what is wrong with it, by NVML's documentation.

    - `nvmlDeviceGetRemappedRows`: `failureOccurred` means that a row could not be remapped; NVIDIA then replaces the
      GPU: unhealthy. `isPending` means that rows wait for a reset, and "a pending remapping won't affect future work on
      the GPU": degraded.
    - `nvmlDeviceGetTotalEccErrors` of uncorrected, volatile errors (since the driver was loaded): GPUs that remap rows
      contain these errors, and new work may start ("GPU Memory Error Management"): degraded. Older GPUs abort all
      work on the GPU and need a reset: unhealthy.
    - `nvmlDeviceGetRetiredPagesPendingStatus`: pages of an older GPU wait until the driver is loaded again: degraded.

    In MIG mode the first call is not supported. All GPUs with MIG can remap rows, so `mig` replaces its answer.
    """
    rows = _metric(pynvml.nvmlDeviceGetRemappedRows, handle)
    errors = _metric(
        pynvml.nvmlDeviceGetTotalEccErrors,
        handle,
        pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        pynvml.NVML_VOLATILE_ECC,
    )
    pages = _metric(pynvml.nvmlDeviceGetRetiredPagesPendingStatus, handle)
    if rows is not None and rows[3]:
        return Health.UNHEALTHY, "a row of its memory could not be remapped"
    wrong = f"uncorrected memory errors since the driver was loaded: {errors}"
    if errors and rows is None and not mig:
        return Health.UNHEALTHY, f"it needs a reset, {wrong}"
    worn = []
    if rows is not None and rows[2]:
        worn.append("rows of its memory wait for a reset to be remapped")
    if pages == pynvml.NVML_FEATURE_ENABLED:
        worn.append("pages of its memory wait for a reset to be retired")
    if errors:
        worn.append(wrong)
    return (Health.DEGRADED, ", ".join(worn)) if worn else (Health.HEALTHY, "")


def _metric(ask: Callable[..., T], *arguments: object) -> T | None:
    """Return the value that NVML gives, or None if it gives none. pynvml.NVMLError if the GPU is gone."""
    try:
        return ask(*arguments)
    except pynvml.NVMLError as error:
        if error.value in _GONE:
            raise
        return None
