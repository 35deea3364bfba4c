"""A node with a simulated monitor that runs under the RBAC of role monitor."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from tests import objects
from tests.integration.accounts import collections
from tests.integration.command import Command
from tests.integration.role_manifests import rendered, values_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.objects import Object

NAMESPACE: Final = "gpu-scheduler-monitor"
COLLECTIONS: Final = collections(NAMESPACE)
LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
INVENTORY: Final = "node1:\n- {count: 4, model: A100-40GB, memoryTotalMiB: 40960}\n"


def allow(plane: ControlPlane) -> None:
    """Create the monitors' namespace, with account, RBAC and FlowSchema of role monitor, unless it exists."""
    if plane.kube.get(f"/api/v1/namespaces/{NAMESPACE}") is not None:
        return
    plane.kube.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for body in rendered("monitor", "rbac", {**values_of("monitor"), "_monitor_simulated": True}):
        plane.kube.create(COLLECTIONS[body["kind"]], body)


class MonitoredNode:
    """One node and its monitor."""

    def __init__(self, plane: ControlPlane, folder: Path, node: str) -> None:
        """Write the inventory file and create the monitor's pod. The node must exist; the monitor is not started."""
        self._plane = plane
        self._folder = folder
        self.node = node
        self.file = folder / "inventory.yaml"
        self.file.write_text(INVENTORY.replace("node1", node))
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        body = objects.pod(f"monitor-{node}", None, scheduler="none", serviceAccountName=NAMESPACE, nodeName=node)
        self._pod = plane.kube.create(pods, body)["metadata"]

    def token(self) -> str:
        """Request a token of the monitor's pod. The token names the node on which the pod runs."""
        return self._plane.pod_token(NAMESPACE, NAMESPACE, self._pod)

    def start(self, **env: str) -> Command:
        """Start the node's monitor, which reads the devices five times a second."""
        kubeconfig = self._plane.kubeconfig(self._folder / "kubeconfig", self.token())
        settings = {
            "NODE_NAME": self.node,
            "KUBERNETES_NAMESPACE": NAMESPACE,
            "MONITOR_SOURCE": "simulated",
            "MONITOR_INTERVAL": "200ms",
            "SIMULATED_INVENTORY": str(self.file),
            **env,
        }
        return Command(self._folder, f"monitor-{self.node}", ["monitor", "--kubeconfig", str(kubeconfig)], settings)

    def metadata(self) -> Object:
        """Return the node's metadata."""
        found = self._plane.kube.get(f"/api/v1/nodes/{self.node}")
        assert found is not None
        metadata: Object = found["metadata"]
        return metadata

    def devices(self) -> list[Object]:
        """Return the node's inventory annotation; an empty list if the monitor has not written it."""
        listed: list[Object] = json.loads(self.metadata().get("annotations", {}).get("agentaflow.gpu/devices", "[]"))
        return listed

    def lease(self) -> Object:
        """Return the monitor's Lease; empty if it does not exist."""
        return self._plane.kube.get(f"{LEASES}/{self.node}") or {}
