"""The ledger equals an independent reference after each of thousands of random operations.

The environment variables OPERATIONS and SEED set their number and the seed. A failure names the seed and the number
of the operation. Suite sweeps runs 10,000 operations, suite soak another seed each time.
"""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.auditor.ledger import Dump
from tests.integration.command import start_alone
from tests.oracle.random_operations import RandomOperations
from tests.oracle.reference import Hold, holds, objects_of, plugins, wrongs
from tests.waiting import limit

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace

OPERATIONS = int(os.environ.get("OPERATIONS", "2000"))
SEED = int(os.environ.get("SEED", "1"))
KILLS = 4
TIMEOUT = 3.0


class Comparison:
    """Compares a fresh list of the pods with the dump of the running scheduler's ledger."""

    def __init__(self, namespace: Namespace, command: Command) -> None:
        """Store namespace and scheduler. Nothing is read yet."""
        self.command = command
        self.most = 0
        self._namespace = namespace
        self._plugins: frozenset[str] = frozenset()
        self._read = msgspec.json.Decoder(Dump).decode

    def read_nodes(self) -> None:
        """List the nodes again."""
        self._plugins = plugins(objects_of(self._namespace.kube.raw("GET", "/api/v1/nodes")[1]))

    def settle(self) -> str:
        """Compare until both are equal, at most `limit(TIMEOUT)`. Return the remaining differences; empty if equal."""
        deadline = time.monotonic() + limit(TIMEOUT)
        while True:
            difference = self._difference()
            if not difference or time.monotonic() > deadline:
                return difference
            time.sleep(0.002)

    def _difference(self) -> str:
        pods = objects_of(self._namespace.kube.raw("GET", self._namespace.pods)[1])
        wrong = "; ".join(wrongs(pods))
        if wrong:
            return f"against the rules: {wrong}"
        read = holds(pods, self._plugins)
        dumped = self._dumped()
        self.most = max(self.most, len(read))
        lines = [
            f"{uid}: the list says {read.get(uid)}, the ledger {dumped.get(uid)}"
            for uid in read.keys() | dumped.keys()
            if read.get(uid) != dumped.get(uid)
        ]
        return "\n".join(lines)

    def _dumped(self) -> dict[str, Hold]:
        status, text = self.command.ask("/debug/ledger")
        assert status == 200, text
        return {
            each.uid: Hold(each.pod, each.node, each.devices, each.unnamed, each.index, each.workload)
            for each in self._read(text).holders
        }


@pytest.mark.timeout(600)
@pytest.mark.promise("hold-8", "hold-1", "hold-6", "hold-7", "index-9", "index-10", "lead-4")
def test_the_ledger_equals_the_reference(plane: ControlPlane, namespace: Namespace, tmp_path: Path) -> None:
    """Pods are created, deleted, finished and terminating, nodes change, and the scheduler is killed several times."""
    dice = random.Random(SEED)  # noqa: S311 - it must be repeatable, not secret
    operations = RandomOperations(namespace, dice)
    began = time.monotonic()
    command = start(plane, tmp_path, 0)
    try:
        comparison = Comparison(namespace, command)
        for number in range(OPERATIONS):
            if number and number % (OPERATIONS // KILLS) == 0:
                comparison.command.kill()
                comparison.command = command = start(plane, tmp_path, number)
            done = operations.play()
            if operations.node_changed:
                comparison.read_nodes()
            difference = comparison.settle()
            assert not difference, f"SEED={SEED}, operation {number}: {done}\n{difference}"
            assert command.process.alive(), f"SEED={SEED}, operation {number}: {done}\nthe scheduler has ended"
        seconds = time.monotonic() - began
        print(f"SEED={SEED}: {OPERATIONS} operations in {seconds:.0f} s, at most {comparison.most} holders")  # noqa: T201
        assert comparison.most >= 5
    finally:
        command.hang_up()
        command.process.stop()


def start(plane: ControlPlane, folder: Path, number: int) -> Command:
    """Start a scheduler with the debug endpoint of its ledger."""
    command = start_alone(plane, folder, f"oracle-{number}", DEBUG_ENDPOINTS="true")
    command.wait_ready()
    return command
