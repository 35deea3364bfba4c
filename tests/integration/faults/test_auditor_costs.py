"""The auditor reports excessive cost, and nothing for a correct scheduler."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.auditor.auditor import Auditor, auditing
from tests.auditor.ledger import ledger_differs
from tests.integration.faults.proxy import FaultProxy
from tests.integration.faults.violations import QUICK, found, open_scheduler
from tests.kube_client import KubeClient
from tests.oracle.random_operations import RandomOperations
from tests.waiting import limit

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace

OPERATIONS: Final = int(os.environ.get("OPERATIONS", "300"))
"""Suite sweeps sets 10,000, suite soak that and another SEED each time."""
SEED: Final = int(os.environ.get("SEED", "7"))
HOT: Final = {
    "the same request in a second": (QUICK.calls_a_second + 1, ""),
    "requests about one pod in a minute": (QUICK.calls_a_minute + 1, "/{number}"),
}


@pytest.mark.parametrize(("count", "path"), HOT.values(), ids=HOT)
def test_a_hot_loop_is_found(plane: ControlPlane, namespace: Namespace, tmp_path: Path, count: int, path: str) -> None:
    """I10. A client sends too many requests through the proxy with the scheduler's User-Agent."""
    proxy = FaultProxy(plane, tmp_path)
    bad_client = KubeClient(proxy.port, str(plane.ca), headers={"User-Agent": "gpu-scheduler/forged"})
    try:
        with auditing(plane, proxy=proxy, allowed=QUICK) as auditor:
            for number in range(count):
                bad_client.raw("GET", f"{namespace.pods}/train-0{path.format(number=number)}")
            assert found(auditor) == {"I10"}
    finally:
        bad_client.close()
        proxy.close()


TOO_COSTLY: Final = {
    "files": f"kept = [open('/dev/null') for _ in range({QUICK.files + 1})]",
    "threads": f"import threading\nfor _ in range({QUICK.threads}): threading.Thread(target=input, daemon=1).start()",
    "memory": f"kept = b'x' * (2**20 * {QUICK.memory + 1:.0f})",
}


@pytest.mark.parametrize("what", TOO_COSTLY)
def test_a_process_that_uses_too_much_is_found(namespace: Namespace, auditor: Auditor, what: str) -> None:
    """I10. A process uses more files, threads or memory than is allowed."""
    code = f"{TOO_COSTLY[what]}\nprint(flush=True)\ninput()"
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


@pytest.mark.timeout(1800)
def test_a_correct_scheduler_causes_no_violation(plane: ControlPlane, namespace: Namespace, tmp_path: Path) -> None:
    """Not after random operations of users, controllers, kubelets and monitors, nor after a kill.

    After each operation the ledger is as a fresh list says. A failure names the operation.
    """
    proxy = FaultProxy(plane, tmp_path)
    operations = RandomOperations(namespace, random.Random(SEED))  # noqa: S311 - it must be repeatable, not secret
    try:
        with auditing(plane, proxy=proxy) as auditor:
            for name in ("sound-0", "sound-1"):
                with open_scheduler(plane, tmp_path, name, port=proxy.port) as command:
                    auditor.follow(command)
                    for number in range(OPERATIONS // 2):
                        done = operations.play()
                        differences = list(ledger_differs(plane.kube, command, limit(3.0)))
                        assert differences == [], f"SEED={SEED}, operation {number} of {name}: {done}"
                    if name == "sound-0":
                        command.kill()
                        continue
                    assert auditor.report() == []
                    assert auditor.placements > 20
                    namespace.node("node7")
                    namespace.pod("holder-0", "7=node7:0\n0=node7:0\n", "0")
                    namespace.wait_bound("holder-0", "node7")
                    namespace.pod("waiter-0", "0=node7:0\n", "0")
                    namespace.wait_message("waiter-0", "GpuHeld: ")
                    with auditor.quiet():
                        namespace.delete("holder-0")
                        namespace.wait_bound("waiter-0", "node7")
                    assert auditor.report() == []
    finally:
        proxy.close()
