"""Logs that can't be written: the disk beneath them is full (F19)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.auditor.auditor import auditing
from tests.integration.command import start_alone
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.bench import Bench
    from tests.integration.control_plane import ControlPlane


def test_a_full_disk_costs_the_log_and_nothing_else(plane: ControlPlane, bench: Bench, tmp_path: Path) -> None:
    """No line of log can be written, from the first on: pods are placed and told of, and the end is in order."""
    (tmp_path / "mute-0.log").symlink_to("/dev/full")
    bench.node("node1")
    command = start_alone(plane, tmp_path, "mute-0", DEBUG_ENDPOINTS="true")
    try:
        command.wait_ready()
        eventually("it leads", command.leads, seconds=30)
        with auditing(plane, command) as auditor:
            bench.pod("first-0", "0=node1:0\n", "0")
            bench.wait_bound("first-0", "node1")
            bench.pod("second-0", "0=node1:0\n1=node1:1\n", "0")
            bench.wait_message("second-0", "GpuHeld: ")
            bench.delete("first-0")
            bench.wait_bound("second-0", "node1")
            assert auditor.report() == []
        assert command.process.stop() == 0
    finally:
        command.process.stop()
