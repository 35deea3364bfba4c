"""Cordoned GPUs are let go: against a driver that remembers which GPUs are open."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pynvml  # type: ignore[import-untyped]
import pytest

from gpu_scheduler.core.nodes.cordons import Cordon
from gpu_scheduler.core.nodes.inventory import Health
from gpu_scheduler.monitor.nvml import NvmlSource
from gpu_scheduler.monitor.ports import UnreadableError
from gpu_scheduler.monitor.readings import GpuReading
from tests.messages import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable

# A source reads in a thread of its own.
pytestmark = pytest.mark.clock("real")

EVERY, UNATTACHED = 0, pynvml.NVML_INIT_FLAG_NO_ATTACH
MIB = 2**20
# In NVML's order. By bus, the GPU at 07 is number 0, at 81 number 1, at C1 number 2.
SECOND, FIRST, THIRD = (f"00000000:{bus}:00.0" for bus in ("81", "07", "C1"))
BUSES = (FIRST, SECOND, THIRD)
MIG = "MIG-00000000-0000-0000-0000-000000000001"


def uuid(bus: str) -> str:
    return f"GPU-00000000-0000-0000-0000-0000000000{bus[9:11].lower()}"


@dataclass
class Driver:
    """A machine's NVML. Functions that are not here answer as for a GPU that does not have the metric."""

    there: list[str] = field(default_factory=lambda: [SECOND, FIRST, THIRD])
    """The buses of its GPUs."""
    silent: set[str] = field(default_factory=set)
    """The buses of GPUs that do not answer."""
    nowhere: set[str] = field(default_factory=set)
    """The buses of GPUs that do not know where they are."""
    blind: tuple[str, ...] = ()
    """The functions that find or tell nothing while NVML is open without attaching."""
    opened: list[int] = field(default_factory=list)
    """The flags of each initialization."""
    held: set[str] = field(default_factory=set)
    """The buses of the GPUs that are open now."""
    ever_held: set[str] = field(default_factory=set)
    """The buses of the GPUs that were open at any time."""

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in dir(pynvml):
            if name.startswith(("nvmlInit", "nvmlShutdown", "nvmlDevice")):
                monkeypatch.setattr(pynvml, name, getattr(self, name, self._unsupported))

    def _unsupported(self, *_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def _is_blind(self, function: str) -> bool:
        return function in self.blind and self.opened[-1] == UNATTACHED

    def nvmlInitWithFlags(self, flags: int) -> None:  # noqa: N802 - NVML's name
        self.opened.append(flags)

    def nvmlShutdown(self) -> None:  # noqa: N802 - NVML's name
        self.held.clear()

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - NVML's name
        return len(self.there)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> str:  # noqa: N802 - NVML's name
        return self._handle(self.there[number])

    def nvmlDeviceGetHandleByPciBusId(self, bus: str) -> str:  # noqa: N802 - NVML's name
        if self._is_blind("nvmlDeviceGetHandleByPciBusId"):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return self._handle(bus)

    def _handle(self, bus: str) -> str:
        self.held.add(bus)
        self.ever_held.add(bus)
        if bus in self.silent:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return bus

    def nvmlDeviceGetPciInfo(self, handle: str) -> Any:  # noqa: N802 - NVML's name
        if self._is_blind("nvmlDeviceGetPciInfo") or handle in self.nowhere:
            self._unsupported()
        return SimpleNamespace(busId=handle)

    def nvmlDeviceGetUUID(self, handle: str) -> str:  # noqa: N802 - NVML's name
        return handle if handle == MIG else uuid(handle)

    def nvmlDeviceGetMemoryInfo(self, _: str) -> Any:  # noqa: N802 - NVML's name
        return SimpleNamespace(total=40960 * MIB, used=512 * MIB)

    def nvmlDeviceGetUtilizationRates(self, _: str) -> Any:  # noqa: N802 - NVML's name
        return SimpleNamespace(gpu=7)

    def nvmlDeviceGetTemperatureV(self, *_: object) -> int:  # noqa: N802 - NVML's name
        return 34

    def nvmlDeviceGetPowerUsage(self, _: str) -> int:  # noqa: N802 - NVML's name
        return 54600

    def nvmlDeviceGetRetiredPagesPendingStatus(self, handle: str) -> int:  # noqa: N802 - NVML's name
        return int(handle == SECOND)

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:  # noqa: N802 - NVML's name
        return [int(handle == SECOND)] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, _: str) -> int:  # noqa: N802 - NVML's name
        return 1

    def nvmlDeviceGetMigDeviceHandleByIndex(self, *_: object) -> str:  # noqa: N802 - NVML's name
        return MIG


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A machine with three GPUs; the one at bus 81 is worn and has a MIG device."""
    made = Driver()
    made.install(monkeypatch)
    return made


class Reader:
    """A source, and the cordons that are in force."""

    def __init__(self, remembered: tuple[GpuReading, ...] | None = ()) -> None:
        """`remembered` is what an earlier monitor wrote."""
        self.cordons: tuple[Cordon, ...] = ()

        async def remember() -> tuple[GpuReading, ...] | None:
            return remembered

        self._source = NvmlSource(deadline=math.inf, remember=remember, cordons=lambda: self.cordons)

    async def read(self, *devices: str) -> tuple[GpuReading, ...]:
        self.cordons = tuple(Cordon(device, index=1) for device in devices)
        return await self._source.read()


def released(gpus: Iterable[GpuReading]) -> set[int]:
    return {gpu.index for gpu in gpus if gpu.released}


# The cordoned devices → the indices of the GPUs that are let go.
CORDONS: dict[str, tuple[tuple[str, ...], set[int]]] = {
    "an index": (("1",), {1}),
    "a UUID": ((uuid(SECOND),), {1}),
    "a MIG device": ((MIG,), {1}),
    "two": (("0", uuid(THIRD)), {0, 2}),
    "one, and one that is not there": (("2", uuid("00000000:FF")), {2}),
    "all": (("*",), {0, 1, 2}),
}


@pytest.mark.promise("cordon-6")
@pytest.mark.parametrize(("devices", "out"), CORDONS.values(), ids=CORDONS)
async def test_a_cordoned_gpu_is_closed(driver: Driver, devices: tuple[str, ...], out: set[int]) -> None:
    """It keeps index, identity, memory and health, and its metrics are unknown. The others are read as before.

    NVML is closed and opened once. If nothing is left to be read, it stays closed.
    """
    reader = Reader()
    before = await reader.read()
    assert (before[1].health, before[1].mig_devices[0].uuid) == (Health.DEGRADED, MIG)
    for _ in range(2):
        gpus = await reader.read(*devices)

        assert driver.held == {bus for index, bus in enumerate(BUSES) if index not in out}
        assert gpus == tuple(
            replace(gpu, used=None, utilization=None, temperature=None, power=None, released=True)
            if gpu.index in out
            else gpu
            for gpu in before
        )
    assert driver.opened == [EVERY] + [UNATTACHED] * (len(out) < 3)


async def test_a_cordon_of_no_gpu_releases_none(driver: Driver) -> None:
    """The card that an operator cordoned is no longer in the machine."""
    reader = Reader()
    await reader.read()

    assert released(await reader.read(uuid("00000000:FF"))) == set()
    assert driver.opened == [EVERY]


async def test_when_the_cordon_ends_the_gpu_is_read_again(driver: Driver) -> None:
    """Each change opens NVML anew. Only without a cordon is a new GPU looked for; it takes its place by bus."""
    reader = Reader()
    assert len(await reader.read()) == 3
    driver.there.append("00000000:01:00.0")
    for devices, out in [(("0", "1"), {0, 1}), (("1",), {1}), (("2",), {2})]:
        gpus = await reader.read(*devices)
        assert (released(gpus), [gpu.bus for gpu in gpus]) == (out, list(BUSES))
        assert driver.held == {BUSES[index] for index in {0, 1, 2} - out}

    gpus = await reader.read()

    assert [(gpu.bus, gpu.used, gpu.released) for gpu in gpus] == [
        (bus, 512, False) for bus in ("00000000:01:00.0", *BUSES)
    ]
    assert driver.opened == [EVERY, *[UNATTACHED] * 3, EVERY]


@pytest.mark.parametrize("remembered", [(), None], ids=["a new node", "a node that cannot be read"])
async def test_a_first_reading_enumerates_once(driver: Driver, remembered: tuple[GpuReading, ...] | None) -> None:
    """A cordon names a GPU of which nothing is known yet."""
    gpus = await Reader(remembered).read("1")

    assert (released(gpus), gpus[1].total, gpus[1].health) == ({1}, 40960, Health.DEGRADED)
    assert (driver.opened, driver.held) == ([EVERY, UNATTACHED], {FIRST, THIRD})


async def test_the_next_monitor_does_not_open_a_cordoned_gpu(driver: Driver) -> None:
    """It knows the GPUs by what the earlier one wrote: a restart does not disturb a reset."""
    known = tuple(
        GpuReading(index, uuid(bus), bus, "A100", 40960, health=Health.UNHEALTHY, why="it is lost")
        for index, bus in enumerate(BUSES)
    )
    gpus = await Reader(known).read("1")

    assert gpus[1] == replace(known[1], released=True)
    assert [gpu.health for gpu in (gpus[0], gpus[2])] == [Health.HEALTHY] * 2
    assert (driver.opened, driver.ever_held) == ([UNATTACHED], {FIRST, THIRD})
    assert released(await Reader(known).read("*")) == {0, 1, 2}
    assert driver.opened == [UNATTACHED]


@pytest.mark.parametrize("blind", ["nvmlDeviceGetHandleByPciBusId", "nvmlDeviceGetPciInfo"])
async def test_a_driver_that_finds_nothing_unattached_is_opened_otherwise(driver: Driver, blind: str) -> None:
    """The other GPUs of the node stay healthy, and the released one is not asked for all the same."""
    driver.blind = (blind,)
    reader = Reader()
    before = await reader.read()
    for _ in range(2):
        gpus = await reader.read("1")
        assert (gpus[0], gpus[2]) == (before[0], before[2])
        assert (released(gpus), driver.held) == ({1}, {FIRST, THIRD})

    assert driver.opened == [EVERY, UNATTACHED, EVERY]


async def test_another_gpu_may_be_lost_and_recover(driver: Driver) -> None:
    """It is unhealthy under its own index. NVML is opened anew, because only then it finds the GPU again."""
    reader = Reader()
    before = await reader.read()
    driver.silent = {THIRD}
    gpus = await reader.read("1")
    driver.silent = set()

    assert gpus[0] == before[0]
    assert (gpus[2].index, gpus[2].uuid, gpus[2].health) == (2, uuid(THIRD), Health.UNHEALTHY)
    assert (gpus[2].why, released(gpus)) == (f"{text_of('monitor: a GPU does not answer')} GPU is lost", {1})
    assert (await reader.read("1"))[2] == before[2]
    assert driver.opened == [EVERY, UNATTACHED, UNATTACHED]


async def test_a_gpu_without_a_bus_is_let_go_too(driver: Driver) -> None:
    """It could be found by its UUID alone, and NVML may open others on the way."""
    driver.nowhere = {FIRST}
    reader = Reader()
    before = await reader.read()
    assert [gpu.uuid for gpu in before] == [uuid(bus) for bus in (SECOND, FIRST, THIRD)]

    gpus = await reader.read(uuid(SECOND))

    assert (released(gpus), driver.held, gpus[2]) == ({0, 1}, {THIRD}, before[2])


async def test_a_driver_that_cannot_be_opened_gives_no_reading(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the Lease expires, as without a cordon."""
    reader = Reader()
    await reader.read()
    monkeypatch.setattr(pynvml, "nvmlInitWithFlags", driver._unsupported)

    with pytest.raises(UnreadableError, match=f"{text_of('monitor: NVML fails')} Not Supported"):
        await reader.read("1")


async def test_an_error_of_the_binding_gives_no_reading(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop hears of it, whatever it is."""
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: "many")

    with pytest.raises(UnreadableError, match=f"{text_of('monitor: NVML fails')} TypeError"):
        await Reader().read()
