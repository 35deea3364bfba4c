"""The auditor finds what the journal of decisions shows: binds to nodes that take nobody, and decisions by chance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.auditor.auditor import auditing
from tests.integration.faults.forging import QUICK, found, open_scheduler
from tests.objects import ready_condition

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.bench import Bench
    from tests.integration.control_plane import ControlPlane
    from tests.objects import Object

CARELESS: Final = "tests.integration.careless"


BAD: Final[dict[str, Object]] = {
    "is not Ready": {"status": {"conditions": [ready_condition(ready=False)]}},
    "is cordoned": {"spec": {"unschedulable": True}},
    "has a taint": {"spec": {"taints": [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]}},
}


@pytest.mark.parametrize("state", BAD.values(), ids=BAD)
def test_a_bind_to_a_node_that_takes_nobody_is_found(
    plane: ControlPlane, bench: Bench, tmp_path: Path, state: Object
) -> None:
    """I6. The scheduler has a fault built in, and so has who decides again: that it is wrong is all that is found."""
    bench.node("node1")
    bench.patch_node("node1", state)
    with (
        open_scheduler(plane, tmp_path, module=CARELESS) as command,
        auditing(plane, allowed=QUICK) as auditor,
    ):
        auditor.follow(command, CARELESS)
        bench.pod("train-0", "0=node1:0\n", "0")
        bench.wait_bound("train-0", "node1")

        assert found(auditor) == {"I6"}


def test_a_decision_that_does_not_follow_is_found(plane: ControlPlane, bench: Bench, tmp_path: Path) -> None:
    """I11. In the journal a decision is changed: what was taken in does not lead to it."""
    bench.node("node1")
    with (
        open_scheduler(plane, tmp_path) as command,
        auditing(plane, command) as auditor,
    ):
        bench.pod("train-0", "0=node1:0\n", "0")
        bench.wait_bound("train-0", "node1")
        bench.pod("next-0", "0=node1:0\n1=node1:1\n", "0")
        bench.wait_message("next-0", "GpuHeld: ")
        assert auditor.report() == []

        journal = command.journal
        assert journal is not None
        journal.write_bytes(journal.read_bytes().replace(b'"reason":"GpuHeld"', b'"reason":"IndexHeld"'))

        report = auditor.report()
        assert {violation.invariant for violation in report} == {"I11"}
        assert "next-0" in report[0].sentence


def test_a_bind_to_a_node_that_is_gone_is_found(plane: ControlPlane, bench: Bench, tmp_path: Path) -> None:
    """I6. In the journal the node is gone before the bind: nobody would decide so again, and that is found too."""
    bench.node("node1")
    with (
        open_scheduler(plane, tmp_path) as command,
        auditing(plane, command) as auditor,
    ):
        bench.pod("train-0", "0=node1:0\n", "0")
        bench.wait_bound("train-0", "node1")
        journal = command.journal
        assert journal is not None
        lines = journal.read_bytes().splitlines(keepends=True)
        node = next(line for line in lines if b'"took":"node"' in line and b'"name":"node1"' in line)
        where = next(number for number, line in enumerate(lines) if b'"verdict":"bind"' in line)
        lines.insert(where, node.replace(b'"gone":false', b'"gone":true'))

        journal.write_bytes(b"".join(lines))

        assert found(auditor) == {"I6", "I11"}
