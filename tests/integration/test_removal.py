"""`make uninstall` removes every object of ours from a cluster in use, and nothing else."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from gpu_scheduler.names import DRA_DRIVER
from tests import deployer, objects
from tests.cluster.plays import Run, run
from tests.contracts.rendering import rendered
from tests.contracts.roles import ROOT
from tests.integration.accounts import create_account
from tests.integration.control_plane import ADMIN_TOKEN, ControlPlane
from tests.integration.controller_manager import start_controller_manager
from tests.integration.programs import program
from tests.messages import text_of
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kube_client import KubeClient
    from tests.objects import Object

pytestmark = pytest.mark.timeout(600)

WORKLOADS: Final = ("scheduler", "monitor", "driver", "webhook", "controller", "check")
ROLES: Final = ("certificates", "crds", "policies", "network_policies", *WORKLOADS)
SYSTEM: Final = "gpu-scheduler-system"
MONITORS: Final = "gpu-scheduler-monitor"
MANAGER: Final = "gpu-scheduler-ansible"
ENABLED: Final = "agentaflow.gpu/enabled"
TIER: Final = "agentaflow.gpu/utilization-tier"
# What a cluster writes by itself while the tests run.
CHANGING: Final = ("Event ", "Lease kube-system/", "EndpointSlice default/", "Endpoints default/", "ServiceCIDR ")
KINDS: Final = {
    "APIService v1.agentaflow.io",
    "CustomResourceDefinition gpunodes.agentaflow.io",
    "CustomResourceDefinition gpuworkloads.agentaflow.io",
    "GPUNode node1",
    "GPUWorkload team/training",
}
# What is applied under another manager than ours, with the fields of each.
WRITTEN: Final[tuple[tuple[str, Object], ...]] = (
    (
        "gpu-scheduler-monitor",
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1", "labels": {TIER: "low"}}},
    ),
    (
        "gpu-scheduler-monitor",
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "node1", "namespace": MONITORS},
            "spec": {"holderIdentity": "a-monitor"},
        },
    ),
    (
        "gpu-scheduler",
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "gpu-scheduler", "namespace": SYSTEM},
            "spec": {"holderIdentity": "a-replica"},
        },
    ),
    (
        "gpu-scheduler-monitor",
        {
            "apiVersion": "agentaflow.io/v1",
            "kind": "GPUNode",
            "metadata": {"name": "node1"},
            "spec": {"nodeName": "node1"},
        },
    ),
)
# Made by the cluster in every namespace.
OF_THE_CLUSTER: Final[tuple[Object, ...]] = (
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt", "namespace": SYSTEM}},
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": SYSTEM}},
)
# Of an earlier version: only the record names it.
FORMER: Final[Object] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "gpu-scheduler-former"},
    "rules": [],
}


@dataclass(slots=True)
class Site:
    """A cluster in use with everything that the roles install."""

    plane: ControlPlane
    kubectl: list[str]
    variables: Object
    users: dict[str, str]
    installed: dict[str, str]

    def apply(self, manager: str, *bodies: Object) -> None:
        """Apply objects as this field manager."""
        text = "\n---\n".join(map(json.dumps, bodies))
        self._call("apply", "--server-side", f"--field-manager={manager}", "--filename=-", text=text)

    def everything(self) -> dict[str, str]:
        """Return kind and name of every object of every kind, with its resource version."""
        kinds = self._call("api-resources", "--verbs=list,delete", "--output=name").split()
        listed = json.loads(self._call("get", ",".join(kinds), "--all-namespaces", "--output=json"))["items"]
        named = {_name(body): str(body["metadata"]["resourceVersion"]) for body in listed}
        return {name: version for name, version in named.items() if not name.startswith(CHANGING)}

    def _call(self, *words: str, text: str = "") -> str:
        done = subprocess.run(
            [*self.kubectl, *words], input=text, capture_output=True, text=True, timeout=limit(60), check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def play(self, playbook: str, *options: str, **variables: object) -> Run:
        """Run a playbook on the cluster, as a user with a kubeconfig would."""
        given = json.dumps({**self.variables, **variables})
        return run("ansible-playbook", playbook, "-i", "inventory/existing", "-e", given, *options)


def _name(body: Object) -> str:
    metadata = body["metadata"]
    where = f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else metadata["name"]
    return f"{body['kind']} {where}"


def _users_objects(kube: KubeClient) -> None:
    """Create what others have in the cluster: a running and a waiting pod of ours, and names that look like ours."""
    kube.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    for name in ("node1", "node2"):
        kube.create("/api/v1/nodes", {"metadata": {"name": name, "labels": {"example.com/rack": "7"}}})
    kube.patch("/api/v1/nodes/node2", {"metadata": {"labels": {ENABLED: "true", TIER: "by-hand"}}})
    for name in ("running", "waiting"):
        kube.create("/api/v1/namespaces/team/pods", objects.pod(name))
    kube.create("/api/v1/namespaces/team/pods/running/binding", objects.binding("running", {}))
    kube.create("/api/v1/namespaces/team/configmaps", {"metadata": {"name": "gpu-scheduler-notes"}})
    kube.create(
        "/api/v1/namespaces/default/services", {"metadata": {"name": "theirs"}, "spec": {"ports": [{"port": 80}]}}
    )
    role = {"metadata": {"name": "gpu-scheduler-users", "labels": {"app": "gpu-scheduler"}}, "rules": []}
    kube.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)


def _workload(site: Site) -> None:
    """Create a GPUWorkload and the pod that it controls."""
    template = {"spec": {"containers": [{"name": "main", "image": "none"}]}}
    made = site.plane.kube.create(
        "/apis/agentaflow.io/v1/namespaces/team/gpuworkloads",
        {
            "apiVersion": "agentaflow.io/v1",
            "kind": "GPUWorkload",
            "metadata": {"name": "training"},
            "spec": {"podTemplate": template},
        },
    )
    owner = {
        "apiVersion": "agentaflow.io/v1",
        "kind": "GPUWorkload",
        "name": "training",
        "uid": made["metadata"]["uid"],
    }
    pod = objects.pod("training")
    pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    site.plane.kube.create("/api/v1/namespaces/team/pods", pod)


def _install(site: Site, folder: Path) -> None:
    """Apply what the roles apply, in every mode, as an interrupted run would: only role scheduler has a record."""
    settings = {"scheduler_limits": "team: devices=8", "webhook_client_ca": "none"}
    manifests = rendered(folder, ROLES, "inventory/kind", **settings)
    known = [body for body in manifests if not body["apiVersion"].startswith("cert-manager.io/")]
    namespaces = [body for body in known if body["kind"] == "Namespace"]
    kinds = (ROOT / "roles" / "crds" / "files").glob("*.yaml")
    site.apply(MANAGER, *namespaces)
    site.apply(MANAGER, *(body for path in sorted(kinds) for body in yaml.safe_load_all(path.read_text()) if body))
    served = "/apis/agentaflow.io/v1/gpuworkloads"
    eventually("GPUWorkloads are served", lambda: site.plane.kube.call("GET", served)[0] == 200, seconds=15)
    _workload(site)
    labelled = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1", "labels": {ENABLED: "true"}}}
    site.apply(MANAGER, labelled, FORMER, *(body for body in known if body["kind"] != "Namespace"))
    site.apply("kube-controller-manager", *OF_THE_CLUSTER)
    for manager, body in WRITTEN:
        site.apply(manager, body)
    uid = site.plane.kube.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/gpu-scheduler-former")["metadata"]["uid"]  # type: ignore[index]  # just applied
    record = f"rbac.authorization.k8s.io/v1 ClusterRole gpu-scheduler-former {uid}\n"
    metadata = {"name": "gpu-scheduler-applied-scheduler", "namespace": SYSTEM}
    site.apply(MANAGER, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"objects": record}})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A cluster of others with everything that the roles install, and the controllers that finish deletions."""
    folder = tmp_path_factory.mktemp("removal")
    plane = ControlPlane(folder)
    controllers = start_controller_manager(plane, folder)
    try:
        kubeconfig = plane.kubeconfig(folder / "kubeconfig", ADMIN_TOKEN)
        kubectl = str(program("kubectl"))
        variables = {"kubeconfig": str(kubeconfig), "kube_context": "test", "kubectl_program": kubectl}
        role = yaml.safe_load(deployer.CLUSTER_ROLE.read_text())
        # The rights of the version that applied it.
        former = {"resources": ["clusterroles"], "resourceNames": [FORMER["metadata"]["name"]]}
        role["rules"].append({"apiGroups": ["rbac.authorization.k8s.io"], **former, "verbs": ["get", "delete"]})
        create_account(plane, "deployer", role)
        site = Site(plane, [kubectl, f"--kubeconfig={kubeconfig}"], variables, {}, {})
        _users_objects(plane.kube)
        site.users = site.everything()
        _install(site, tmp_path_factory.mktemp("rendered"))
        site.installed = site.everything()
        yield site
    finally:
        controllers.stop()
        plane.stop()


def _messages(result: Run) -> str:
    return " ".join(result.output.split())


@pytest.mark.plays
@pytest.mark.promise("down-5")
def test_check_mode_shows_what_would_go_and_changes_nothing(site: Site) -> None:
    """`make uninstall ARGS=--check` names objects of every role, and every object stays as it is."""
    result = site.play("playbooks/uninstall.yml", "--check", delete_crds=True).succeeded()

    assert site.everything() == site.installed
    for name in (
        "Deployment gpu-scheduler-system/gpu-scheduler-webhook",
        "ClusterRole gpu-scheduler-former",
        "CustomResourceDefinition gpunodes.agentaflow.io",
    ):
        assert name in _messages(result)


def _reserve(site: Site, namespace: str, pod: str) -> str:
    """Create a claim that has a device of our driver and is reserved for this pod. Return its path."""
    claims = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    request = {"name": "gpu", "exactly": {"deviceClassName": DRA_DRIVER, "allocationMode": "ExactCount", "count": 1}}
    body = {"metadata": {"name": f"gpus-of-{pod}"}, "spec": {"devices": {"requests": [request]}}}
    path = f"{claims}/{site.plane.kube.create(claims, body)['metadata']['name']}"
    found: Any = site.plane.kube.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")
    result = {"request": "gpu", "driver": DRA_DRIVER, "pool": "node1", "device": "gpu-0"}
    user = {"resource": "pods", "name": pod, "uid": found["metadata"]["uid"]}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}
    site.plane.kube.patch(f"{path}/status", {"status": status})
    return path


@pytest.mark.plays
@pytest.mark.promise("down-5")
def test_drivers_stay_while_pods_have_their_gpus(site: Site, tmp_path: Path) -> None:
    """Without a driver the kubelet could not end these pods: nothing is removed, and the sentence names them.

    `make uninstall` ends check pods itself. The play names them too where `isolation` is no longer `dra`.
    """
    claims = [_reserve(site, "team", "running"), _reserve(site, "gpu-scheduler-tests", "webhook-test-0")]
    before = site.everything()

    removal = site.play("playbooks/uninstall.yml")
    change = site.play("playbooks/site.yml", "--tags", "driver", evidence_dir=str(tmp_path))

    for result, number, pods in (
        (removal, 1, "team/running"),
        (change, 2, "gpu-scheduler-tests/webhook-test-0, team/running"),
    ):
        assert text_of("drivers stay while pods use them", number=number, pods=pods) in _messages(result)
    assert "kubectl delete pod --namespace=team running" in _messages(removal)
    assert 0 not in {removal.code, change.code}
    assert site.everything() == before
    for path in claims:
        site.plane.kube.delete(path)


@pytest.mark.promise("down-5")
def test_uninstall_leaves_what_others_have_and_the_kinds(site: Site, tmp_path: Path) -> None:
    """Every API resource is asked: what is left are the objects of others, as they were, and the kinds with theirs.

    What a record names goes, and so does what an interrupted run applied without one. On nodes our fields alone go.
    The user has exactly the documented rights: a namespace goes although these list few kinds.
    """
    token = site.plane.service_account_token("default", "deployer")
    kubeconfig = str(site.plane.kubeconfig(tmp_path / "kubeconfig", token))
    result = site.play("playbooks/uninstall.yml", kubeconfig=kubeconfig).succeeded()
    left = site.everything()

    assert set(left) == set(site.users) | KINDS | {"Pod team/training"}
    changed = {name for name in site.users if left[name] != site.users[name]}
    assert changed == {"Node node1"}
    labels = [site.plane.kube.get(f"/api/v1/nodes/{name}")["metadata"]["labels"] for name in ("node1", "node2")]  # type: ignore[index]  # they exist
    assert labels == [{"example.com/rack": "7"}, {"example.com/rack": "7", ENABLED: "true", TIER: "by-hand"}]
    assert text_of("pods run on after a removal", number=1) in _messages(result)
    assert text_of("pods wait after a removal", number=2) in _messages(result)


@pytest.mark.plays
@pytest.mark.promise("down-5")
def test_second_run_changes_nothing(site: Site) -> None:
    """Pods of ours are created as any pod is: nobody is asked about them any more."""
    before = site.everything()

    result = site.play("playbooks/uninstall.yml").succeeded()

    assert result.changed == {}
    assert site.everything() == before
    site.plane.kube.create("/api/v1/namespaces/team/pods", objects.pod("later"))


@pytest.mark.plays
@pytest.mark.promise("down-5")
def test_kinds_go_where_they_are_asked_to(site: Site) -> None:
    """With `delete_crds=true` GPUWorkloads and GPUNodes go with their kinds, and the pods of GPUWorkloads stay."""
    site.play("playbooks/uninstall.yml", delete_crds=True).succeeded()

    assert set(site.everything()) == set(site.users) | {"Pod team/training", "Pod team/later"}
    pod: Any = site.plane.kube.get("/api/v1/namespaces/team/pods/training")
    assert "ownerReferences" not in pod["metadata"]
    assert "deletionTimestamp" not in pod["metadata"]
