"""Applies the admission policies of role policies to a control plane, and waits until they are in force."""

from __future__ import annotations

import itertools
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import jinja2
import yaml

from gpu_scheduler.names import ASSIGNED_DEVICES as ASSIGNED
from gpu_scheduler.names import OBSERVER
from tests import objects
from tests.integration.accounts import allow, rights
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.control_plane import ControlPlane
    from tests.kube_client import KubeClient
    from tests.objects import Object

    Answer = tuple[int, Object]

ROLE: Final = Path(__file__).resolve().parents[2] / "roles" / "policies"
GUARDS: Final = ("accounts", "guards", "rights")
"""The templates of the policies that are in force with the webhook and with `injection: policy`."""
SCHEDULER: Final = f"system:serviceaccount:{SYSTEM_NAMESPACE}:gpu-scheduler"
OUTSIDE: Final = "a scheduler's laptop"
CONTROLLER: Final = f"system:serviceaccount:{SYSTEM_NAMESPACE}:gpu-scheduler-controller"
MONITOR: Final = "system:serviceaccount:gpu-scheduler-monitor:gpu-scheduler-monitor"
REGISTRATION: Final = "/apis/admissionregistration.k8s.io/v1"
COLLECTIONS: Final = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}

_numbers = itertools.count(1)


def rendered(name: str, isolation: str = "env", forced_deletion: str = "refuse") -> Iterator[Object]:
    """Return the objects of a template of the role, rendered as Ansible renders it."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True)  # noqa: S701 - YAML, no HTML
    environment.filters["to_json"] = json.dumps
    template = environment.from_string((ROLE / "templates" / f"{name}.yaml.j2").read_text(encoding="utf-8"))
    keys, chosen = (yaml.safe_load((ROLE / each / "main.yml").read_text("utf-8")) for each in ("vars", "defaults"))
    text = template.render(
        policies_scheduler_name="gpu-scheduler",
        policies_monitor_namespace="gpu-scheduler-monitor",
        policies_isolation=isolation,
        policies_forced_deletion=forced_deletion,
        _policies_schedulers=[SCHEDULER, OUTSIDE],
        _policies_controller=CONTROLLER,
        _policies_protected=[*chosen["policies_protected_namespaces"], SYSTEM_NAMESPACE, "gpu-scheduler-monitor"],
        _policies_assignments=keys["_policies_assignments"],
        _policies_inputs=keys["_policies_inputs"],
        _common_labels={},
    )
    return (body for body in yaml.safe_load_all(text) if body)


def apply(kube: KubeClient, *names: str, isolation: str = "env") -> None:
    """Create the objects of these templates. The API server enforces them a moment later."""
    for name in names:
        for body in rendered(name, isolation):
            kube.create(f"{REGISTRATION}/{COLLECTIONS[body['kind']]}", body)


def guard(plane: ControlPlane, *others: str, isolation: str = "env") -> None:
    """Apply the guard policies and these other templates. Return when all guard policies are in force."""
    apply(plane.kube, *GUARDS, *others, *(("claims",) if isolation == "dra" else ()), isolation=isolation)
    wait_guarded(plane, isolation)


def wait_guarded(plane: ControlPlane, isolation: str = "env") -> None:
    """Wait until each guard policy that a request in an empty namespace can reach refuses such a request."""
    admin, controller = plane.client_as("admin"), plane.client_as(CONTROLLER)
    scheduler, monitor = plane.client_as(SCHEDULER), plane.client_as(MONITOR)
    pods = "/api/v1/namespaces/default/pods?dryRun=All"
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases?dryRun=All"
    lease = {"metadata": {"name": "probe"}}
    probes: dict[str, Callable[[], Answer]] = {
        "assignments": lambda: admin.call("POST", pods, objects.pod("a", annotations={ASSIGNED: "0"})),
        "node-name": lambda: admin.call("POST", pods, objects.pod("a", nodeName="node1")),
        "rights": lambda: admin.call("POST", pods, objects.pod("a", annotations={OBSERVER: "true"})),
        "controller": lambda: controller.call("POST", leases, lease),
        "scheduler": lambda: scheduler.call("POST", leases, lease),
        "monitor": lambda: monitor.call("POST", leases, lease),
    }
    if isolation == "dra":
        claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims?dryRun=All"
        claim = {"metadata": {"name": "gpu-scheduler-0"}, "spec": {}}
        probes["claims"] = lambda: admin.call("POST", claims, claim)
    for name, ask in probes.items():
        eventually(f"policy {name} is in force", partial(_refused, ask, f"gpu-scheduler-{name}"), seconds=20)


def _refused(ask: Callable[[], Answer], policy: str) -> bool:
    return f"'{policy}'" in ask()[1].get("message", "")


def named() -> str:
    """Return a name that no other object of this run has."""
    return f"own-{next(_numbers)}"


def made(admin: KubeClient, path: str, body: Object) -> str:
    """Create the object under a new name. Return its path."""
    body["metadata"]["name"] = named()
    status, answer = admin.call("POST", path, body)
    assert status == 201, answer
    return f"{path}/{body['metadata']['name']}"


def read(admin: KubeClient, path: str) -> Object:
    """Return the object without managedFields and resourceVersion."""
    found = admin.call("GET", path)[1]
    for key in ("managedFields", "resourceVersion"):
        found["metadata"].pop(key, None)
    return found


def allow_use(kube: KubeClient, namespace: str, resource: str, account: str = "default") -> None:
    """Allow an account to use `observers` or `keepenvs`, virtual resources of ours, by a Role and a RoleBinding."""
    allow(kube, namespace, account, f"{account}-uses-{resource}", rights(resource, "use"))
    # The API server's authorizer reads the new objects a moment later.
    user = f"system:serviceaccount:{namespace}:{account}"
    asked = {"namespace": namespace, "verb": "use", "group": "agentaflow.io", "resource": resource}
    review = {"spec": {"user": user, "resourceAttributes": asked}}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    eventually(f"{user} may use {resource}", lambda: kube.create(path, review)["status"]["allowed"])
