"""The auditor finds wrong and random decisions in the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.auditor.auditor import auditing
from tests.integration.faults.violations import QUICK, found, open_scheduler
from tests.objects import ready_condition

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace
    from tests.objects import Object

WITHOUT_FILTERS: Final = "tests.integration.program_without_filters"


BAD: Final[dict[str, Object]] = {
    "is not Ready": {"status": {"conditions": [ready_condition(ready=False)]}},
    "is cordoned": {"spec": {"unschedulable": True}},
    "has a taint": {"spec": {"taints": [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]}},
}


@pytest.mark.parametrize("state", BAD.values(), ids=BAD)
def test_a_bind_to_an_unusable_node_is_found(
    plane: ControlPlane, namespace: Namespace, tmp_path: Path, state: Object
) -> None:
    """I6. Scheduler and replay have the same built-in fault, so the replay agrees and only I6 is reported."""
    namespace.node("node1")
    namespace.patch_node("node1", state)
    with (
        open_scheduler(plane, tmp_path, module=WITHOUT_FILTERS) as command,
        auditing(plane, allowed=QUICK) as auditor,
    ):
        auditor.follow(command)
        namespace.pod("train-0", "0=node1:0\n", "0")
        namespace.wait_bound("train-0", "node1")

        assert found(auditor) == {"I6"}


def test_a_decision_that_contradicts_its_inputs_is_found(
    plane: ControlPlane, namespace: Namespace, tmp_path: Path
) -> None:
    """I11. The test changes a decision in the journal, so that it no longer follows from the inputs."""
    namespace.node("node1")
    with (
        open_scheduler(plane, tmp_path) as command,
        auditing(plane, command) as auditor,
    ):
        namespace.pod("train-0", "0=node1:0\n", "0")
        namespace.wait_bound("train-0", "node1")
        namespace.pod("next-0", "0=node1:0\n1=node1:1\n", "0")
        namespace.wait_message("next-0", "GpuHeld: ")
        assert auditor.report() == []

        journal = command.journal
        assert journal is not None
        journal.write_bytes(journal.read_bytes().replace(b'"reason":"GpuHeld"', b'"reason":"IndexHeld"'))

        report = auditor.report()
        assert {violation.invariant for violation in report} == {"I11"}
        assert "next-0" in report[0].sentence


def test_a_bind_to_a_node_that_is_gone_is_found(plane: ControlPlane, namespace: Namespace, tmp_path: Path) -> None:
    """I6. In the journal the node is deleted before the bind. The replay decides otherwise, so I11 is reported too."""
    namespace.node("node1")
    with (
        open_scheduler(plane, tmp_path) as command,
        auditing(plane, command) as auditor,
    ):
        namespace.pod("train-0", "0=node1:0\n", "0")
        namespace.wait_bound("train-0", "node1")
        journal = command.journal
        assert journal is not None
        lines = journal.read_bytes().splitlines(keepends=True)
        node = next(line for line in lines if b'"received":"node"' in line and b'"name":"node1"' in line)
        where = next(number for number, line in enumerate(lines) if b'"verdict":"bind"' in line)
        lines.insert(where, node.replace(b'"gone":false', b'"gone":true'))

        journal.write_bytes(b"".join(lines))

        assert found(auditor) == {"I6", "I11"}
