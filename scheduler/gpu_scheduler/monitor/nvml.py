"""The GPUs of this machine as NVIDIA's driver tells of them, through NVML.

Its calls block, and on a driver that hangs they never return: they run in a thread of their own, which a look waits for
no longer than its deadline. Every metric is optional: older cards, MIG and virtual GPUs tell less.
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
# What no metric is optional against: the whole card is gone.
_GONE = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)


class NvmlSource(GpuSource):
    """Looks through NVML; a card that was there once is listed as unhealthy when it can no longer be asked."""

    def __init__(self, *, deadline: float, remember: Callable[[], Awaitable[tuple[GpuReading, ...] | None]]) -> None:
        """`remember` gives what an earlier monitor wrote: it tells which card it is that can't be asked from the start.

        None when nobody can tell yet.
        """
        self._deadline = deadline
        self._remember = remember
        self._last: dict[str, GpuReading] | None = None
        self._seen: dict[str, GpuReading] = {}
        self._open = False
        self._looking: asyncio.Future[tuple[GpuReading, ...] | UnreadableError] | None = None

    async def read(self) -> tuple[GpuReading, ...]:
        """See GpuSource."""
        if self._last is None:
            last = await self._remember()
            self._last = None if last is None else {gpu.bus: gpu for gpu in last if gpu.bus is not None}
        try:
            async with asyncio.timeout(self._deadline):
                if self._looking is not None:
                    # Too late for the look before; what it saw is old.
                    await asyncio.wait({self._looking})
                self._looking = looking = self._begin()
                await asyncio.wait({looking})
        except TimeoutError:
            raise UnreadableError(f"the driver has not answered for {self._deadline:g} s") from None
        self._looking = None
        result = looking.result()
        if isinstance(result, UnreadableError):
            raise result
        return result

    def _begin(self) -> asyncio.Future[tuple[GpuReading, ...] | UnreadableError]:
        """Look in a thread that the end of the process does not wait for."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[GpuReading, ...] | UnreadableError] = loop.create_future()

        def run() -> None:
            result = self._look()
            # The loop may have ended in the meantime.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(future.set_result, result)

        threading.Thread(target=run, name="nvml", daemon=True).start()
        return future

    def _look(self) -> tuple[GpuReading, ...] | UnreadableError:
        try:
            if not self._open:
                pynvml.nvmlInit()
                self._open = True
            answers = [_ask(number) for number in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError as error:
            self._close()
            return UnreadableError(f"cannot ask NVML: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the loop must hear of it
            return UnreadableError(f"cannot ask NVML: {error!r}")
        gpus = self._named(answers)
        if any(isinstance(answer, str) for answer in answers):
            # A card that comes back is seen only by who begins anew.
            self._close()
        return gpus

    def _named(self, answers: list[GpuReading | str]) -> tuple[GpuReading, ...]:
        """Number the cards, those among them that can't be asked under the names they had."""
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
        # Else in NVML's own order, which is the same wherever somebody has looked.
        return tuple(replace(gpu, index=index) for index, gpu in enumerate(gpus))

    def _close(self) -> None:
        if self._open:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()
        self._open = False


def _bus(gpu: GpuReading) -> str:
    return (gpu.bus or "").lower()


def _lost(gpu: GpuReading, why: str) -> GpuReading:
    return GpuReading(0, gpu.uuid, gpu.bus, gpu.model, gpu.total, health=Health.UNHEALTHY, why=why, slices=gpu.slices)


def _ask(number: int) -> GpuReading | str:
    """The card of this number, or why it can't be asked."""
    try:
        return _card(pynvml.nvmlDeviceGetHandleByIndex(number))
    except pynvml.NVMLError as error:
        return f"it cannot be asked: {error}"


def _card(handle: Handle) -> GpuReading:
    pci = _metric(pynvml.nvmlDeviceGetPciInfo, handle)
    memory = _metric(pynvml.nvmlDeviceGetMemoryInfo, handle)
    rates = _metric(pynvml.nvmlDeviceGetUtilizationRates, handle)
    power = _metric(pynvml.nvmlDeviceGetPowerUsage, handle)
    slices = _slices(handle)
    health, why = _health(handle, sliced=bool(slices))
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
        slices=slices,
    )


def _temperature(handle: Handle) -> int | None:
    """Degrees Celsius; drivers before 560 know the older call only."""
    for ask in (pynvml.nvmlDeviceGetTemperatureV, pynvml.nvmlDeviceGetTemperature):
        told: int | None = _metric(ask, handle, pynvml.NVML_TEMPERATURE_GPU)
        if told is not None:
            return told
    return None


def _slices(handle: Handle) -> tuple[MigDevice, ...]:
    """The MIG devices of a card, where it is in that mode."""
    mode = _metric(pynvml.nvmlDeviceGetMigMode, handle)
    if mode is None or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return ()
    slices = []
    for number in range(_metric(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        device = _metric(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
        uuid = None if device is None else _metric(pynvml.nvmlDeviceGetUUID, device)
        if uuid is not None:
            memory = _metric(pynvml.nvmlDeviceGetMemoryInfo, device)
            slices.append(MigDevice(uuid, None if memory is None else memory.total // MIB))
    return tuple(slices)


def _health(handle: Handle, *, sliced: bool) -> tuple[Health, str]:
    """How the card's memory does, by what NVML documents of it.

    - `nvmlDeviceGetRemappedRows`: `failureOccurred` says that a row could not be remapped, which is when NVIDIA takes a
      card back: unhealthy. `isPending` says that rows wait for a reset, while "a pending remapping won't affect future
      work on the GPU": degraded.
    - `nvmlDeviceGetTotalEccErrors` of uncorrected, volatile errors (since the driver was loaded): cards that remap rows
      contain them, and further work may start ("GPU Memory Error Management"): degraded. Older cards end everything
      that runs there, and need a reset: unhealthy.
    - `nvmlDeviceGetRetiredPagesPendingStatus`: pages of an older card wait for the driver to be loaded anew: degraded.

    Under MIG the first is not supported, and only cards that remap rows know MIG.
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
    if errors and rows is None and not sliced:
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
    """What NVML answers; None where it can't tell. That the card is gone is raised."""
    try:
        return ask(*arguments)
    except pynvml.NVMLError as error:
        if error.value in _GONE:
            raise
        return None
