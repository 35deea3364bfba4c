"""The GPUs of this machine, read from NVIDIA's driver through NVML.

NVML's calls block, and they never return if the driver hangs. So they run in a thread of their own, and a reading waits
no longer than its deadline. Every metric is optional: older GPUs, MIG devices and virtual GPUs have fewer.
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
from gpu_scheduler.monitor.readings import GpuReading, MigDevice

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
Handle = Any

MIB = 2**20
MILLIWATTS = 1000
# These errors of a metric mean that the whole GPU is gone, so they are not treated as a missing metric.
_GONE = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)


class NvmlSource(GpuSource):
    """Reads GPUs through NVML. A GPU that was read once is listed as unhealthy when it can no longer be read."""

    def __init__(self, *, deadline: float, remember: Callable[[], Awaitable[tuple[GpuReading, ...] | None]]) -> None:
        """`deadline` is in seconds. `remember` returns the GPUs that an earlier monitor wrote, or None if unknown.

        They give the identity of a GPU that could not be read since the monitor started.
        """
        self._deadline = deadline
        self._remember = remember
        self._last: dict[str, GpuReading] | None = None
        self._seen: dict[str, GpuReading] = {}
        self._open = False
        self._reading: asyncio.Future[tuple[GpuReading, ...] | UnreadableError] | None = None

    async def read(self) -> tuple[GpuReading, ...]:
        """Implement GpuSource.read. UnreadableError also if the driver does not answer within the deadline."""
        if self._last is None:
            last = await self._remember()
            self._last = None if last is None else {gpu.bus: gpu for gpu in last if gpu.bus is not None}
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

        def run() -> None:
            result = self._read_all()
            # The event loop may have been closed in the meantime.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(future.set_result, result)

        threading.Thread(target=run, name="nvml", daemon=True).start()
        return future

    def _read_all(self) -> tuple[GpuReading, ...] | UnreadableError:
        try:
            if not self._open:
                pynvml.nvmlInit()
                self._open = True
            answers = [_read_gpu(number) for number in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError as error:
            self._close()
            return UnreadableError(f"cannot read GPUs from NVML: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the loop must hear of it
            return UnreadableError(f"cannot read GPUs from NVML: {error!r}")
        gpus = self._named(answers)
        if any(isinstance(answer, str) for answer in answers):
            # NVML lists a GPU that has recovered only after it is initialized again.
            self._close()
        return gpus

    def _named(self, answers: list[GpuReading | str]) -> tuple[GpuReading, ...]:
        """Number the GPUs. A GPU that cannot be read keeps the identity (UUID, bus id, model) that it had before."""
        present = [answer for answer in answers if isinstance(answer, GpuReading)]
        self._seen |= {gpu.bus: gpu for gpu in present if gpu.bus is not None}
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


def _lost(gpu: GpuReading, why: str) -> GpuReading:
    return GpuReading(
        0, gpu.uuid, gpu.bus, gpu.model, gpu.total, health=Health.UNHEALTHY, why=why, mig_devices=gpu.mig_devices
    )


def _read_gpu(number: int) -> GpuReading | str:
    """Read the GPU of this NVML index; return the reading, or why the GPU cannot be read."""
    try:
        return _read_device(pynvml.nvmlDeviceGetHandleByIndex(number))
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
