"""NVIDIA's own Python binding against a compiled stand-in of the driver's library, in processes of their own."""

from pathlib import Path

import pytest

from tests.messages import text_of
from tests.waiting import eventually, limit
from unit_tests.nvml.library import Gpu, Machine

NOT_SUPPORTED, LOST, RESET, UNKNOWN, DRIVER_NOT_LOADED = 3, 15, 16, 999, 9
HANGS = -1

# Bus 07 is NVML's number 1, 0F its number 3, 81 its number 0, C1 its number 2.
BUSES = ["00000000:07:00.0", "00000000:0F:00.0", "00000000:81:00.0", "00000000:C1:00.0"]
NUMBERS = [1, 3, 0, 2]


def uuid(number: int) -> str:
    return f"GPU-00000000-0000-0000-0000-00000000000{number}"


def healths(gpus: list[Gpu]) -> list[str]:
    return [gpu["health"] for gpu in gpus]


def test_gpus_are_numbered_by_their_bus(library: Path, tmp_path: Path) -> None:
    """As CUDA_DEVICE_ORDER=PCI_BUS_ID numbers them. Every metric has the unit of its field."""
    with Machine(library, tmp_path) as machine:
        machine.set({("utilization", 3): 42, ("used", 3): 8192})
        gpus = machine.read()

    assert [(gpu["index"], gpu["bus"], gpu["uuid"]) for gpu in gpus] == [
        (index, bus, uuid(number)) for index, (bus, number) in enumerate(zip(BUSES, NUMBERS, strict=True))
    ]
    assert gpus[1] == {
        "index": 1,
        "uuid": uuid(3),
        "bus": BUSES[1],
        "model": "NVIDIA A100-SXM4-40GB",
        "total": 40960,
        "used": 8192,
        "utilization": 42,
        "temperature": 34,
        "power": 55,
        "health": "healthy",
        "why": "",
        "mig_devices": [],
        "released": False,
    }


METRICS: dict[str, Gpu] = {
    "nvmlDeviceGetUtilizationRates": {"utilization": None},
    "nvmlDeviceGetMemoryInfo": {"total": None, "used": None},
    "nvmlDeviceGetPowerUsage": {"power": None},
    "nvmlDeviceGetTemperatureV": {"temperature": 33},
    "nvmlDeviceGetName": {"model": None},
    "nvmlDeviceGetUUID": {"uuid": None},
    "nvmlDeviceGetTotalEccErrors": {},
    "nvmlDeviceGetRemappedRows": {},
    "nvmlDeviceGetRetiredPagesPendingStatus": {},
    "nvmlDeviceGetMigMode": {},
}


@pytest.mark.parametrize("code", [NOT_SUPPORTED, UNKNOWN], ids=["not supported", "unknown error"])
def test_every_metric_is_optional(library: Path, tmp_path: Path, code: int) -> None:
    """A metric that a device does not have is left out, and nothing else. The device stays healthy."""
    with Machine(library, tmp_path) as machine:
        whole = machine.read()[2]
        for function, missing in METRICS.items():
            machine.set({(function, 0): code})
            assert machine.read()[2] == {**whole, **missing}, function
        machine.set({("nvmlDeviceGetTemperatureV", 0): code, ("nvmlDeviceGetTemperature", 0): code})
        assert machine.read()[2]["temperature"] is None


def test_an_old_driver_reports_less(old_library: Path, tmp_path: Path) -> None:
    """Metrics of functions that its library does not have are left out."""
    with Machine(old_library, tmp_path) as machine:
        gpus = machine.read()

    assert healths(gpus) == ["healthy"] * 4
    assert gpus[0]["temperature"] == 33


def test_without_bus_ids_the_drivers_own_order_applies(library: Path, tmp_path: Path) -> None:
    """Boards whose GPU is on no PCI bus have an order too."""
    with Machine(library, tmp_path) as machine:
        machine.set({("nvmlDeviceGetPciInfo", number): NOT_SUPPORTED for number in range(4)})
        gpus = machine.read()

    assert [gpu["uuid"] for gpu in gpus] == [uuid(number) for number in range(4)]
    assert [gpu["index"] for gpu in gpus] == [0, 1, 2, 3]


ROWS, PAGES = text_of("monitor: rows wait"), text_of("monitor: pages wait")
UNCORRECTED, UNASKED = text_of("monitor: uncorrected errors"), text_of("monitor: a GPU does not answer")
UNREAD = text_of("monitor: NVML fails")
HEALTHS = {
    "an uncorrected error on a device that contains it": (
        {("uncorrected", 1): 2},
        "degraded",
        f"{UNCORRECTED} 2",
    ),
    "rows that wait for a reset": (
        {("pending", 1): 1},
        "degraded",
        ROWS,
    ),
    "pages that wait for a reset": (
        {("pages", 1): 1},
        "degraded",
        PAGES,
    ),
    "both, and an error": (
        {("pending", 1): 1, ("pages", 1): 1, ("uncorrected", 1): 1},
        "degraded",
        f"{ROWS}, {PAGES}, {UNCORRECTED} 1",
    ),
    "a row that could not be remapped": (
        {("failed", 1): 1, ("pending", 1): 1},
        "unhealthy",
        text_of("monitor: a row is lost"),
    ),
    "an uncorrected error under MIG": (
        {("mig", 1): 1, ("uncorrected", 1): 1},
        "degraded",
        f"{UNCORRECTED} 1",
    ),
    "lost": ({("nvmlDeviceGetHandleByIndex", 1): LOST}, "unhealthy", f"{UNASKED} GPU is lost"),
    "lost while it was asked": ({("nvmlDeviceGetPowerUsage", 1): LOST}, "unhealthy", f"{UNASKED} GPU is lost"),
    "in need of a reset": (
        {("nvmlDeviceGetMemoryInfo", 1): RESET},
        "unhealthy",
        f"{UNASKED} GPU requires restart",
    ),
    "not answering for another reason": (
        {("nvmlDeviceGetHandleByIndex", 1): UNKNOWN},
        "unhealthy",
        f"{UNASKED} Unknown Error",
    ),
}


@pytest.mark.parametrize(("lines", "health", "why"), HEALTHS.values(), ids=HEALTHS)
def test_health_has_a_reason(
    library: Path, tmp_path: Path, lines: dict[tuple[str, int], int], health: str, why: str
) -> None:
    """A worn device is degraded, a device that can take no work is unhealthy, and the others are healthy."""
    with Machine(library, tmp_path) as machine:
        before = machine.read()
        machine.set(lines)
        gpus = machine.read()
        machine.set()
        after = machine.read()

    assert (gpus[0]["health"], gpus[0]["why"]) == (health, why)
    assert gpus[1:] == before[1:]
    assert after == before


def test_errors_on_a_device_that_cannot_contain_them(old_library: Path, tmp_path: Path) -> None:
    """Before GPUs remapped rows, an uncorrected error ended every process on the device until a reset."""
    with Machine(old_library, tmp_path) as machine:
        machine.set({("uncorrected", 1): 3})
        gpus = machine.read()

    assert healths(gpus) == ["unhealthy", "healthy", "healthy", "healthy"]
    assert gpus[0]["why"] == f"it needs a reset, {UNCORRECTED} 3"


def test_a_lost_gpu_keeps_its_name_and_its_index(library: Path, tmp_path: Path) -> None:
    """The holder of GPU 2 still holds GPU 2, and the names of the others do not change."""
    with Machine(library, tmp_path) as machine:
        before = machine.read()
        machine.set({("nvmlDeviceGetHandleByIndex", 0): LOST})
        gpus = machine.read()

    for key in ("index", "uuid", "bus", "model", "total"):
        assert [gpu[key] for gpu in gpus] == [gpu[key] for gpu in before]
    assert (gpus[2]["used"], gpus[2]["utilization"], gpus[2]["temperature"]) == (None, None, None)


def test_a_gpu_that_is_no_longer_counted_is_lost(library: Path, tmp_path: Path) -> None:
    """A device that the driver forgets does not disappear from its node."""
    with Machine(library, tmp_path) as machine:
        machine.read()
        machine.set({("count", 0): 3, ("nvmlDeviceGetHandleByIndex", 1): LOST})
        gpus = machine.read()

    assert [gpu["uuid"] for gpu in gpus] == [uuid(number) for number in NUMBERS]
    assert [gpu["why"] for gpu in gpus] == [f"{UNASKED} GPU is lost", text_of("monitor: a GPU is gone"), "", ""]


def test_the_report_of_an_earlier_monitor_names_a_lost_gpu(library: Path, tmp_path: Path) -> None:
    """A restart does not lose the device's name. Without the report, the device has no name."""
    known = tuple({"index": index, "uuid": uuid(NUMBERS[index]), "bus": bus} for index, bus in enumerate(BUSES))
    lost = {("nvmlDeviceGetHandleByIndex", 3): LOST}
    with Machine(library, tmp_path, remembered=(None, known)) as machine:
        machine.set(lost)
        nameless, named = machine.read(), machine.read()
        machine.set()
        healed = machine.read()

    assert [gpu["uuid"] for gpu in nameless] == [uuid(0), uuid(1), uuid(2), None]
    assert healths(nameless) == ["healthy", "healthy", "healthy", "unhealthy"]
    assert [gpu["uuid"] for gpu in named] == [uuid(number) for number in NUMBERS]
    assert healths(named) == ["healthy", "unhealthy", "healthy", "healthy"]
    assert healths(healed) == ["healthy"] * 4


def test_the_next_monitor_forgets_a_gpu_that_was_removed(library: Path, tmp_path: Path) -> None:
    """The earlier report names only devices that the driver counts and cannot read."""
    gone = {"index": 0, "uuid": uuid(9), "bus": "00000000:01:00.0"}
    with Machine(library, tmp_path, remembered=((gone,),)) as machine:
        assert [gpu["uuid"] for gpu in machine.read()] == [uuid(number) for number in NUMBERS]


def test_a_cordoned_gpu_is_not_asked(library: Path, tmp_path: Path) -> None:
    """The others are found by their buses, as the binding takes them, and keep their numbers."""
    with Machine(library, tmp_path) as machine:
        before = machine.read()
        machine.set({("nvmlDeviceGetHandleByIndex", 3): LOST, ("utilization", 0): 42})
        gpus = machine.read(uuid(3))
        machine.set()
        after = machine.read()

    unread = dict.fromkeys(("used", "utilization", "temperature", "power"))
    assert gpus == [before[0], {**before[1], **unread, "released": True}, {**before[2], "utilization": 42}, before[3]]
    assert after == before


def test_mig_devices_are_listed(library: Path, tmp_path: Path) -> None:
    """With their UUIDs and their memory. Empty slots are skipped; without the function there are none."""
    with Machine(library, tmp_path) as machine:
        machine.set({("mig", 2): 1})
        gpus = machine.read()
        machine.set({("mig", 2): 1, ("nvmlDeviceGetMaxMigDeviceCount", 2): NOT_SUPPORTED})
        unsupported = machine.read()

    assert gpus[3]["mig_devices"] == [
        {"uuid": "MIG-00000000-0000-0000-0000-000000000020", "memory": 4864},
        {"uuid": "MIG-00000000-0000-0000-0000-000000000021", "memory": 4864},
    ]
    assert [gpu["mig_devices"] for gpu in gpus[:3]] == [[], [], []]
    assert unsupported[3]["mig_devices"] == []


def test_a_driver_that_hangs_gives_no_reading(library: Path, tmp_path: Path) -> None:
    """A read ends at its deadline, whatever hangs. When the driver is back, the late result is discarded."""
    for function in ("nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetUtilizationRates"):
        with Machine(library, tmp_path, deadline=0.3) as machine:
            machine.set({(function, 0): HANGS, ("utilization", 0): 11})
            silent = text_of("monitor: the driver hangs", seconds=0.3)
            assert machine.read() == silent
            threads = machine.threads
            assert machine.read() == silent
            assert machine.threads == threads, "one more hangs in the driver"
            machine.set({("utilization", 0): 22})
            # On a busy machine a driver that is back may miss the short deadline too.
            gpus = eventually("a reading", lambda: read if isinstance(read := machine.read(), list) else None)
            assert gpus[2]["utilization"] == 22


def test_a_process_ends_though_its_driver_hangs(library: Path, tmp_path: Path) -> None:
    """The thread that is in the driver delays nothing."""
    machine = Machine(library, tmp_path, deadline=0.2)
    machine.set({("nvmlDeviceGetCount", 0): HANGS})
    machine.read()
    process = machine._process
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()

    assert process.wait(limit(5)) == 0


def test_a_machine_without_a_driver_gives_no_reading(library: Path, tmp_path: Path) -> None:
    """The sentence has NVML's error. When the driver is loaded again, reads succeed."""
    with Machine(tmp_path, tmp_path) as machine:
        assert machine.read() == f"{UNREAD} NVML Shared Library Not Found"
    with Machine(library, tmp_path) as machine:
        machine.read()
        machine.set({("nvmlDeviceGetCount", 0): DRIVER_NOT_LOADED, ("nvmlShutdown", 0): UNKNOWN})
        assert machine.read() == f"{UNREAD} Driver Not Loaded"
        machine.set({("nvmlInit", 0): DRIVER_NOT_LOADED})
        assert machine.read() == f"{UNREAD} Driver Not Loaded"
        machine.set()
        assert healths(machine.read()) == ["healthy"] * 4
