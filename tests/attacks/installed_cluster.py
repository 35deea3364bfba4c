"""A control plane with everything that our roles install, our running programs, and tenants that attack them.

Each request has a real token, and RBAC, policies and webhook decide as on any cluster. Where a test asks the policies
alone, its client impersonates a user with all rights.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from tests import objects
from tests.integration import driven_node, monitored_node
from tests.integration.accounts import RBAC, binding
from tests.integration.command import Command, start_alone
from tests.integration.controller_manager import OF_CLAIMS, start_controller_manager
from tests.integration.isolated import publish
from tests.integration.limits import LIMITS
from tests.integration.namespace import SYSTEM_NAMESPACE, Namespace
from tests.integration.policies import allow_use
from tests.integration.role_manifests import rights_of
from tests.integration.webhook_process import UNMUTATED, UNREVIEWED, Webhook
from tests.integration.workloads import API, controller_plane, start_controller
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.programs import Process
    from tests.kube_client import KubeClient
    from tests.objects import Object

    Request = tuple[str, str, Object | None]

NODES: Final = ("node1", "node2", "node3", "node4")
DEVICES: Final = 4
TENANT: Final = "tenant"
PODS: Final = "/api/v1/namespaces/default/pods"
SYSTEM: Final = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}"
_OF_PODS: Final[dict[str, Request]] = {
    "changes a pod": ("PATCH", "/any", {"metadata": {"labels": {"a": "b"}}}),
    "deletes a pod": ("DELETE", "/any", None),
    "deletes pods": ("DELETE", "", None),
    "evicts a pod": ("POST", "/any/eviction", {"metadata": {"name": "any"}}),
    "runs a command in a pod": ("POST", "/any/exec?command=sh", None),
}
NOBODYS: Final[dict[str, Request]] = {
    **{
        f"{what} {where}": (method, f"{pods}{path}", body)
        for what, (method, path, body) in _OF_PODS.items()
        for where, pods in (("of users", PODS), ("of the system", f"{SYSTEM}/pods"))
    },
    "makes a workload": ("POST", f"{API}/namespaces/default/gpuworkloads", objects.gpu_workload("spy")),
    "makes a ResourceClaim": ("POST", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", {}),
    "reads the Secrets of all": ("GET", "/api/v1/secrets", None),
    "reads Secrets beside its own": ("GET", f"{SYSTEM}/secrets", None),
    "reads Kubernetes' ConfigMaps": ("GET", "/api/v1/namespaces/kube-system/configmaps", None),
    "lists the system's ConfigMaps": ("GET", f"{SYSTEM}/configmaps", None),
    "writes the settings": ("PATCH", f"{SYSTEM}/configmaps/gpu-scheduler-settings", {}),
    "writes the limits": ("PATCH", LIMITS, {}),
    "asks for the scheduler's token": ("POST", f"{SYSTEM}/serviceaccounts/gpu-scheduler/token", {"spec": {}}),
    "grants itself a right": ("PATCH", f"{RBAC}/clusterroles/gpu-scheduler", {"rules": []}),
    "binds itself to a role": ("POST", f"{RBAC}/clusterrolebindings", {"metadata": {"name": "a"}}),
    "switches a policy off": (
        "DELETE",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/gpu-scheduler-scheduler",
        None,
    ),
}
"""Requests that none of our accounts may send."""

_numbers = itertools.count(1)


class InstalledCluster:
    """The control plane, our programs under their own accounts, and the tokens of all accounts."""

    def __init__(self, folder: Path, isolation: str = "env") -> None:
        """Return when the scheduler and the controller lead and the API server calls the webhook.

        With `isolation: dra` drivers publish the GPUs, and kube-controller-manager frees claims.
        """
        self._folder = folder
        self.plane: ControlPlane = controller_plane(folder, isolation)
        self.kube: KubeClient = self.plane.kube
        self._monitors: dict[str, KubeClient] = {}
        self._drivers: dict[str, KubeClient] = {}
        self._programs: list[Command] = []
        self._processes: list[Process] = []
        try:
            monitored_node.allow(self.plane)
            driven_node.allow(self.plane, "policy", "class")
            for collection, body in rights_of("certificates"):
                self.kube.create(collection, body)
            _aggregate(self.kube)
            for name in NODES:
                devices = objects.inventory(*(objects.device(index) for index in range(DEVICES)))
                # Drivers publish their GPUs in slices.
                annotations = devices if isolation == "env" else {}
                self.kube.create("/api/v1/nodes", objects.node(name, annotations=annotations))
            self.webhook = Webhook(folder, ["webhook"], {})
            self._programs.append(self.webhook.command)
            for collection, body in self.webhook.registrations(webhook_isolation=isolation):
                for one in body["webhooks"]:
                    selector = one.setdefault("namespaceSelector", {"matchExpressions": []})
                    spared = [UNREVIEWED, *[UNMUTATED] * (body["kind"] == "MutatingWebhookConfiguration")]
                    selector["matchExpressions"] += [{"key": key, "operator": "DoesNotExist"} for key in spared]
                self.kube.create(collection, body)
            if isolation == "dra":
                manager = start_controller_manager(self.plane, folder, *OF_CLAIMS, own_accounts=True)
                self._processes.append(manager)
                publish(self.kube, NODES)
            self.scheduler = start_alone(self.plane, folder, "scheduler-0", ISOLATION=isolation)
            self._programs.append(self.scheduler)
            self.controller = start_controller(self.plane, folder, "controller-0")
            self._programs.append(self.controller)
            for program in (self.scheduler, self.controller):
                program.wait_ready()
                eventually(f"{program.process.name} leads", program.leads, seconds=20)
            self._wait_reviewed()
        except BaseException:
            self.stop()
            raise

    def _wait_reviewed(self) -> None:
        probe = objects.pod("probe", "nonsense")
        path = "/api/v1/namespaces/default/pods?dryRun=All"
        eventually("pods are reviewed", lambda: self.kube.call("POST", path, probe)[0] == 400, seconds=20)

    def account(self, name: str, namespace: str = SYSTEM_NAMESPACE) -> KubeClient:
        """Return a client with a token of this service account."""
        return self.plane.client_of(namespace, name)

    def monitor(self, node: str) -> KubeClient:
        """Return a client with the token of this node's monitor, which is bound to its pod there."""
        if node not in self._monitors:
            folder = self._folder / f"monitor-{node}"
            folder.mkdir()
            self._monitors[node] = self.plane.client(monitored_node.MonitoredNode(self.plane, folder, node).token())
        return self._monitors[node]

    def driver(self, node: str) -> KubeClient:
        """Return a client with the token of this node's driver, which is bound to its pod there."""
        if node not in self._drivers:
            namespace = account = driven_node.NAMESPACE
            body = objects.pod(f"driver-{node}", None, scheduler="none", serviceAccountName=account, nodeName=node)
            pod = self.kube.create(f"/api/v1/namespaces/{namespace}/pods", body)["metadata"]
            self._drivers[node] = self.plane.client(self.plane.pod_token(namespace, account, pod))
        return self._drivers[node]

    def allow(self, namespace: str, resource: str, account: str = "default") -> None:
        """Give a service account the right to `use` a virtual resource of ours, `observers` or `keepenvs`."""
        allow_use(self.kube, namespace, resource, account)

    def stop(self) -> None:
        """Stop the programs and the control plane."""
        for process in (*(each.process for each in reversed(self._programs)), *self._processes):
            process.stop()
        self.plane.stop()


class Tenant:
    """A user with ClusterRole `admin` in one namespace and no other right."""

    def __init__(self, cluster: InstalledCluster, **labels: str) -> None:
        """Create the namespace, the account and its token; an underscore in a label's name stands for a slash."""
        self.cluster = cluster
        self.namespace = Namespace(cluster.kube, f"tenant-{next(_numbers)}", **labels)
        self.user = f"system:serviceaccount:{self.namespace.name}:{TENANT}"
        self.pods = self.namespace.pods
        self.workloads = f"{API}/namespaces/{self.namespace.name}/gpuworkloads"
        for account in (TENANT, "default"):
            cluster.kube.create(
                f"/api/v1/namespaces/{self.namespace.name}/serviceaccounts", {"metadata": {"name": account}}
            )
        body = binding(TENANT, "ClusterRole", "admin", TENANT, self.namespace.name)
        cluster.kube.create(f"{RBAC}/namespaces/{self.namespace.name}/rolebindings", body)
        self.kube = cluster.account(TENANT, self.namespace.name)
        # The API server authorizes by its caches.
        eventually("its rights are in force", lambda: self.kube.call("GET", self.pods)[0] == 200)

    def call(self, method: str, path: str, body: Object | None = None, content: str = "json") -> tuple[int, Object]:
        """One request; `content` is json, merge-patch+json, strategic-merge-patch+json or apply-patch+yaml."""
        return self.kube.call(method, path, body, f"application/{content}")

    def leave(self) -> None:
        """Delete the tenant's GPUWorkloads and pods."""
        self.cluster.kube.call("DELETE", self.workloads)
        self.namespace.wait_empty()


def refusal(answered: tuple[int, Object]) -> str:
    """Return the message of a forbidden request; AssertionError unless its status is 403."""
    status, answer = answered
    assert status == 403, answer
    return str(answer["message"])


def lacks(kube: KubeClient, request: Request, user: str) -> None:
    """AssertionError unless RBAC refuses the request, and says that it is this service account's."""
    method, path, body = request
    content = "application/merge-patch+json" if method == "PATCH" else "application/json"
    assert f'User "system:serviceaccount:{user}" cannot ' in refusal(kube.call(method, path, body, content))


def _aggregate(kube: KubeClient) -> None:
    """Fill the aggregated ClusterRoles: the controller manager, which does that in a cluster, does not run here."""
    roles = {role["metadata"]["name"]: role for role in kube.call("GET", f"{RBAC}/clusterroles")[1]["items"]}
    # In this order, because `edit` contains `view`, and `admin` contains `edit`.
    for name in ("view", "edit", "admin"):
        parts = [each for each in roles.values() if f"rbac.authorization.k8s.io/aggregate-to-{name}" in _labels(each)]
        roles[name]["rules"] = [rule for part in parts for rule in part["rules"] or ()]
        kube.patch(f"{RBAC}/clusterroles/{name}", {"rules": roles[name]["rules"]})


def _labels(role: Object) -> Object:
    labels: Object = role["metadata"].get("labels") or {}
    return labels
