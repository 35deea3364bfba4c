"""Limits of namespaces over the starts of a scheduler: what it finds, and what it may not see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration import limits
from tests.integration.bench import SYSTEM_NAMESPACE
from tests.integration.command import start_alone
from tests.integration.limits import limit, train
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.bench import Bench
    from tests.integration.control_plane import ControlPlane

ROLE = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/roles/gpu-scheduler"


@pytest.mark.promise("quota-4", "quota-5")
def test_a_lower_limit_and_a_restart_end_no_pod(plane: ControlPlane, limited: Bench, tmp_path: Path) -> None:
    """What is held is read from the pods; a text with a fault lifts nothing, before a restart or after it."""
    command = start_alone(plane, tmp_path, "limited-0")
    try:
        command.wait_ready()
        eventually("it leads", command.leads)
        train(limited, 0, 1)
        assert [limited.placed(f"train-{index}").devices for index in (0, 1)] == ["0,1", "0"]
        limit(limited, command, "devices=2")
        limits.write(limited.kube, f"{limited.namespace}: devices=many")
        eventually("it is told", lambda: command.said("the limits before it stay"), seconds=2)
        assert command.metric("gpu_scheduler_limits_faults") == 1
        train(limited, 2)
        limited.wait_message("train-2", "QuotaExceeded: ")

        command.kill()
        command = start_alone(plane, tmp_path, "limited-1")
        command.wait_ready()
        eventually("it leads", command.leads)
        eventually("it is told again", lambda: command.said("the lines that can be read hold"), seconds=2)
        train(limited, 3)
        assert "cannot be read" in limited.wait_message("train-3", "QuotaExceeded: ")
        assert [limited.read(f"train-{index}")["spec"]["nodeName"] for index in (0, 1)] == ["node1", "node2"]

        limited.kube.delete(limits.LIMITS)
        eventually("both are bound", lambda: limited.node_of("train-2") and limited.node_of("train-3"), seconds=12)
    finally:
        command.process.stop()


@pytest.mark.promise("quota-6")
def test_who_may_not_see_the_limits_decides_nothing(plane: ControlPlane, limited: Bench, tmp_path: Path) -> None:
    """Nobody escapes them through a right that is missing; with the right the scheduler goes on by itself."""
    role = limited.kube.get(ROLE)
    assert role is not None
    narrow = [
        {**rule, "resourceNames": ["gpu-scheduler-settings"]} if "configmaps" in rule["resources"] else rule
        for rule in role["rules"]
    ]
    limited.kube.patch(ROLE, {"rules": narrow})
    command = start_alone(plane, tmp_path, "blind-0")
    try:
        eventually("it says so", lambda: "not listed yet: limits" in command.get("/readyz?verbose")[1], seconds=10)
        train(limited, 1)
        assert not limited.read("train-1")["spec"].get("nodeName")

        limited.kube.patch(ROLE, {"rules": role["rules"]})
        command.wait_ready()
        assert limited.placed("train-1", seconds=20).devices == "0"
    finally:
        limited.kube.patch(ROLE, {"rules": role["rules"]})
        command.process.stop()
