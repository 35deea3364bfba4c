"""The audit reports and repairs a wrong ledger and a device with two holders."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.integration.command import start_alone
from tests.integration.feasibility_case import asker, holder
from tests.objects import literal, pod
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace


@pytest.mark.promise("hold-9", "hold-8")
def test_a_damaged_ledger_is_found_and_repaired(plane: ControlPlane, namespace: Namespace, tmp_path: Path) -> None:
    """The ledger loses all holders of devices. The next audit counts a repair and restores the holder."""
    times = {"AUDIT_INTERVAL": "3s", "SCHEDULING_INTERVAL": "200ms"}
    command = start_alone(plane, tmp_path, "damaged-0", None, "tests.integration.program_with_wrong_ledger", **times)
    with command.serving():
        namespace.node("node1")
        namespace.make(holder())
        namespace.wait_bound("holder-0", "node1")
        assert command.metric("gpu_scheduler_ledger_repairs_total") == 0

        command.process.send(signal.SIGUSR1)

        eventually("it is repaired", lambda: command.metric("gpu_scheduler_ledger_repairs_total") > 0, seconds=60)
        namespace.make(asker())
        assert f"{namespace.name}/holder-0" in namespace.wait_message("asker-0", "GpuHeld: ")


@pytest.mark.promise("lead-5")
def test_a_gpu_that_is_held_twice_is_reported(namespace: Namespace, scheduler: Command) -> None:
    """Two pods are created with one device and a node. The metric and an event on each pod report the conflict."""
    namespace.node("node1")
    for name, index in (("one-0", "0=node1:0\n"), ("two-0", "0=node1:0\n1=node9:1\n")):
        namespace.make(pod(name, index, literal("0"), nodeName="node1"))

    eventually("the metric counts the conflict", lambda: scheduler.metric("gpu_scheduler_conflicts") == 1)
    for name, other in (("one-0", "two-0"), ("two-0", "one-0")):
        event = namespace.wait_event(name, "GpuConflict")
        assert f"{namespace.name}/{other}" in event["note"]

    namespace.delete("two-0")
    eventually("it is over", lambda: scheduler.metric("gpu_scheduler_conflicts") == 0)
