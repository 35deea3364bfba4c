"""Limits of namespaces when a scheduler starts again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration import limits
from tests.integration.command import start_alone
from tests.integration.limits import limit, train
from tests.messages import says, text_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace

KEPT = text_of("the scheduler keeps the limits before an error").rpartition("}")[2]
PARTLY_READ = text_of("the scheduler starts with limits that have an error").rpartition("}")[2]


@pytest.mark.promise("quota-4", "quota-5")
def test_a_lower_limit_and_a_restart_end_no_pod(plane: ControlPlane, limited: Namespace, tmp_path: Path) -> None:
    """Holds are read from the pods. A text with an error lifts no limit, before and after a restart."""
    with start_alone(plane, tmp_path, "limited-0").serving(leads=True) as command:
        train(limited, 0, 1)
        assert [limited.placed(f"train-{index}").devices for index in (0, 1)] == ["0,1", "0"]
        limit(limited, command, "devices=2")
        limits.write(limited.kube, f"{limited.name}: devices=many")
        eventually("the error is logged", lambda: command.logged(KEPT))
        assert command.metric("gpu_scheduler_limits_faults") == 1
        train(limited, 2)
        limited.wait_message("train-2", "QuotaExceeded: ")
        command.kill()

    with start_alone(plane, tmp_path, "limited-1").serving(leads=True) as command:
        eventually("the error is logged again", lambda: command.logged(PARTLY_READ))
        train(limited, 3)
        says(limited.wait_message("train-3", "QuotaExceeded: "), "QuotaExceeded", limited.name, "gpu-scheduler-limits")
        assert [limited.read(f"train-{index}")["spec"]["nodeName"] for index in (0, 1)] == ["node1", "node2"]

        limited.kube.delete(limits.LIMITS)
        eventually("both are bound", lambda: limited.node_of("train-2") and limited.node_of("train-3"), seconds=12)
