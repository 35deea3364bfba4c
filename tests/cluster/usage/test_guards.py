"""The API server of a whole cluster refuses what the policies forbid, and nothing else."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster.clusters import CHECK, SYSTEM, TESTS, Cluster
from tests.messages import denial, quotes

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cluster.verify.pods import Json, MakePod

KEY: Final = "agentaflow.gpu/assigned-devices"
POD: Final = f"{CHECK}-0"
DRY: Final = "--dry-run=server"
MONITORS: Final = "gpu-scheduler-monitor"
# These tests are not about authorization: each caller has all rights.
AS: Final[dict[str, tuple[str, ...]]] = {
    "the admin": (),
    "another service account": (f"--as=system:serviceaccount:{TESTS}:gpu-scheduler", "--as-group=system:masters"),
    "kube-scheduler": ("--as=system:kube-scheduler", "--as-group=system:masters"),
}
FORGED: Final = json.dumps({"metadata": {"annotations": {KEY: "7"}}})
REMOVED: Final = json.dumps({"metadata": {"annotations": {KEY: None}}})


def _binding(pod: str) -> str:
    metadata = {"name": pod, "annotations": {KEY: "7"}}
    target = {"kind": "Node", "name": "node1"}
    return json.dumps({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target})


def _bind(path: str, cluster: Cluster, *who: str) -> subprocess.CompletedProcess[str]:
    raw = f"/api/v1/namespaces/default/{path}?dryRun=All"
    return cluster.kubectl("create", f"--raw={raw}", "-f", "-", *who, stdin=_binding(POD), check=False)


def _patch(patch: str, cluster: Cluster, *who: str, status: bool = False) -> subprocess.CompletedProcess[str]:
    by = ("--subresource=status",) if status else ()
    return cluster.kubectl("patch", "pod", POD, "--type=merge", f"--patch={patch}", DRY, *by, *who, check=False)


FORGERIES: Final[dict[str, Callable[..., subprocess.CompletedProcess[str]]]] = {
    "changes it": partial(_patch, FORGED),
    "removes it": partial(_patch, REMOVED),
    "changes it with the status": partial(_patch, FORGED, status=True),
    "removes it with the status": partial(_patch, REMOVED, status=True),
    "binds with it": partial(_bind, f"pods/{POD}/binding"),
    "binds with it by the old path": partial(_bind, "bindings"),
}


@pytest.mark.promise("guard-1", "guard-2", "guard-3")
@pytest.mark.parametrize("way", FORGERIES)
@pytest.mark.parametrize("who", AS)
def test_only_the_scheduler_may_write_an_assignment(cluster: Cluster, who: str, way: str) -> None:
    """No other caller can write the assignment of a running pod, through any subresource."""
    done = FORGERIES[way](cluster, *AS[who])

    assert done.returncode != 0
    assert "'gpu-scheduler-assignments'" in done.stderr
    quotes(done.stderr, "RequestInvalid", "agentaflow.gpu/assigned-devices")


@pytest.mark.promise("guard-1", "guard-4")
@pytest.mark.parametrize("scheduler", ["gpu-scheduler", "default-scheduler"])
def test_a_pod_cannot_be_created_with_an_assignment_or_a_node(
    cluster: Cluster, make_pod: MakePod, scheduler: str
) -> None:
    """No pod is created with an assignment, and no pod of ours with a node."""
    forged = make_pod("forged-0", "0=node1:50", scheduler=scheduler)
    forged["metadata"]["annotations"][KEY] = "7"
    placed = make_pod("placed-0", "0=node1:50", scheduler=scheduler)
    placed["spec"]["nodeName"] = "node1"
    create = ("create", "-f", "-", DRY)

    refused = cluster.kubectl(*create, stdin=json.dumps(forged), check=False)
    quotes(refused.stderr, "RequestInvalid", "agentaflow.gpu/assigned-devices")
    answered = cluster.kubectl(*create, stdin=json.dumps(placed), check=False)
    ours = denial("node-name", "a pod is created on a node", node="node1")
    assert (ours in answered.stderr) is (scheduler == "gpu-scheduler"), answered.stderr


@pytest.mark.promise("guard-7")
@pytest.mark.parametrize(
    ("annotation", "resource"), [("agentaflow.gpu/observer", "observers"), ("agentaflow.gpu/keep-env", "keepenvs")]
)
def test_an_observer_needs_the_right(cluster: Cluster, make_pod: MakePod, annotation: str, resource: str) -> None:
    """Only the check's account may create observers, and no account here may keep its own variables."""
    for account in ("default", CHECK):
        pod = make_pod("spy-0", "0=node1:50")
        pod["metadata"]["annotations"][annotation] = "true"
        pod["spec"]["serviceAccountName"] = account
        done = cluster.kubectl("create", "-f", "-", DRY, stdin=json.dumps(pod), check=False)
        if (account, resource) == (CHECK, "observers"):
            assert done.returncode == 0, done.stderr
        else:
            assert "'gpu-scheduler-rights'" in done.stderr
            quotes(done.stderr, "RequestInvalid", annotation, account, f"{resource}.agentaflow.io")


CHANGES: Final[dict[str, Json]] = {
    "annotation gpu-scheduling-map": {"annotations": {"gpu-scheduling-map": "0=node2:0"}},
    "annotation agentaflow.gpu/observer": {"annotations": {"agentaflow.gpu/observer": None}},
    "annotation agentaflow.gpu/index": {"annotations": {"agentaflow.gpu/index": "1"}},
    "label apps.kubernetes.io/pod-index": {"labels": {"apps.kubernetes.io/pod-index": "1"}},
}


@pytest.mark.promise("fixed-1")
@pytest.mark.parametrize("status", [False, True], ids=["the pod", "its status"])
@pytest.mark.parametrize("what", CHANGES)
def test_the_input_of_a_decision_cannot_be_changed(cluster: Cluster, what: str, *, status: bool) -> None:
    """Map, input annotations and index labels of a running pod cannot be changed, by the pod or by its status."""
    done = _patch(json.dumps({"metadata": CHANGES[what]}), cluster, status=status)

    assert done.returncode != 0
    quotes(done.stderr, "RequestInvalid", what)


@pytest.fixture
def as_monitor(cluster: Cluster, image: str, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Run a pod on node2 with the monitors' account. Return a function that runs kubectl with this pod's token."""
    rights = ("--verb=get,patch", "--resource=nodes,nodes/status")
    account = f"--serviceaccount={MONITORS}:{MONITORS}"
    try:
        cluster.kubectl("create", "namespace", MONITORS)
        cluster.kubectl("create", "serviceaccount", "-n", MONITORS, MONITORS)
        cluster.kubectl("create", "clusterrole", MONITORS, *rights)
        cluster.kubectl("create", "clusterrolebinding", MONITORS, f"--clusterrole={MONITORS}", account)
        spec = {"nodeName": "node2", "serviceAccountName": MONITORS, "containers": [{"name": "main", "image": image}]}
        metadata = {"name": "monitor", "namespace": MONITORS}
        cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        bound = ("--bound-object-kind=Pod", "--bound-object-name=monitor")
        token = cluster.kubectl("create", "token", "-n", MONITORS, MONITORS, *bound).stdout
        config = json.loads(cluster.kubectl("config", "view", "--raw", "--minify", "-o", "json").stdout)
        config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
        kubeconfig = tmp_path / "config"
        kubeconfig.write_text(json.dumps(config))
        kubeconfig.chmod(0o600)

        def ask(*arguments: str) -> str:
            done = Cluster(kubeconfig).kubectl(*arguments, check=False)
            return done.stdout + done.stderr

        yield ask
    finally:
        for what in (f"clusterrolebinding/{MONITORS}", f"clusterrole/{MONITORS}", f"namespace/{MONITORS}"):
            cluster.kubectl("delete", what, "--ignore-not-found", "--wait=false")
        cluster.kubectl("delete", "pod", "-n", MONITORS, "monitor", "--ignore-not-found", "--grace-period=0", "--force")
        cluster.kubectl("wait", "--for=delete", f"namespace/{MONITORS}", "--timeout=60s", check=False)


@pytest.mark.promise("guard-5", "guard-9")
def test_a_monitor_writes_its_own_node(as_monitor: Callable[..., str]) -> None:
    """A real token names the node of its pod: the monitor can patch that node and no other."""
    patch = (
        "--type=merge",
        f"--patch={json.dumps({'metadata': {'annotations': {'agentaflow.gpu/status': 'seen'}}})}",
        DRY,
    )
    refused = denial("monitor", "a monitor writes another node", what="node node1", its="node node2")
    refused_else = denial("monitor", "a monitor writes another field of its node")
    cordon = ("--type=merge", '--patch={"spec":{"unschedulable":true}}', DRY)

    for by in ((), ("--subresource=status",)):
        assert "node/node2 patched" in as_monitor("patch", "node", "node2", *patch, *by)
        assert refused in as_monitor("patch", "node", "node1", *patch, *by)
    assert refused_else in as_monitor("patch", "node", "node2", *cordon)


def test_the_system_itself_is_guarded_too(cluster: Cluster) -> None:
    """Our own system's pods belong to another scheduler: a forged assignment is refused there as well."""
    name = cluster.get("pods", "-n", SYSTEM)["items"][0]["metadata"]["name"]
    done = cluster.kubectl("annotate", "pod", "-n", SYSTEM, name, f"{KEY}=1", DRY, check=False)

    quotes(done.stderr, "RequestInvalid")
