"""Pods and GPUWorkloads of the largest size end none of our programs, neither on arrival nor at a restart."""

from __future__ import annotations

import ssl
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.attacks import oversized_objects
from tests.integration.command import Command, start_alone
from tests.integration.namespace import SYSTEM_NAMESPACE, Namespace
from tests.integration.workloads import API, controller_plane, start_controller
from tests.messages import says, text_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.control_plane import ControlPlane

ORDINARY: Final = 500
GROWTH: Final = 20.0
"""MB by which hostile objects may raise the peak memory of a program."""
FEW: Final = 27
MANY: Final = 500
LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases"
LONG_LEASE: Final = {"LEASE_DURATION": "120s", "RENEW_DEADLINE": "100s", "RETRY_PERIOD": "2s"}
"""Long times: an API server that stores such objects may not answer for seconds, and leadership is not measured."""
TIMEOUT: Final = 90
BUSY: Final = frozenset({429, 500, 503, 504})
"""Answers of an overloaded API server."""


@dataclass(frozen=True)
class Stage:
    """A separate control plane whose programs are measured."""

    plane: ControlPlane
    namespace: Namespace
    folder: Path

    def start(self, name: str) -> tuple[Command, Command]:
        """Start one scheduler and one controller, and wait until they have listed everything."""
        folder = self.folder / name
        folder.mkdir()
        for lease in ("gpu-scheduler", "gpu-scheduler-controller"):
            self.plane.kube.delete(f"{LEASES}/{lease}")
        programs = (
            start_alone(self.plane, folder, "scheduler-0", None, "gpu_scheduler", **LONG_LEASE),
            start_controller(self.plane, folder, "controller-0", **LONG_LEASE),
        )
        for program in programs:
            program.wait_ready()
        return programs

    def attack(self, number: int) -> None:
        """Create `number` objects: pods of ours, pods of another scheduler and GPUWorkloads, in turn."""
        path_of_workloads = f"{API}/namespaces/{self.namespace.name}/gpuworkloads"
        pods, workloads = (tuple(each.values()) for each in (oversized_objects.PODS, oversized_objects.WORKLOADS))

        def make(each: int) -> None:
            name, turn = f"hostile-{each}", each // 3
            if each % 3 == 2:
                path, body = path_of_workloads, workloads[turn % len(workloads)](name)
            else:
                path, body = self.namespace.pods, pods[turn % len(pods)](name)
            if each % 3 == 1:
                body = oversized_objects.foreign(body, "node2")
            text = oversized_objects.body_of(body)

            def made() -> bool:
                try:
                    status, answer = self.plane.kube.raw("POST", path, text)
                except (ConnectionError, ssl.SSLEOFError):
                    # An overloaded API server ends a handshake for which it had no time within 10 s.
                    return False
                # 409: an earlier try succeeded, but its answer was lost.
                assert status in {201, 409, *BUSY}, answer[:500]
                return status not in BUSY

            eventually(f"object {each} is there", made, seconds=TIMEOUT)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(make, range(number)))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Four nodes and 500 ordinary pods. Without webhook and policies, the programs must bound what they keep."""
    plane = controller_plane(tmp_path)
    namespace = Namespace(plane.kube, "crowded")
    for number in range(1, 5):
        namespace.node(f"node{number}", room={"pods": "2000"})
    for number in range(ORDINARY):
        namespace.pod(f"ordinary-{number}", f"{number}=node1:{number}\n", str(number))
    yield Stage(plane, namespace, tmp_path)
    plane.stop()


def resident(program: Command, what: str = "VmHWM") -> float:
    """Return the present resident memory in MB (`VmRSS`), or its peak since the last `forget_peak` (`VmHWM`)."""
    status = Path(f"/proc/{program.process.pid}/status").read_text(encoding="ascii")
    return int(status.partition(f"{what}:")[2].split()[0]) / 1024


def forget_peak(program: Command) -> None:
    """Reset the peak (`VmHWM`) of the process to its present memory."""
    Path(f"/proc/{program.process.pid}/clear_refs").write_text("5", encoding="ascii")


def _attacked(stage: Stage, number: int) -> None:
    programs = stage.start("among-ordinary-ones")
    names = ("scheduler", "controller")
    eventually("all are bound", lambda: stage.namespace.count_bound() == ORDINARY, seconds=TIMEOUT)
    ordinary = dict(zip(names, map(resident, programs), strict=True))
    for program in programs:
        forget_peak(program)

    stage.attack(number)
    stage.namespace.pod("beside-500", "500=node3:0\n", "0")
    stage.namespace.wait_bound("beside-500", "node3", seconds=TIMEOUT)
    peaks = {f"{name}, running": resident(program) for name, program in zip(names, programs, strict=True)}
    for program in programs:
        assert program.process.alive(), program.process.output()[-3000:]
        program.process.stop()

    again = stage.start("among-hostile-ones")
    try:
        stage.namespace.pod("later-501", "501=node3:1\n", "1")
        stage.namespace.wait_bound("later-501", "node3", seconds=TIMEOUT)
        peaks |= {f"{name}, restarted": resident(program) for name, program in zip(names, again, strict=True)}
    finally:
        for program in again:
            program.process.stop()
    sys.stdout.write(f"{ordinary} MB among ordinary objects, at most {peaks} MB among {number} hostile ones\n")
    grown = {name: peak - ordinary[name.partition(",")[0]] for name, peak in peaks.items()}
    assert max(grown.values()) <= GROWTH, (ordinary, peaks)


@pytest.mark.promise("wide-1", "wide-2")
def test_objects_of_the_largest_size_end_no_program(stage: Stage) -> None:
    """Scheduler and controller grow by at most 20 MB, ordinary pods are bound, and hostile ones get a reason."""
    _attacked(stage, FEW)

    says(
        stage.namespace.wait_message("hostile-0", "EnvConflict: ", TIMEOUT),
        *("EnvConflict", "CUDA_VISIBLE_DEVICES", "1400000 bytes"),
    )
    stage.namespace.wait_message("hostile-6", text_of("a map is too large"), TIMEOUT)
    order = stage.plane.kube.get(f"{API}/namespaces/{stage.namespace.name}/gpuworkloads/hostile-2")
    assert order is not None
    says(order["status"]["message"], "RequestInvalid", "spec.podTemplate", "262144")


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.promise("wide-1", "wide-2")
def test_five_hundred_objects_of_the_largest_size_end_no_program(stage: Stage) -> None:
    """Scheduler and controller also survive as many hostile objects as there are ordinary pods."""
    _attacked(stage, MANY)
