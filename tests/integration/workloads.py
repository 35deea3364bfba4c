"""A control plane with our CRDs and policies, the controller under the RBAC of its role, and GPUWorkloads of a test."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from tests import objects
from tests.integration import policies
from tests.integration.command import Command
from tests.integration.namespace import SYSTEM_NAMESPACE, Namespace
from tests.integration.policies import SCHEDULER
from tests.integration.role_manifests import control_plane, rights_of
from tests.objects import gpu_workload
from tests.waiting import eventually

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
# An admission plugin, enabled on OpenShift, that requires a right on each owner with blockOwnerDeletion.
GUARDED_OWNERS: Final = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"


def controller_plane(folder: Path, isolation: str = "env") -> ControlPlane:
    """Start a control plane with our CRDs, the RBAC of role controller and the guard policies. The caller stops it."""
    plane = control_plane(folder, GUARDED_OWNERS, isolation=isolation)
    try:
        prepare_controller(plane, isolation)
    except BaseException:
        plane.stop()
        raise
    return plane


def prepare_controller(plane: ControlPlane, isolation: str = "env") -> None:
    """Create our CRDs, the RBAC of role controller and the guard policies. Return when they are in force."""
    files = ROOT / "roles" / "crds" / "files"
    for name in KINDS:
        plane.kube.create(DEFINITIONS, yaml.safe_load((files / f"{name}.yaml").read_text()))
    for body in yaml.safe_load_all((files / "rights.yaml").read_text()):
        plane.kube.create(CLUSTER_ROLES, body)
    for collection, body in rights_of("controller"):
        plane.kube.create(collection, body)
    eventually("both are served", lambda: all(plane.kube.call("GET", f"{API}/{name}")[0] == 200 for name in KINDS))
    policies.guard(plane, isolation=isolation)


def start_controller(
    plane: ControlPlane, folder: Path, name: str, module: str = "gpu_scheduler", **env: str
) -> Command:
    """Start a controller with the RBAC of its role. `module` replaces the program's module, to inject a fault."""
    token = plane.service_account_token(SYSTEM_NAMESPACE, "gpu-scheduler-controller")
    kubeconfig = plane.kubeconfig(folder / f"{name}.kubeconfig", token)
    settings = {"KUBERNETES_NAMESPACE": SYSTEM_NAMESPACE, **env}
    return Command(folder, name, ["controller", "--kubeconfig", str(kubeconfig)], settings, module)


def example() -> Object:
    """Return the example GPUWorkload of docs/workloads.md."""
    page = (ROOT / "docs" / "workloads.md").read_text()
    (text,) = re.findall(r"```yaml\n(apiVersion: agentaflow.io/v1\nkind: GPUWorkload\n.*?)```", page, re.DOTALL)
    body: Object = yaml.safe_load(text)
    return body


class Workloads:
    """The GPUWorkloads of one namespace. Tests do the work of scheduler and kubelet for their pods."""

    def __init__(self, plane: ControlPlane, namespace: Namespace) -> None:
        """Store the namespace of the GPUWorkloads and their pods."""
        self.namespace = namespace
        self.kube: KubeClient = plane.kube
        self.path = f"{API}/namespaces/{namespace.name}/gpuworkloads"
        self._scheduler = plane.client_as(SCHEDULER)

    def place(self, name: str, template: Object | None = None, **spec: Any) -> Object:
        """Create a workload; without `template`, with one container. Return it."""
        return self.kube.create(self.path + STRICT, gpu_workload(name, template, **spec))

    def read(self, name: str) -> Object:
        """Read the workload."""
        found = self.kube.get(f"{self.path}/{name}")
        assert found is not None, f"no workload {name}"
        return found

    def status(self, name: str) -> Object:
        """Return the workload's status; empty if none was written."""
        status: Object = self.read(name).get("status", {})
        return status

    def wait(self, name: str, phase: str, reason: str = "", seconds: float = 10.0) -> Object:
        """Wait until the workload has this phase and reason. Return its status."""

        def reported() -> Object | None:
            status = self.status(name)
            return status if (status.get("phase"), status.get("reason", "")) == (phase, reason) else None

        return eventually(f"{name} is {phase} {reason}", reported, seconds)

    def pods(self) -> list[str]:
        """Return the names of the namespace's pods, sorted."""
        return sorted(pod["metadata"]["name"] for pod in self.kube.call("GET", self.namespace.pods)[1]["items"])

    def wait_pod(self, name: str) -> Object:
        """Wait until a pod of this name exists. Return it."""
        return eventually(f"pod {name} is there", lambda: self.kube.get(f"{self.namespace.pods}/{name}"))

    def bind(self, pod: str, node: str, devices: str) -> None:
        """Bind the pod with these devices, as the scheduler does."""
        assigned = {"agentaflow.gpu/assigned-devices": devices, "agentaflow.gpu/assigned-uuids": "GPU-a"}
        path = f"{self.namespace.pods}/{pod}/binding"
        status, answer = self._scheduler.call(
            "POST",
            path,
            {"metadata": {"name": pod, "annotations": assigned}, "target": {"kind": "Node", "name": node}},
        )
        assert status == 201, answer

    def set_status(self, pod: str, **status: Any) -> None:
        """Write fields of the pod's status, as the kubelet or the scheduler does."""
        self.kube.patch(f"{self.namespace.pods}/{pod}/status", {"status": status})

    def wait_asked(self) -> None:
        """Wait until the API server calls our webhook for pods of ours."""
        probe = objects.pod("probe", annotations={"gpu-scheduling-map": "nonsense"})
        path = f"{self.namespace.pods}?dryRun=All"
        eventually("the API server asks the webhook", lambda: self.kube.call("POST", path, probe)[0] == 400)

    def events(self, name: str) -> list[Object]:
        """Return the events of a workload, the oldest first."""
        _, answer = self.kube.call("GET", f"/apis/events.k8s.io/v1/namespaces/{self.namespace.name}/events")
        about = ({**each["regarding"], "event": each} for each in answer["items"])
        found = [each["event"] for each in about if (each["kind"], each["name"]) == ("GPUWorkload", name)]
        return sorted(found, key=lambda event: str(event["eventTime"]))

    def writes(self, name: str, since: str) -> int:
        """Count the writes to the workload since this resourceVersion."""
        last = str(self.read(name)["metadata"]["resourceVersion"])
        query = f"watch=true&resourceVersion={since}&timeoutSeconds=300&fieldSelector=metadata.name={name}"
        versions: list[str] = []
        if last != since:
            with self.kube.stream(f"{self.path}?{query}") as (_, answer):
                while last not in versions:
                    versions.append(str(json.loads(answer.readline())["object"]["metadata"]["resourceVersion"]))
        return len(versions)


def waits(message: str, reason: str = "Unschedulable") -> list[Object]:
    """Return the conditions of a waiting pod with this message, as a scheduler writes them."""
    return [{"type": "PodScheduled", "status": "False", "reason": reason, "message": message}]
