"""The policies as the role ships them, on a control plane of the tests' own, and those who try to get past them."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

import jinja2
import yaml

from tests.integration.bench import SYSTEM_NAMESPACE
from tests.integration.plant import ADMIN_TOKEN
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.plant import ControlPlane, Kube, Object

TEMPLATES: Final = Path(__file__).resolve().parents[2] / "roles" / "policies" / "templates"
SCHEDULER: Final = f"system:serviceaccount:{SYSTEM_NAMESPACE}:gpu-scheduler"
OUTSIDE: Final = "a scheduler's laptop"
MONITOR: Final = "system:serviceaccount:gpu-scheduler-monitor:gpu-scheduler-monitor"
REGISTRATION: Final = "/apis/admissionregistration.k8s.io/v1"
COLLECTIONS: Final = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}


def rendered(name: str) -> Iterator[Object]:
    """The objects of a template, as Ansible would render them."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True)  # noqa: S701 - YAML, no HTML
    environment.filters["to_json"] = json.dumps
    template = environment.from_string((TEMPLATES / f"{name}.yaml.j2").read_text(encoding="utf-8"))
    text = template.render(
        policies_scheduler_name="gpu-scheduler",
        policies_monitor_namespace="gpu-scheduler-monitor",
        _policies_schedulers=[SCHEDULER, OUTSIDE],
        _policies_labels={},
    )
    return (body for body in yaml.safe_load_all(text) if body)


def apply(kube: Kube, *names: str) -> None:
    """Create what these templates hold; an API server takes a moment to notice."""
    for name in names:
        for body in rendered(name):
            kube.create(f"{REGISTRATION}/{COLLECTIONS[body['kind']]}", body)


def guard(plane: ControlPlane, *others: str) -> None:
    """Apply the guards, and these templates beside; return when a forged assignment is refused."""
    apply(plane.kube, "guards", *others)
    wait_guarded(plane)


def wait_guarded(plane: ControlPlane) -> None:
    """Return when a forged assignment is refused."""
    admin = Someone(plane, "admin")
    forged = pod_of("a", annotations={"agentaflow.gpu/assigned-devices": "0"})
    probe = "/api/v1/namespaces/default/pods?dryRun=All"
    eventually("the guards are in force", lambda: admin.call("POST", probe, forged)[0] == 403, seconds=20)


class Someone:
    """A user by name, who may do everything that no policy forbids: authorization is not what is tested here."""

    def __init__(self, plane: ControlPlane, user: str, node: str = "") -> None:
        """`node` is where the user's pod runs, as its token says; empty where the token says nothing."""
        self.user = user
        tls = ssl.create_default_context(cafile=str(plane.ca))
        self._connection = http.client.HTTPSConnection("127.0.0.1", plane.port, context=tls, timeout=15)
        self._headers = {
            "Authorization": f"Bearer {ADMIN_TOKEN}",
            "Impersonate-User": user,
            "Impersonate-Group": "system:masters",
        }
        if node:
            self._headers["Impersonate-Extra-authentication.kubernetes.io%2fnode-name"] = node

    def call(
        self, method: str, path: str, body: Object | None = None, content_type: str = "application/json"
    ) -> tuple[int, Object]:
        """One request: status and decoded body."""
        headers = {**self._headers, "Content-Type": content_type}
        try:
            self._connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = self._connection.getresponse()
            answer: Object = json.loads(response.read())
            return response.status, answer
        finally:
            self._connection.close()

    def merge(self, path: str, body: Object) -> tuple[int, Object]:
        """One merge patch."""
        return self.call("PATCH", path, body, "application/merge-patch+json")


def annotated(annotations: Object) -> Object:
    """A patch of annotations."""
    return {"metadata": {"annotations": annotations}}


def pod_of(name: str, scheduler: str = "gpu-scheduler", /, **spec: object) -> Object:
    """A pod; `annotations` and `labels` are its metadata's, all else is its specification's."""
    metadata = {key: spec.pop(key) for key in ("annotations", "labels") if key in spec}
    containers = [{"name": "main", "image": "none"}]
    return {
        "metadata": {"name": name, **metadata},
        "spec": {"schedulerName": scheduler, "containers": containers, **spec},
    }


def binding(name: str, annotations: Object | None = None) -> Object:
    """A Binding to node1."""
    metadata: Object = {"name": name} if annotations is None else {"name": name, "annotations": annotations}
    return {"metadata": metadata, "target": {"kind": "Node", "name": "node1"}}


def null_pod(name: str) -> Object:
    """What a client in a hurry sends: null where maps and lists belong."""
    container = {"name": "main", "image": "none", "env": None, "ports": None}
    return {
        "metadata": {"name": name, "annotations": None, "labels": None, "ownerReferences": None},
        "spec": {"containers": [container], "initContainers": None, "tolerations": None},
    }
