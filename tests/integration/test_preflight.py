"""Preflight against a real API server, as users with different rights; and `make fix-nodes`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any, Final

import pytest
import trustme
import yaml

from tests import deployer, objects
from tests.contracts.cluster_modules import load_module, load_part
from tests.contracts.roles import ROOT
from tests.integration.accounts import create_account
from tests.integration.control_plane import ADMIN_TOKEN, ControlPlane
from tests.integration.kinds import define
from tests.integration.programs import program
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.objects import Object

kubectl, context = load_part("kubectl"), load_part("kube_context")
access = load_module("roles", "preflight", "library", "cluster_access.py")

APPLY: Final = "application/apply-patch+yaml"
MANAGER: Final = "gpu-scheduler-ansible"
MAP: Final = "0=gpu-a:0,1\n1=gpu-b:0\n"
FIRST: Final = ("Namespace", "CustomResourceDefinition", "ServiceAccount", "Role", "ClusterRole")
"""Kinds that others need; all else follows in the order of the roles, and what the API server calls comes last."""
LAST: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with two GPU nodes and Prometheus Operator's kinds; a user has exactly the documented rights."""
    plane = ControlPlane(tmp_path_factory.mktemp("plane"), "--allow-privileged=true")
    try:
        define(plane.kube, "prometheus-operator")
        devices = objects.inventory(*(objects.device(index) for index in range(2)))
        taint = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
        plane.kube.create("/api/v1/nodes", objects.node("gpu-a", annotations=devices, taints=(taint,)))
        plane.kube.create("/api/v1/nodes", objects.node("gpu-b", annotations=devices))
        role = yaml.safe_load(deployer.CLUSTER_ROLE.read_text())
        create_account(plane, "deployer", role)
        rules = [rule for rule in role["rules"] if rule["resources"] != ["mutatingwebhookconfigurations"]]
        rules.append({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]})
        create_account(plane, "lacking", {"metadata": {"name": "lacking"}, "rules": rules})
        yield plane
    finally:
        plane.stop()


def play(plane: ControlPlane, folder: Path, token: str, playbook: str, *options: str, **values: Any) -> tuple[int, str]:
    """Run a playbook with the inventory for existing clusters. Return its exit status and output."""
    given = {
        "kubeconfig": str(plane.kubeconfig(folder / "kubeconfig", token)),
        "kube_context": "test",
        "kubectl_program": str(program("kubectl")),
        **values,
    }
    inventory = given.pop("inventory", "inventory/existing")
    command = ("ansible-playbook", "-i", inventory, playbook, *options, "-e", json.dumps(given))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit(120), check=False)
    return done.returncode, " ".join(done.stdout.split())


def preflight(plane: ControlPlane, folder: Path, token: str, **values: Any) -> tuple[int, str]:
    """Run preflight alone."""
    return play(plane, folder, token, "site.yml", "--tags", "preflight", **{"gpu_scheduling_map": MAP, **values})


def path_of(body: Object) -> str:
    """Return where an object is at the API server."""
    return str(kubectl.Reference.of(body).path)


@pytest.mark.promise("up-8")
def test_documented_rights_suffice_to_apply_and_remove_everything(plane: ControlPlane) -> None:
    """A user with exactly deployer.yaml applies every object of the roles, applies it again, and deletes it."""
    kube = plane.client_of("default", "deployer")
    installed = [each for each in deployer.manifests() if not each["apiVersion"].startswith("cert-manager.io/")]
    ordered = sorted(installed, key=lambda each: (each["kind"] not in FIRST, each["kind"] in LAST))

    for _ in range(2):
        for body in ordered:
            query = f"?fieldManager={MANAGER}&force=true"
            status, answer = kube.call("PATCH", path_of(body) + query, body, APPLY)
            assert status in {200, 201}, (body["kind"], body["metadata"]["name"], answer["message"])
            assert kube.get(path_of(body)) is not None
    for path in dict.fromkeys(map(path_of, reversed(ordered))):
        status, answer = kube.call("DELETE", path)
        assert status in {200, 202}, (path, answer["message"])
    for name in ("gpu-scheduler-system", "gpu-scheduler-tests", "gpu-scheduler-monitor"):
        # No controller runs that would finish the deletion.
        status, namespace = plane.kube.call("GET", f"/api/v1/namespaces/{name}")
        if status == 200:
            namespace["spec"]["finalizers"] = []
            plane.kube.call("PUT", f"/api/v1/namespaces/{name}/finalize", namespace)


@pytest.mark.plays
@pytest.mark.parametrize("isolation", ["env", "dra"])
def test_user_with_the_documented_rights_passes(plane: ControlPlane, tmp_path: Path, isolation: str) -> None:
    """Preflight finds nothing to say, and changes nothing."""
    token = plane.service_account_token("default", "deployer")
    status, output = preflight(plane, tmp_path, token, isolation=isolation)

    assert status == 0, output
    assert "changed=0" in output


@pytest.mark.promise("up-8")
def test_everything_in_the_way_is_named_at_once(plane: ControlPlane, tmp_path: Path) -> None:
    """A missing right, a namespace that ends, an object of Helm's and unknown nodes are named before any change."""
    kube = plane.kube
    kube.create("/api/v1/namespaces", {"metadata": {"name": "ending", "finalizers": ["example.com/held"]}})
    kube.call("DELETE", "/api/v1/namespaces/ending")
    kube.create("/api/v1/namespaces", {"metadata": {"name": "taken"}})
    labels = {"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/part-of": "gpu-scheduler"}
    service = {"metadata": {"name": "gpu-scheduler", "labels": labels}, "spec": {"ports": [{"port": 80}]}}
    kube.create("/api/v1/namespaces/taken/services", service)

    status, output = preflight(
        plane,
        tmp_path,
        plane.service_account_token("default", "lacking"),
        system_namespace="taken",
        tests_namespace="ending",
        gpu_scheduling_map="0=gpu-a:0\n1=gpu-z:0\n2=gpu-b:7\n",
        check_tolerations=[],
        isolation="dra",
        _preflight_kubernetes_isolating="9.99",
    )

    assert status != 0
    for sentence in (
        "The user system:serviceaccount:default:lacking of kube_context 'test' may not",
        "create mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "kubectl apply -f roles/preflight/files/deployer.yaml",
        "tests_namespace is 'ending'",
        " Service taken/gpu-scheduler (app.kubernetes.io/managed-by=Helm",
        "gpu_scheduling_map names gpu-z, ",
        ": the cluster has gpu-a, gpu-b.",
        " nvidia.com/gpu:NoSchedule of node gpu-a",
        "node gpu-b has no GPU 7: it has 0, 1.",
        "make fix-nodes INVENTORY=inventory/existing",
        "isolation is dra, which 9.99 or newer ",
    ):
        assert sentence in output.replace("\\'", "'"), (sentence, output)
    assert "changed=0" in output


REFUSED: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "the file is missing": (
        {"kubeconfig": "/nowhere/config"},
        "kubeconfig '/nowhere/config' (no such file or directory): ",
    ),
    "the file is no YAML": ({"text": "{"}, "as YAML"),
    "the file has no contexts": (
        {"text": "kind: Config"},
        "which has no contexts: ",
    ),
    "the context is not in the file": (
        {"context": "production"},
        "kube_context 'production' in kubeconfig {file}, which has test: ",
    ),
    "nobody listens": (
        {"port": 1},
        " (connection refused): ",
    ),
    "nobody knows the host": (
        {"cluster": {"server": "https://cluster.invalid"}},
        "'test' does not answer (dial tcp: lookup",
    ),
    "it is no API server": ({"scheme": "http"}, "'test' answers Error from server (BadRequest)"),
    "the token has expired": (
        {"user": {"token": "expired"}},
        "'test' does not accept the credentials in kubeconfig {file} (Unauthorized): they are wrong or have expired",
    ),
    "the user has no credentials": ({"user": {}}, "the credentials in kubeconfig {file} (it has none): log in anew"),
    "the user is nobody": (
        {"user": {"as": "system:anonymous", "token": ADMIN_TOKEN}},
        "does not accept the credentials in kubeconfig {file} (Error from server (Forbidden): ",
    ),
    "another CA": ({"ca": True}, "cannot be trusted (tls: failed to verify certificate: x509: "),
    "the CA's file is missing": (
        {"cluster": {"certificate-authority": "/nowhere/ca.crt"}},
        "Cannot use kube_context 'test' of kubeconfig {file} (unable to read certificate-authority /nowhere/ca.crt",
    ),
    "the login program is missing": (
        {"login": "no-such-login"},
        "(getting credentials: exec: executable no-such-login not found): they are wrong or have expired, so log in",
    ),
    "the login program fails": (
        {"login": "sh", "args": ["-c", "echo run: az login >&2; exit 3"]},
        "(run: az login getting credentials: exec: executable sh failed with exit code 3): ",
    ),
    "the login program waits for somebody": (
        {"login": "sleep", "args": ["5"], "limit": 2},
        "Cannot use kube_context 'test' of kubeconfig {file} (the API server gave no answer within 2 s): a request",
    ),
    "kubectl is missing": (
        {"program": "/nowhere/kubectl"},
        "cannot run /nowhere/kubectl: No such file or directory: install kubectl, or set kubectl_program",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_connection_that_fails_is_one_sentence(
    plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The sentence names the variable, what is wrong and the remedy."""
    given, sentence = REFUSED[name]
    file = plane.kubeconfig(tmp_path / "config", ADMIN_TOKEN, given.get("port"))
    config = json.loads(file.read_text())
    user, cluster = config["users"][0], config["clusters"][0]["cluster"]
    cluster |= given.get("cluster", {})
    cluster["server"] = cluster["server"].replace("https", given.get("scheme", "https"))
    user["user"] = given.get("user", user["user"])
    if "ca" in given:
        trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.crt"))
        cluster["certificate-authority"] = str(tmp_path / "other.crt")
    if "login" in given:
        plugin = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": given["login"],
            "interactiveMode": "Never",
        }
        user["user"] = {"exec": {**plugin, "args": given.get("args", [])}}
    if "limit" in given:
        monkeypatch.setattr(kubectl, "CALL_TIMEOUT", given["limit"])
    file.write_text(str(given.get("text", json.dumps(config))))

    def ask() -> None:
        where = str(given.get("kubeconfig", file)), str(given.get("context", "test"))
        cluster = context.Context(str(given.get("program", program("kubectl"))), *where)
        cluster.get("/version")
        access.missing_rights(cluster, [{"resource": "pods", "verbs": ["get"]}])

    with pytest.raises(kubectl.ClusterError) as error:
        ask()

    assert sentence.format(file=file) in str(error.value)
    assert str(error.value).endswith(".")


@pytest.mark.promise("up-8")
def test_own_objects_pass_and_others_do_not(plane: ControlPlane, tmp_path: Path) -> None:
    """An object is ours by our labels, by our field manager, or as the Secret of our Certificate."""
    ours = {"app.kubernetes.io/part-of": "gpu-scheduler", "app.kubernetes.io/managed-by": "ansible"}
    plane.kube.create("/api/v1/namespaces", {"metadata": {"name": "owners"}})
    maps = "/api/v1/namespaces/owners/configmaps"
    plane.kube.create(maps, {"metadata": {"name": "labelled", "labels": ours}})
    plane.kube.create(f"{maps}?fieldManager={MANAGER}", {"metadata": {"name": "managed"}, "data": {"a": "b"}})
    issued = {"cert-manager.io/certificate-name": "issued"}
    plane.kube.create(maps, {"metadata": {"name": "issued", "annotations": issued}})
    plane.kube.create(f"{maps}?fieldManager=flux", {"metadata": {"name": "foreign"}, "data": {"a": "b"}})
    cluster = context.Context(str(program("kubectl")), str(plane.kubeconfig(tmp_path / "config", ADMIN_TOKEN)), "test")
    names = ["labelled", "managed", "issued", "foreign", "missing"]
    references = [kubectl.Reference("v1", "ConfigMap", "owners", name) for name in names]

    assert access.foreign_objects(cluster.get_all(references)) == {"field manager flux": ["ConfigMap owners/foreign"]}


def test_objects_of_several_kinds_are_read_by_few_kubectl(
    plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In order. What is not there, or not served, is left out; what the user may not read only where that is asked."""
    monkeypatch.setattr(kubectl, "TOGETHER", 1)
    monkeypatch.setattr(kubectl, "PARALLEL", 3)
    token = plane.service_account_token("default", "deployer")
    cluster = context.Context(str(program("kubectl")), str(plane.kubeconfig(tmp_path / "config", token)), "test")
    forbidden = kubectl.Reference("v1", "Namespace", "", "kube-system")
    unserved = kubectl.Reference("example.com/v1", "Issuer", "default", "none")
    nodes = [kubectl.Reference("v1", "Node", "", name) for name in ("gpu-b", "missing", "gpu-a")]

    assert [each.name for each in cluster.get_all([forbidden, *nodes, unserved], readable=True)] == ["gpu-b", "gpu-a"]
    with pytest.raises(kubectl.ClusterError, match=r"lacks a right: .*namespaces \"kube-system\" is forbidden"):
        cluster.get_all([*nodes, forbidden])


@pytest.mark.plays
def test_fix_nodes_writes_a_map_once(plane: ControlPlane, tmp_path: Path) -> None:
    """`--check` only shows the map. Then it is written, preflight accepts it, and another run changes nothing."""
    inventory = tmp_path / "mine"
    shutil.copytree(ROOT / "inventory" / "existing", inventory)
    folder = inventory / "group_vars" / "all"
    (folder / "local.yml").write_text(yaml.safe_dump({"gpu_scheduling_map": "0=node1:0\n1=node2:0,1\n2=gpu-b:1\n"}))
    held = objects.pod("holder", MAP, annotations={"agentaflow.gpu/assigned-devices": "0"}, nodeName="gpu-a")
    plane.kube.create("/api/v1/namespaces/default/pods", held)
    values = {"inventory": str(inventory), "project_dir": str(ROOT)}

    def fix_nodes(*options: str) -> str:
        status, output = play(plane, tmp_path, ADMIN_TOKEN, "playbooks/fix_nodes.yml", *options, **values)
        assert status == 0, output
        return output

    shown = fix_nodes("--check")
    change = re.findall(r"(?:[-+] )?\d=[a-z0-9-]+:[\d,]+", shown)
    assert change == ["- 0=node1:0", "- 1=node2:0,1", "+ 0=gpu-a:1", "+ 1=gpu-b:0", "2=gpu-b:1"]
    assert not (folder / "map.yml").exists()

    assert "changed=1" in fix_nodes()
    assert yaml.safe_load((folder / "map.yml").read_text()) == {
        "gpu_scheduling_map": "0=gpu-a:1\n1=gpu-b:0\n2=gpu-b:1\n"
    }
    assert "changed=0" in fix_nodes()
    status, output = play(plane, tmp_path, ADMIN_TOKEN, "site.yml", "--tags", "preflight", **values)
    assert status == 0, output
