"""A full disk under the log (F19)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.auditor.auditor import auditing
from tests.integration.command import start_alone

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace


def test_a_full_disk_loses_only_the_log(plane: ControlPlane, namespace: Namespace, tmp_path: Path) -> None:
    """No line of the log can be written. Pods are bound, conditions are written, and the process ends with status 0."""
    (tmp_path / "mute-0.log").symlink_to("/dev/full")
    namespace.node("node1")
    with start_alone(plane, tmp_path, "mute-0", DEBUG_ENDPOINTS="true").serving(leads=True) as command:
        with auditing(plane, command) as auditor:
            namespace.pod("first-0", "0=node1:0\n", "0")
            namespace.wait_bound("first-0", "node1")
            namespace.pod("second-0", "0=node1:0\n1=node1:1\n", "0")
            namespace.wait_message("second-0", "GpuHeld: ")
            namespace.delete("first-0")
            namespace.wait_bound("second-0", "node1")
            assert auditor.report() == []
        assert command.process.stop() == 0
