"""The live ledger and a reading of its own agree after each of thousands of random operations.

OPERATIONS and SEED in the environment choose how many and which; a failure names both. Suite sweeps takes 10,000,
suite soak another seed each time.
"""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.auditor.holding import Dump
from tests.integration.command import start_alone
from tests.oracle.player import Player
from tests.oracle.reader import Hold, holds, plugins, things, wrongs
from tests.waiting import limit

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.bench import Bench
    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane

OPERATIONS = int(os.environ.get("OPERATIONS", "2000"))
SEED = int(os.environ.get("SEED", "1"))
KILLS = 4
PATIENCE = 3.0


class Comparison:
    """Compares a fresh list with the live dump until they are equal, and keeps what it needs for that."""

    def __init__(self, bench: Bench, command: Command) -> None:
        """Read nothing yet."""
        self.command = command
        self.most = 0
        self._bench = bench
        self._plugins: frozenset[str] = frozenset()
        self._read = msgspec.json.Decoder(Dump).decode

    def look_at_nodes(self) -> None:
        """List the nodes anew."""
        self._plugins = plugins(things(self._bench.kube.raw("GET", "/api/v1/nodes")[1]))

    def settle(self) -> str:
        """Give what still differs after some patience; empty when nothing does."""
        deadline = time.monotonic() + limit(PATIENCE)
        while True:
            difference = self._difference()
            if not difference or time.monotonic() > deadline:
                return difference
            time.sleep(0.002)

    def _difference(self) -> str:
        pods = things(self._bench.kube.raw("GET", self._bench.pods)[1])
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
def test_the_ledger_equals_a_reading_of_its_own(plane: ControlPlane, bench: Bench, tmp_path: Path) -> None:
    """Pods come, go, end and hang, nodes change, the scheduler is killed: both always say the same, soon enough."""
    dice = random.Random(SEED)  # noqa: S311 - it must be repeatable, not secret
    player = Player(bench, dice)
    began = time.monotonic()
    command = start(plane, tmp_path, 0)
    try:
        comparison = Comparison(bench, command)
        for number in range(OPERATIONS):
            if number and number % (OPERATIONS // KILLS) == 0:
                comparison.command.kill()
                comparison.command = command = start(plane, tmp_path, number)
            done = player.play()
            if player.node_changed:
                comparison.look_at_nodes()
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
    """Start a scheduler that shows its ledger."""
    command = start_alone(plane, folder, f"oracle-{number}", DEBUG_ENDPOINTS="true")
    command.wait_ready()
    return command
