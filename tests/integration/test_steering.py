"""What changes while the scheduler runs: the strategy, and whether the nodes' monitors still speak."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pytest

from tests import objects
from tests.integration.bench import SYSTEM_NAMESPACE
from tests.integration.command import start_alone
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.bench import Bench
    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.kube_client import KubeClient

SETTINGS: Final = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/gpu-scheduler-settings"
APPLY: Final = "application/apply-patch+yaml"


@pytest.fixture
def racks(bench: Bench) -> Iterator[Bench]:
    """A large card on node1 and a small one on node2; the settings are gone afterwards."""
    for name, memory in (("node1", 81920), ("node2", 16384)):
        bench.node(name, annotations={"agentaflow.gpu/devices": card(memory)})
    yield bench
    bench.kube.delete(SETTINGS)


def card(memory: int) -> str:
    """A node's only card, as a monitor lists it."""
    return json.dumps([{"index": 0, "memoryTotalMiB": memory, "health": "healthy"}])


def choose(kube: KubeClient, strategy: str) -> None:
    """Do what `gpu-scheduler strategy` does."""
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "gpu-scheduler-settings"},
        "data": {"strategy": strategy},
    }
    status, answer = kube.call("PATCH", f"{SETTINGS}?fieldManager=gpu-scheduler-strategy", body, APPLY)
    assert status in {200, 201}, answer


def holds(command: Command, strategy: str) -> bool:
    """Tell whether the scheduler says that this strategy holds."""
    return command.metric(f'gpu_scheduler_strategy{{strategy="{strategy}"}}') == 1


def asker(name: str, **annotations: str) -> dict[str, object]:
    """A pod that asks for one GPU, as the webhook leaves it."""
    said = {f"agentaflow.gpu/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return objects.pod(name, None, objects.reading(), annotations={"agentaflow.gpu/count": "1", **said})


def asked(bench: Bench, name: str, node: str, **annotations: str) -> None:
    """Make such a pod, see it placed there, and take it away."""
    bench.make(asker(name, **annotations))
    bench.wait_bound(name, node)
    bench.delete(name)


@pytest.mark.promise("steer-1", "steer-2")
def test_another_strategy_holds_within_two_seconds(plane: ControlPlane, racks: Bench, tmp_path: Path) -> None:
    """It outlasts a restart; the pod's own word goes before it; a wrong word is told and changes nothing."""
    command = start_alone(plane, tmp_path, "steered-0")
    try:
        command.wait_ready()
        eventually("it leads", command.leads)
        asked(racks, "usual", "node1")

        choose(racks.kube, "best_fit")
        eventually("best_fit holds", lambda: holds(command, "best_fit"), seconds=2)
        asked(racks, "tight", "node2")
        asked(racks, "own", "node1", scheduling_strategy="priority")

        choose(racks.kube, "fastest")
        eventually("it is told", lambda: command.said('cannot use strategy "fastest"'), seconds=2)
        command.kill()
        choose(racks.kube, "best_fit")
        command = start_alone(plane, tmp_path, "steered-1", SCHEDULING_STRATEGY="round_robin")
        command.wait_ready()
        eventually("it leads", command.leads)
        assert holds(command, "best_fit")
        choose(racks.kube, "fastest")
        eventually("it is told again", lambda: command.said('cannot use strategy "fastest"'), seconds=2)
        asked(racks, "still", "node2")

        racks.kube.delete(SETTINGS)
        eventually("what it was started with holds", lambda: holds(command, "round_robin"), seconds=2)
    finally:
        command.process.stop()


def admit(bench: Bench) -> None:
    """Give the scheduler the right to see the monitors' Leases, as the monitors' role does."""
    rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{bench.namespace}"
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list", "watch"]}
    metadata = {"name": "gpu-scheduler-reads-monitor"}
    bench.kube.create(f"{rights}/roles", {"metadata": metadata, "rules": [rule]})
    scheduler = {"kind": "ServiceAccount", "name": "gpu-scheduler", "namespace": SYSTEM_NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": metadata["name"]}
    bench.kube.create(f"{rights}/rolebindings", {"metadata": metadata, "roleRef": role, "subjects": [scheduler]})


def renew(bench: Bench, node: str) -> None:
    """Renew the Lease of a node's monitor; it lasts three seconds."""
    spec = {
        "holderIdentity": "monitor-of-the-test",
        "leaseDurationSeconds": 3,
        "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node}, "spec": spec}
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{bench.namespace}/leases"
    status, answer = bench.kube.call("PATCH", f"{leases}/{node}?fieldManager=test&force=true", body, APPLY)
    assert status in {200, 201}, answer


@pytest.mark.promise("steer-3", "steer-4")
def test_a_monitor_that_falls_silent_is_noticed_in_time(plane: ControlPlane, racks: Bench, tmp_path: Path) -> None:
    """Without monitors, and without a right to see them, nothing is stale; silence is noticed by a timer, and heals."""
    command = start_alone(plane, tmp_path, "listening-0", MONITOR_NAMESPACE=racks.namespace)
    try:
        command.wait_ready()
        eventually("it leads", command.leads)
        assert command.said("Doing without what cannot be seen")
        asked(racks, "unmonitored", "node1")

        admit(racks)
        for node in ("node1", "node2"):
            renew(racks, node)
        eventually("the Leases are seen", lambda: seen(command), seconds=40)
        for node in ("node1", "node2"):
            renew(racks, node)
        renewed = time.monotonic()
        asked(racks, "fresh", "node1")
        eventually("both are stale", lambda: command.metric("agentaflow_gpu_available") == 0)
        assert time.monotonic() - renewed < limit(4.5)
        racks.make(asker("waiting"))
        racks.wait_message("waiting", "GpuUnhealthy: ", seconds=3)

        renew(racks, "node2")
        racks.wait_bound("waiting", "node2", seconds=3)
    finally:
        command.process.stop()


def seen(command: Command) -> bool:
    """Tell whether the watch of the monitors' Leases runs."""
    listed = [line for line in command.lines() if line.get("event") == "Listed" and line.get("resource") == "monitors"]
    return bool(listed)
