"""Leases of monitors that expire while a scheduler runs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pytest

from tests import objects
from tests.integration.accounts import RBAC, binding, rights
from tests.integration.command import start_alone
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace

APPLY: Final = "application/apply-patch+yaml"


@pytest.fixture
def gpu_nodes(namespace: Namespace) -> Namespace:
    """A large device on node1 and a small one on node2."""
    for name, memory in (("node1", 81920), ("node2", 16384)):
        namespace.node(name, annotations={"agentaflow.gpu/devices": device(memory)})
    return namespace


def device(memory: int) -> str:
    """Return the inventory of a node with one device, as a monitor writes it."""
    return json.dumps([{"index": 0, "memoryTotalMiB": memory, "health": "healthy"}])


def asker(name: str) -> dict[str, object]:
    """Return a pod that asks for one GPU, as it is after the webhook."""
    return objects.pod(name, None, objects.reading(), annotations={"agentaflow.gpu/count": "1"})


def asked(namespace: Namespace, name: str, node: str) -> None:
    """Create such a pod, wait until it is bound to this node, and delete it."""
    namespace.make(asker(name))
    namespace.wait_bound(name, node)
    namespace.delete(name)


def admit(namespace: Namespace) -> None:
    """Allow the scheduler to list and watch the monitors' Leases, as role monitor does."""
    name, roles = "gpu-scheduler-reads-monitor", f"{RBAC}/namespaces/{namespace.name}"
    leases = rights("leases", "list", "watch", group="coordination.k8s.io")
    namespace.kube.create(f"{roles}/roles", {"metadata": {"name": name}, "rules": [leases]})
    body = binding(name, "Role", name, "gpu-scheduler", SYSTEM_NAMESPACE)
    namespace.kube.create(f"{roles}/rolebindings", body)


def renew(namespace: Namespace, node: str, seconds: int) -> None:
    """Renew the Lease of a node's monitor for this duration."""
    spec = {
        "holderIdentity": "monitor-of-the-test",
        "leaseDurationSeconds": seconds,
        "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node}, "spec": spec}
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace.name}/leases"
    status, answer = namespace.kube.call("PATCH", f"{leases}/{node}?fieldManager=test&force=true", body, APPLY)
    assert status in {200, 201}, answer


@pytest.mark.promise("steer-3", "steer-4")
def test_the_node_of_a_stopped_monitor_becomes_stale(plane: ControlPlane, gpu_nodes: Namespace, tmp_path: Path) -> None:
    """A node becomes stale when its Lease expires, and usable when it is renewed. Without Leases no node is stale.

    Fresh Leases last ten minutes, so that none expires on a slow machine. Then each is renewed for three seconds, and
    nothing is written afterwards: a timer notices that they have expired.
    """
    with start_alone(plane, tmp_path, "listening-0", MONITOR_NAMESPACE=gpu_nodes.name).serving(leads=True) as command:
        assert command.logged("it counts as empty")
        asked(gpu_nodes, "unmonitored", "node1")

        admit(gpu_nodes)
        for node in ("node1", "node2"):
            renew(gpu_nodes, node, 600)
        eventually("the Leases are seen", lambda: seen(command), seconds=40)
        asked(gpu_nodes, "fresh", "node1")
        for node in ("node1", "node2"):
            renew(gpu_nodes, node, 3)
        eventually("both are stale", lambda: command.metric("agentaflow_gpu_available") == 0)
        gpu_nodes.make(asker("waiting"))
        gpu_nodes.wait_message("waiting", "GpuUnhealthy: ")

        renew(gpu_nodes, "node2", 600)
        gpu_nodes.wait_bound("waiting", "node2")


def seen(command: Command) -> bool:
    """Return whether the scheduler has listed the monitors' Leases."""
    listed = [line for line in command.lines() if line.get("event") == "Listed" and line.get("resource") == "monitors"]
    return bool(listed)
