"""`plan` and a real API server: it only reads, and its pods are those that Kubernetes' controllers make."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests import objects
from tests.auditor.audit_log import ASKED, AuditLog
from tests.integration.accounts import allow_everywhere
from tests.integration.installed import Installed
from tests.integration.namespace import SYSTEM_NAMESPACE, Namespace
from tests.integration.role_manifests import control_plane
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.objects import Object

USER: Final = f"system:serviceaccount:{SYSTEM_NAMESPACE}:planner"
RULES: Final = (
    {
        "apiGroups": [""],
        "resources": ["nodes", "pods", "persistentvolumeclaims", "persistentvolumes"],
        "verbs": ["list"],
    },
    {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": ["list"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list"]},
    {"apiGroups": ["agentaflow.io"], "resources": ["gpunodes"], "verbs": ["list"]},
    {"apiGroups": ["apps"], "resources": ["deployments", "replicasets", "statefulsets"], "verbs": ["get"]},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
)
"""The rights that docs/plan.md names."""
MAP: Final = "0=node1:0\n1=node2:0\n2=node2:1\n3=node1:3\n"


@pytest.fixture
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that logs every request of USER, who may only read."""
    folder = tmp_path_factory.mktemp("logged")
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "Metadata", "users": [USER]},
            {"level": "Metadata", "nonResourceURLs": [ASKED]},
            {"level": "None"},
        ],
    }
    (folder / "policy.json").write_text(json.dumps(policy), encoding="utf-8")
    flags = f"--audit-policy-file={folder}/policy.json", f"--audit-log-path={folder}/audit.log"
    plane = control_plane(folder, *flags)
    try:
        allow_everywhere(plane.kube, SYSTEM_NAMESPACE, "planner", "planner", *RULES)
        yield plane
    finally:
        plane.stop()


def template(text: str | None, **more: str) -> Object:
    """Return a template of ours with a map, or with a count."""
    made = objects.pod("", text, annotations={f"agentaflow.gpu/{key}": value for key, value in more.items()})
    made["metadata"] = {"labels": {"app": "a"}, "annotations": made["metadata"]["annotations"]}
    made["spec"]["tolerations"] = []
    return made


def controller(kind: str, name: str, replicas: int, made: Object, **spec: Any) -> Object:
    """Return a controller of apps/v1."""
    selector = {"matchLabels": {"app": "a"}}
    body = {"replicas": replicas, "selector": selector, "template": made, **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": body}


def indexed_job(name: str, many: int, made: Object) -> Object:
    """Return an Indexed Job whose pods all run at once."""
    made["spec"]["restartPolicy"] = "Never"
    spec = {"completions": many, "parallelism": many, "completionMode": "Indexed", "template": made}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def collection(namespace: Namespace, body: Object) -> str:
    """Return the path at which an object is created."""
    return f"/apis/{body['apiVersion']}/namespaces/{namespace.name}/{body['kind'].lower()}s"


def populated(namespace: Namespace) -> None:
    """Create two nodes of four devices, a StatefulSet with one running pod, and a pod of a ReplicaSet that waits."""
    for name in ("node1", "node2"):
        namespace.node(name, annotations=objects.inventory(*map(objects.device, range(4))))
    for body in (
        controller("StatefulSet", "train", 1, template(MAP), serviceName="train"),
        controller("ReplicaSet", "web", 1, template(None, count="9")),
    ):
        namespace.kube.create(collection(namespace, body), body)
    bound = {objects.ASSIGNED: "0", "agentaflow.gpu/assigned-node": "node1"}
    first = objects.pod("train-0", MAP, objects.literal("0"), annotations=bound, **objects.in_stateful_set("train", 0))
    first["spec"]["nodeName"] = "node1"
    namespace.make(first)
    many = {"agentaflow.gpu/count": "9"}
    owner = ("ReplicaSet", "web")
    namespace.make(
        objects.pod("web-bbbbb", None, objects.reading(), owner=owner, annotations=many, generate_name="web-")
    )


@pytest.mark.promise("plan-2")
def test_a_plan_only_reads(logged: ControlPlane, tmp_path: Path) -> None:
    """The audit log has reads alone, and a user without any right to write gets every answer."""
    namespace = Namespace(logged.kube, "ml")
    populated(namespace)
    claims = [objects.claim("data", "none")]
    file = tmp_path / "more.json"
    file.write_text(json.dumps(controller("StatefulSet", "more", 2, template(MAP), volumeClaimTemplates=claims)))
    user = Installed(tmp_path, logged, logged.service_account_token(SYSTEM_NAMESPACE, "planner"), namespace.name)
    log = AuditLog(logged)

    plans = [
        user.items("plan", *words, code=None)[0]
        for words in (
            ("-f", str(file)),
            ("--drain", "node1"),
            ("--without", "node1:0"),
            ("--assume-gone", "train-0"),
            ("--scale", "train=3"),
        )
    ]

    shown = [[(pod["name"], pod["outcome"], pod["node"]) for pod in plan["pods"]] for plan in plans]
    assert shown[1:] == [
        [("train-0", "waits", None)],
        [("train-0", "waits", None)],
        [("web-bbbbb", "waits", None)],
        [("train-0", "exists", "node1"), ("train-1", "fits", "node2"), ("train-2", "fits", "node2")],
    ]
    entries = [entry for entry in log.entries() if entry.user.username == USER]
    assert len(entries) > 40
    assert {entry.verb for entry in entries} == {"get", "list"}
    assert {entry.response_status.code for entry in entries} <= {200, 404}


@pytest.mark.promise("plan-3")
def test_evicted_pods_come_back_as_planned(
    namespace: Namespace, scheduler: Command, operator: Installed, tmp_path: Path
) -> None:
    """A drain is planned; then the node is drained, and the controllers' pods are made anew."""
    populated(namespace)
    net = controller("ReplicaSet", "net", 2, template(None, count="2"))
    namespace.kube.create(collection(namespace, net), net)
    owner, count = ("ReplicaSet", "net"), {"agentaflow.gpu/count": "2"}

    def replica(suffix: str) -> Object:
        return objects.pod(
            f"net-{suffix}", None, objects.reading(), owner=owner, annotations=count, generate_name="net-"
        )

    for suffix in ("bbbbb", "bbbbc"):
        namespace.make(replica(suffix))
        wait_placed(namespace, f"net-{suffix}")
    leaving = [f"net-{suffix}" for suffix in ("bbbbb", "bbbbc") if namespace.node_of(f"net-{suffix}") == "node1"]

    (plan,) = operator.items("plan", "--drain", "node1", "-n", namespace.name, code=1)

    # The next test runs real controllers on this control plane.
    for kind in ("statefulsets", "replicasets"):
        namespace.kube.call("DELETE", f"/apis/apps/v1/namespaces/{namespace.name}/{kind}")
    namespace.cordon("node1", cordoned=True)
    for name in ("train-0", *leaving):
        namespace.delete(name)
    rows = {pod["name"]: pod for pod in plan["pods"]}
    assert {pod["replaces"]["name"] for pod in rows.values()} == {"train-0", *leaving}
    namespace.make(objects.pod("train-0", MAP, objects.literal("0"), **objects.in_stateful_set("train", 0)))
    for number, _ in enumerate(leaving):
        namespace.make(replica(f"bbbb{'dfgh'[number]}"))
        row, name = rows[f"net-?{number}"], f"net-bbbb{'dfgh'[number]}"
        wait_placed(namespace, name)
        given = namespace.read(name)
        assert given["spec"]["nodeName"] == row["node"]
        assert given["metadata"]["annotations"][objects.ASSIGNED] == ",".join(row["devices"])
    assert namespace.wait_message("train-0", "NodeUnschedulable: ") == rows["train-0"]["message"]


@pytest.mark.promise("plan-4")
def test_the_pods_are_those_of_kubernetes_controllers(
    controllers: Namespace, scheduler: Command, operator: Installed, tmp_path: Path
) -> None:
    """StatefulSet, Deployment and Indexed Job: the pods that their controllers make run where the plan says."""
    for name in ("node1", "node2"):
        controllers.node(name, annotations=objects.inventory(*map(objects.device, range(4))))
    bodies = (
        controller("StatefulSet", "train", 2, template(MAP), serviceName="train", podManagementPolicy="Parallel"),
        controller("Deployment", "web", 2, template("0=node1:1\n1=node1:2\n")),
        indexed_job("job", 2, template("0=node2:2\n1=node2:3\n")),
    )
    file = tmp_path / "all.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": list(bodies)}))

    (plan,) = operator.items("plan", "-f", str(file), "-n", controllers.name)

    for body in bodies:
        controllers.kube.create(collection(controllers, body), body)
    eventually("all pods are placed", lambda: len(placed(controllers)) == len(plan["pods"]), seconds=30)
    assert placed(controllers) == sorted(
        (pod["controller"].split("/")[1], pod["node"], ",".join(pod["devices"]), pod["index"]) for pod in plan["pods"]
    )


def wait_placed(namespace: Namespace, name: str) -> None:
    """Wait until the pod has a node."""
    eventually(f"{name} is placed", lambda: namespace.node_of(name))


def placed(namespace: Namespace) -> list[tuple[str, str, str, int]]:
    """Return workload, node, devices and index of the pods that have a node."""
    _, answer = namespace.kube.call("GET", namespace.pods)
    found = []
    for pod in answer["items"]:
        notes, node = pod["metadata"]["annotations"], pod["spec"].get("nodeName")
        if node:
            stem = pod["metadata"]["name"].partition("-")[0]
            found.append((stem, node, notes[objects.ASSIGNED], int(notes["agentaflow.gpu/assigned-index"])))
    return sorted(found)
