"""What was missed while nobody looked is found by the next list, deletions included."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.command import start_alone, start_scheduler
from tests.integration.link import Link
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.bench import Bench
    from tests.integration.control_plane import ControlPlane


@pytest.fixture
def link(plane: ControlPlane) -> Iterator[Link]:
    """A way to the API server that can be cut."""
    link = Link(plane.port)
    yield link
    link.close()


@pytest.mark.promise("hold-8")
def test_a_deletion_lost_to_compaction_is_found_by_the_next_list(
    plane: ControlPlane, bench: Bench, link: Link, tmp_path: Path
) -> None:
    """While the link is cut the holder goes, etcd is compacted and the API server replaced: 410, list, bind."""
    command = start_alone(plane, tmp_path, "far-0", link.port)
    try:
        command.wait_ready()
        bench.node("node1")
        bench.pod("holder-0", "0=node1:0\n", "0")
        bench.wait_bound("holder-0", "node1")
        bench.pod("waiter-0", "0=node1:0\n1=node1:1\n", "0")
        bench.wait_message("waiter-0", "GpuHeld: ")

        link.cut()
        bench.delete("holder-0")
        bench.pod("other-1", "1=node1:5\n", "5")
        plane.compact()
        plane.restart_api()
        link.mend()

        bench.wait_bound("waiter-0", "node1", seconds=15)
        bench.wait_bound("other-1", "node1")
        assert command.said("The version has expired: listing anew")
        assert command.process.alive()
    finally:
        command.process.stop()


def test_readiness_tells_of_a_silent_api_server(plane: ControlPlane, tmp_path: Path) -> None:
    """A replica that hears nothing says so on /readyz, names the resource, and recovers by itself."""
    command = start_scheduler(plane, tmp_path, "deaf-0", WATCH_IDLE_LIMIT="500ms")
    try:
        command.wait_ready()
        plane.pause()
        try:
            eventually("it is not ready", lambda: command.get("/readyz")[0] == 503)
            assert "[-]watches failed: the API server says nothing of" in command.get("/readyz")[1]
        finally:
            plane.resume()
    finally:
        command.process.stop()
