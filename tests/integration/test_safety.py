"""Our programs run with the least privileges, and an unsuitable cluster is refused before any change."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
import pytest
import yaml

from tests.cluster.plays import run
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.integration.programs import program
from tests.integration.role_manifests import values_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.control_plane import ControlPlane
    from tests.objects import Object

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = ROOT / "roles" / "certificates" / "templates" / "namespace.yaml.j2"
SYSTEM = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.mark.promise("safe-4")
def test_the_webhook_has_no_right(plane: ControlPlane) -> None:
    """Its account has only the rights of every account: to query its own rights."""
    plane.kube.create(f"{SYSTEM}/serviceaccounts", {"metadata": {"name": "gpu-scheduler-webhook"}})
    kube = plane.client_of(SYSTEM_NAMESPACE, "gpu-scheduler-webhook")
    try:
        path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        answer = kube.create(path, {"spec": {"namespace": SYSTEM_NAMESPACE}})
        status, _ = kube.call("GET", f"{SYSTEM}/pods")
    finally:
        kube.close()
    groups = {group for rule in answer["status"]["resourceRules"] for group in rule["apiGroups"]}

    assert status == 403
    assert groups <= {"authorization.k8s.io", "authentication.k8s.io"}


@pytest.mark.promise("safe-2")
@pytest.mark.parametrize(
    ("name", "security", "status"),
    [
        ("restricted", RESTRICTED, 201),
        ("on-openshift", {**RESTRICTED, "runAsUser": None}, 201),
        ("root", {**RESTRICTED, "runAsNonRoot": False, "runAsUser": 0}, 403),
        ("escalating", {**RESTRICTED, "allowPrivilegeEscalation": True}, 403),
        ("capable", {**RESTRICTED, "capabilities": {}}, 403),
        ("careless", {}, 403),
    ],
)
def test_the_system_namespace_accepts_only_restricted_pods(
    hardened: str, plane: ControlPlane, name: str, security: Object, status: int
) -> None:
    """Pod Security of the namespace, which the role labels, refuses containers with more privileges."""
    container = {"name": "main", "image": "none", "securityContext": security}
    body = {"metadata": {"name": name}, "spec": {"containers": [container]}}

    found, answer = plane.kube.call("POST", f"/api/v1/namespaces/{hardened}/pods", body)

    assert found == status, answer
    assert status == 201 or 'violates PodSecurity "restricted' in answer["message"]


@pytest.fixture(scope="module")
def hardened(plane: ControlPlane) -> str:
    """A namespace with the labels that role certificates gives to ours. Return its name."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)  # noqa: S701 - YAML, no HTML
    environment.filters.update(to_json=json.dumps, combine=lambda one, other: one | other)
    template = environment.from_string(NAMESPACE.read_text(encoding="utf-8"))
    text = template.render({**values_of("certificates"), "certificates_namespace": "hardened"})
    plane.kube.create("/api/v1/namespaces", next(yaml.safe_load_all(text)))
    return "hardened"


@pytest.fixture
def old_cluster(tmp_path: Path) -> Iterator[tuple[Path, list[str]]]:
    """An API server that says that it is Kubernetes 1.29: its kubeconfig, and the paths that it is asked for."""
    asked: list[str] = []

    class Old(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path.partition("?")[0])
            version = {"major": "1", "minor": "29", "gitVersion": "v1.29.4-gke.1348000", **dict.fromkeys(VERSION, "")}
            data = json.dumps(version).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *words: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Old)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "old",
        "clusters": [{"name": "old", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "old", "user": {}}],
        "contexts": [{"name": "old", "context": {"cluster": "old", "user": "old"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config), encoding="utf-8")
    yield path, asked
    server.shutdown()
    server.server_close()


VERSION = ("gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform")


@pytest.mark.promise("up-5")
def test_an_old_cluster_is_refused_before_anything_changes(old_cluster: tuple[Path, list[str]]) -> None:
    """With the inventory for existing clusters, the first role fails with one message, and asks nothing more."""
    kubeconfig, asked = old_cluster
    given = ("-e", "kube_context=old", "-e", f"kubectl_program={program('kubectl')}")
    command = ("ansible-playbook", "-i", "inventory/existing", "playbooks/site.yml", *given)
    result = run(*command, environment={"KUBECONFIG": str(kubeconfig)})
    story = result.story()

    assert result.code == 2, story
    assert "The cluster runs Kubernetes 1.29.4, and 1.30 or newer is needed: upgrade it" in story, story
    assert result.changed == {}
    assert asked == ["/version"]
