"""Pods and GPUWorkloads as large as the API server takes end nobody: not while they come, and not at a restart."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.attacks import hostile
from tests.integration.bench import SYSTEM_NAMESPACE, Bench
from tests.integration.command import Command, start_alone
from tests.integration.workshop import API, start_controller, workshop
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.control_plane import ControlPlane

ORDINARY: Final = 500
GROWTH: Final = 20.0
"""MB by which a program may be larger than among ordinary pods alone, at any moment."""
FEW: Final = 27
MANY: Final = 500
LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases"
PATIENT_LEASE: Final = {"LEASE_DURATION": "120s", "RENEW_DEADLINE": "100s", "RETRY_PERIOD": "2s"}
"""An API server that takes in megabytes may not answer for seconds: who leads is not what is measured here."""
PATIENCE: Final = 90
BUSY: Final = frozenset({429, 500, 503, 504})
"""What an API server says that has no time."""
TEXTS: Final = (
    "a value",
    "a value that JSON writes six times as long",
    "a map",
    "a map that is no ASCII",
    "a word",
    "an annotation of others",
    "arguments",
)
"""Kinds that the API server takes in at once; lists of thousands of objects cost it seconds each."""


@dataclass(frozen=True)
class Stage:
    """A control plane of its own, whose programs are measured."""

    plane: ControlPlane
    bench: Bench
    folder: Path

    def start(self, name: str) -> tuple[Command, Command]:
        """Start a scheduler and a controller, alone, and wait until they have listed everything."""
        folder = self.folder / name
        folder.mkdir()
        for lease in ("gpu-scheduler", "gpu-scheduler-controller"):
            self.plane.kube.delete(f"{LEASES}/{lease}")
        programs = (
            start_alone(self.plane, folder, "scheduler-0", None, "gpu_scheduler", **PATIENT_LEASE),
            start_controller(self.plane, folder, "controller-0", **PATIENT_LEASE),
        )
        for program in programs:
            program.wait_ready()
        return programs

    def attack(self, number: int, *, pods: tuple[str, ...]) -> None:
        """Create so many objects: pods of ours, of another scheduler's, and GPUWorkloads, in turn."""
        orders = f"{API}/namespaces/{self.bench.namespace}/gpuworkloads"
        workloads = tuple(hostile.WORKLOADS)

        def make(each: int) -> None:
            kind = pods[each // 3 % len(pods)]
            path, body = self.bench.pods, hostile.PODS[kind](f"hostile-{each}")
            if each % 3 == 1:
                body = hostile.foreign(body, "node2")
            elif each % 3 == 2:
                path, body = orders, hostile.WORKLOADS[workloads[each // 3 % len(workloads)]](f"hostile-{each}")
            text = hostile.body_of(body)

            def made() -> bool:
                status, answer = self.plane.kube.raw("POST", path, text)
                # It may be there though the API server could not say so in time.
                assert status in {201, 409, *BUSY}, answer[:500]
                return status not in BUSY

            eventually(f"object {each} is there", made, seconds=PATIENCE)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(make, range(number)))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Four nodes and five hundred ordinary pods, no webhook and no policy: what stands there is up to the programs."""
    plane = workshop(tmp_path)
    bench = Bench(plane.kube, "crowded")
    for number in range(1, 5):
        bench.node(f"node{number}", room={"pods": "2000"})
    for number in range(ORDINARY):
        bench.pod(f"ordinary-{number}", f"{number}=node1:{number}\n", str(number))
    yield Stage(plane, bench, tmp_path)
    plane.stop()


def resident(program: Command, what: str = "VmHWM") -> float:
    """MB at present (`VmRSS`), or at most since the measurement began."""
    status = Path(f"/proc/{program.process.pid}/status").read_text(encoding="ascii")
    return int(status.partition(f"{what}:")[2].split()[0]) / 1024


def forget_peak(program: Command) -> None:
    """Measure its peak from now on."""
    Path(f"/proc/{program.process.pid}/clear_refs").write_text("5", encoding="ascii")


def _attacked(stage: Stage, number: int, pods: tuple[str, ...]) -> None:
    programs = stage.start("among-ordinary-ones")
    names = ("scheduler", "controller")
    eventually("all are bound", lambda: stage.bench.count_bound() == ORDINARY, seconds=PATIENCE)
    ordinary = dict(zip(names, map(resident, programs), strict=True))
    for program in programs:
        forget_peak(program)

    stage.attack(number, pods=pods)
    stage.bench.pod("beside-500", "500=node3:0\n", "0")
    stage.bench.wait_bound("beside-500", "node3", seconds=PATIENCE)
    peaks = {f"{name}, running": resident(program) for name, program in zip(names, programs, strict=True)}
    for program in programs:
        assert program.process.alive(), program.process.output()[-3000:]
        program.process.stop()

    again = stage.start("among-hostile-ones")
    try:
        stage.bench.pod("later-501", "501=node3:1\n", "1")
        stage.bench.wait_bound("later-501", "node3", seconds=PATIENCE)
        peaks |= {f"{name}, restarted": resident(program) for name, program in zip(names, again, strict=True)}
    finally:
        for program in again:
            program.process.stop()
    sys.stdout.write(f"{ordinary} MB among ordinary objects, at most {peaks} MB among {number} hostile ones\n")
    grown = {name: peak - ordinary[name.partition(",")[0]] for name, peak in peaks.items()}
    assert max(grown.values()) <= GROWTH, (ordinary, peaks)


@pytest.mark.promise("wide-1", "wide-2")
def test_objects_as_large_as_the_api_takes_end_nobody(stage: Stage) -> None:
    """Neither scheduler nor controller grows by more than 20 MB, ordinary pods are bound, and hostile ones are told."""
    _attacked(stage, FEW, TEXTS)

    stage.bench.wait_message(
        "hostile-0", "EnvConflict: cannot read CUDA_VISIBLE_DEVICES: it has 1400000 bytes", PATIENCE
    )
    stage.bench.wait_message(
        "hostile-6", "MapInvalid: cannot read placement map: it must have at most 65536 bytes", PATIENCE
    )
    order = stage.plane.kube.get(f"{API}/namespaces/{stage.bench.namespace}/gpuworkloads/hostile-2")
    assert order is not None
    assert order["status"]["message"].startswith("RequestInvalid: cannot read spec.podTemplate: it has 1400")


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.promise("wide-1", "wide-2")
def test_five_hundred_objects_as_large_as_the_api_takes_end_nobody(stage: Stage) -> None:
    """The same with as many hostile objects as there are ordinary pods."""
    _attacked(stage, MANY, TEXTS)
