"""The auditor finds what costs too much, and nothing where a sound scheduler is at work."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.auditor.auditor import Auditor, auditing
from tests.integration.faults.forging import QUICK, found, open_scheduler
from tests.integration.faults.proxy import FaultProxy
from tests.kube_client import KubeClient
from tests.oracle.player import Player

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.bench import Bench
    from tests.integration.control_plane import ControlPlane

HOT: Final = {
    "the same in a second": (QUICK.calls_a_second + 1, ""),
    "about one pod in a minute": (QUICK.calls_a_minute + 1, "/{number}"),
}


@pytest.mark.parametrize(("count", "path"), HOT.values(), ids=HOT)
def test_a_hot_loop_is_found(plane: ControlPlane, bench: Bench, tmp_path: Path, count: int, path: str) -> None:
    """I10. Somebody asks through the proxy under the scheduler's name, again and again."""
    proxy = FaultProxy(plane, tmp_path)
    forger = KubeClient(proxy.port, str(plane.ca), headers={"User-Agent": "gpu-scheduler/forged"})
    try:
        with auditing(plane, proxy=proxy, allowed=QUICK) as auditor:
            for number in range(count):
                forger.raw("GET", f"{bench.pods}/train-0{path.format(number=number)}")
            assert found(auditor) == {"I10"}
    finally:
        forger.close()
        proxy.close()


GREEDY: Final = {
    "files": f"kept = [open('/dev/null') for _ in range({QUICK.files + 1})]",
    "threads": f"import threading\nfor _ in range({QUICK.threads}): threading.Thread(target=input, daemon=1).start()",
    "memory": f"kept = b'x' * (2**20 * {QUICK.memory + 1:.0f})",
}


@pytest.mark.parametrize("what", GREEDY)
def test_a_greedy_process_is_found(bench: Bench, auditor: Auditor, what: str) -> None:
    """I10. A process takes more than is allowed."""
    code = f"{GREEDY[what]}\nprint(flush=True)\ninput()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        auditor.usage.follow(process.pid)
        report = auditor.report()
    finally:
        process.kill()
        process.communicate()

    assert [violation.invariant for violation in report] == ["I10"]
    assert what in report[0].sentence


@pytest.mark.timeout(150)
def test_a_sound_scheduler_gives_no_cause(plane: ControlPlane, bench: Bench, tmp_path: Path) -> None:
    """Users, controllers, kubelets and monitors do 300 random things, a replica is killed: nothing is reported."""
    proxy = FaultProxy(plane, tmp_path)
    player = Player(bench, random.Random(7))  # noqa: S311 - it must be repeatable, not secret
    try:
        with auditing(plane, proxy=proxy) as auditor:
            with open_scheduler(plane, tmp_path, "sound-0", port=proxy.port) as command:
                auditor.follow(command)
                for _ in range(150):
                    player.play()
                command.kill()
            with open_scheduler(plane, tmp_path, "sound-1", port=proxy.port) as command:
                auditor.follow(command)
                for _ in range(150):
                    player.play()
                assert auditor.report() == []
                assert auditor.placements > 20
                bench.node("node7")
                bench.pod("holder-0", "7=node7:0\n0=node7:0\n", "0")
                bench.wait_bound("holder-0", "node7")
                bench.pod("waiter-0", "0=node7:0\n", "0")
                bench.wait_message("waiter-0", "GpuHeld: ")
                with auditor.calm():
                    bench.delete("holder-0")
                    bench.wait_bound("waiter-0", "node7")
                assert auditor.report() == []
    finally:
        proxy.close()
