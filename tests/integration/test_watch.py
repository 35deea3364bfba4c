"""A new list finds all changes that a watch missed, deletions included."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.command import start_alone, start_scheduler
from tests.integration.link import Link
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace


@pytest.fixture
def link(plane: ControlPlane) -> Iterator[Link]:
    """A TCP proxy to the API server that can be cut."""
    link = Link(plane.port)
    yield link
    link.close()


@pytest.mark.promise("hold-8")
def test_a_deletion_lost_to_compaction_is_found_by_the_next_list(
    plane: ControlPlane, namespace: Namespace, link: Link, tmp_path: Path
) -> None:
    """While the link is cut, the holder is deleted, etcd compacted and the API server replaced. The watch gets 410."""
    command = start_alone(plane, tmp_path, "far-0", link.port)
    try:
        command.wait_ready()
        namespace.node("node1")
        namespace.pod("holder-0", "0=node1:0\n", "0")
        namespace.wait_bound("holder-0", "node1")
        namespace.pod("waiter-0", "0=node1:0\n1=node1:1\n", "0")
        namespace.wait_message("waiter-0", "GpuHeld: ")

        link.cut()
        namespace.delete("holder-0")
        namespace.pod("other-1", "1=node1:5\n", "5")
        plane.compact()
        plane.restart_api()
        link.restore()

        namespace.wait_bound("waiter-0", "node1", seconds=15)
        namespace.wait_bound("other-1", "node1")
        assert command.logged("The resource version has expired: listing again")
        assert command.process.alive()
    finally:
        command.process.stop()


def test_readiness_reports_an_api_server_that_does_not_answer(plane: ControlPlane, tmp_path: Path) -> None:
    """A replica whose watches receive nothing is not ready, and /readyz names the resource."""
    command = start_scheduler(plane, tmp_path, "deaf-0", WATCH_IDLE_LIMIT="500ms")
    try:
        command.wait_ready()
        plane.pause()
        try:
            eventually("it is not ready", lambda: command.get("/readyz")[0] == 503)
            assert "[-]watches failed: no data from the API server about" in command.get("/readyz")[1]
        finally:
            plane.resume()
    finally:
        command.process.stop()
