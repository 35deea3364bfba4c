"""A control plane with the kinds GPUWorkload and GPUNode, the guards, and the controller under its shipped rights."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from tests import objects
from tests.integration import manifests
from tests.integration.bench import SYSTEM_NAMESPACE, Bench
from tests.integration.command import QUICK_LEASE, Command
from tests.integration.manifests import SCHEDULER
from tests.integration.shipped import control_plane, rights_of
from tests.objects import gpu_workload
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from tests.integration.control_plane import ControlPlane
    from tests.kube_client import KubeClient
    from tests.objects import Object

ROOT: Final = Path(__file__).resolve().parents[2]
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CLUSTER_ROLES: Final = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
API: Final = "/apis/agentaflow.io/v1"
KINDS: Final = ("gpuworkloads", "gpunodes")
STRICT: Final = "?fieldValidation=Strict"
# A plugin that asks for a right over every owner whose deletion a pod would hold up, as OpenShift does.
GUARDED_OWNERS: Final = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"


def workshop(folder: Path) -> ControlPlane:
    """Start one; who asked for it stops it."""
    plane = control_plane(folder, GUARDED_OWNERS)
    try:
        files = ROOT / "roles" / "crds" / "files"
        for name in KINDS:
            plane.kube.create(DEFINITIONS, yaml.safe_load((files / f"{name}.yaml").read_text()))
        for body in yaml.safe_load_all((files / "rights.yaml").read_text()):
            plane.kube.create(CLUSTER_ROLES, body)
        for collection, body in rights_of("controller"):
            plane.kube.create(collection, body)
        eventually("both are served", lambda: all(plane.kube.call("GET", f"{API}/{name}")[0] == 200 for name in KINDS))
        manifests.guard(plane)
    except BaseException:
        plane.stop()
        raise
    return plane


def start_controller(
    plane: ControlPlane, folder: Path, name: str, module: str = "gpu_scheduler", **env: str
) -> Command:
    """Start a replica under the rights that the role gives it; `module` may stand in for the program's own."""
    token = plane.service_account_token(SYSTEM_NAMESPACE, "gpu-scheduler-controller")
    kubeconfig = plane.kubeconfig(folder / f"{name}.kubeconfig", token)
    settings = {"KUBERNETES_NAMESPACE": SYSTEM_NAMESPACE, **QUICK_LEASE, **env}
    return Command(folder, name, ["controller", "--kubeconfig", str(kubeconfig)], settings, module)


def example() -> Object:
    """The workload of docs/workloads.md."""
    page = (ROOT / "docs" / "workloads.md").read_text()
    (text,) = re.findall(r"```yaml\n(apiVersion: agentaflow.io/v1\nkind: GPUWorkload\n.*?)```", page, re.DOTALL)
    body: Object = yaml.safe_load(text)
    return body


class Orders:
    """GPUWorkloads of one namespace; what scheduler and kubelet do for their pods is done by hand."""

    def __init__(self, plane: ControlPlane, bench: Bench) -> None:
        """The bench has the namespace and its pods."""
        self.bench = bench
        self.kube: KubeClient = plane.kube
        self.path = f"{API}/namespaces/{bench.namespace}/gpuworkloads"
        self._scheduler = plane.client_as(SCHEDULER)

    def place(self, name: str, template: Object | None = None, **spec: Any) -> Object:
        """Create a workload of one container."""
        return self.kube.create(self.path + STRICT, gpu_workload(name, template, **spec))

    def read(self, name: str) -> Object:
        """Give the workload as it is."""
        found = self.kube.get(f"{self.path}/{name}")
        assert found is not None, f"no workload {name}"
        return found

    def status(self, name: str) -> Object:
        """Give what was told of it; empty when nothing was."""
        status: Object = self.read(name).get("status", {})
        return status

    def wait(self, name: str, phase: str, reason: str = "", seconds: float = 10.0) -> Object:
        """Wait until it is in this phase for this reason; give all that was told."""

        def told() -> Object | None:
            status = self.status(name)
            return status if (status.get("phase"), status.get("reason", "")) == (phase, reason) else None

        return eventually(f"{name} is {phase} {reason}", told, seconds)

    def pods(self) -> list[str]:
        """Give the names of the namespace's pods."""
        return sorted(pod["metadata"]["name"] for pod in self.kube.call("GET", self.bench.pods)[1]["items"])

    def wait_pod(self, name: str) -> Object:
        """Wait until there is a pod of this name."""
        return eventually(f"pod {name} is there", lambda: self.kube.get(f"{self.bench.pods}/{name}"))

    def bind(self, pod: str, node: str, devices: str) -> None:
        """Do the scheduler's work."""
        assigned = {"agentaflow.gpu/assigned-devices": devices, "agentaflow.gpu/assigned-uuids": "GPU-a"}
        path = f"{self.bench.pods}/{pod}/binding"
        status, answer = self._scheduler.call(
            "POST",
            path,
            {"metadata": {"name": pod, "annotations": assigned}, "target": {"kind": "Node", "name": node}},
        )
        assert status == 201, answer

    def say(self, pod: str, **status: Any) -> None:
        """Do a kubelet's work, or the scheduler's where it tells why a pod waits."""
        self.kube.patch(f"{self.bench.pods}/{pod}/status", {"status": status})

    def wait_asked(self) -> None:
        """Wait until the API server asks our webhook about pods of ours."""
        probe = objects.pod("probe", annotations={"gpu-scheduling-map": "nonsense"})
        path = f"{self.bench.pods}?dryRun=All"
        eventually("the API server asks the webhook", lambda: self.kube.call("POST", path, probe)[0] == 400)

    def writes(self, name: str, since: str) -> int:
        """Count how often the workload was written since that version."""
        seconds = 1
        query = f"watch=true&resourceVersion={since}&timeoutSeconds={seconds}&fieldSelector=metadata.name={name}"
        began = time.monotonic()
        _, text = self.kube.raw("GET", f"{self.path}?{query}")
        assert time.monotonic() - began < seconds + limit(5)
        return len(text.splitlines())


def waits(message: str, reason: str = "Unschedulable") -> list[Object]:
    """The condition with which a scheduler tells why a pod waits."""
    return [{"type": "PodScheduled", "status": "False", "reason": reason, "message": message}]
