"""S2: a tenant deletes a pod at once, so that its process stays on a GPU that the next pod gets."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests import objects
from tests.attacks.installed_cluster import Tenant, refusal
from tests.integration.accounts import RBAC, allow, make_account, rights
from tests.integration.controller_manager import start_controller_manager
from tests.integration.pod_controllers import collection, controller
from tests.integration.policies import REGISTRATION, rendered
from tests.integration.webhook_process import UNREVIEWED
from tests.messages import denial, says, text_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.attacks.installed_cluster import InstalledCluster
    from tests.kube_client import KubeClient
    from tests.objects import Object

POLICY: Final = "forced-deletion"
LINE: Final = "0=node2:0"
WITHOUT_GRACE: Final = "a pod without a grace period waits until it is made anew"
AT_ONCE: Final = {"gracePeriodSeconds": 0}
POD: Final = "/train-0"
CONTROLLERS: Final = ("namespace-controller", "garbage-collector-controller", "statefulset-controller")


@pytest.fixture
def holding(tenant: Tenant) -> Tenant:
    """A tenant whose pod holds a GPU."""
    return with_pod(tenant)


def with_pod(tenant: Tenant) -> Tenant:
    """Let the tenant create a pod, and wait until it holds its GPU."""
    tenant.kube.create(tenant.pods, objects.pod("train-0", LINE))
    tenant.namespace.wait_bound("train-0", "node2")
    return tenant


def eviction(**options: Any) -> Object:
    """Return an Eviction of the pod with these options of its deletion."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "train-0"}}
    return {**body, "deleteOptions": options} if options else body


def evicted_at_once(tenant: Tenant) -> str:
    """Return the end of the answer to an Eviction of the pod without a grace period."""
    return denial(POLICY, "a pod is evicted at once", ns=tenant.namespace.name, pod="train-0", user=tenant.user)


def user(cluster: InstalledCluster, folder: Path, name: str, group: str) -> KubeClient:
    """Return a client with a certificate of a user who may delete pods, and has no other right."""
    role = name.replace(":", "-")
    path = f"{RBAC}/clusterroles"
    cluster.kube.create(path, {"metadata": {"name": role}, "rules": [rights("pods", "get", "delete", group="")]})
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    body = {"metadata": {"name": role}, "roleRef": ref, "subjects": [subject]}
    cluster.kube.create(f"{RBAC}/clusterrolebindings", body)
    return cluster.plane.user_client(folder, name, group)


DELETIONS: Final[dict[str, tuple[str, Object | None]]] = {
    "by options": (POD, AT_ONCE),
    "by the query": (f"{POD}?gracePeriodSeconds=0", None),
    "in the foreground": (POD, {**AT_ONCE, "propagationPolicy": "Foreground"}),
    "in a dry run": (f"{POD}?dryRun=All", AT_ONCE),
    "all of the namespace": ("", AT_ONCE),
    "all of the namespace, by the query": ("?gracePeriodSeconds=0", None),
    "all of that name": ("?fieldSelector=metadata.name=train-0", AT_ONCE),
}


@pytest.mark.promise("guard-16")
@pytest.mark.parametrize("terminating", [False, True], ids=["running", "terminating"])
@pytest.mark.parametrize(("path", "options"), DELETIONS.values(), ids=DELETIONS)
def test_no_pod_on_a_node_is_deleted_at_once(
    holding: Tenant, new_tenant: Tenant, path: str, options: Object | None, *, terminating: bool
) -> None:
    """The message says what to do instead. The GPU stays held, and the pod of another tenant waits for it."""
    if terminating:
        holding.namespace.terminate("train-0")
    refused = refusal(holding.call("DELETE", f"{holding.pods}{path}", options))

    said = {"ns": holding.namespace.name, "pod": "train-0", "user": holding.user}
    assert refused.endswith(denial(POLICY, "a pod on a node is deleted at once", **said))
    assert holding.namespace.node_of("train-0") == "node2"
    new_tenant.kube.create(new_tenant.pods, objects.pod("victim-0", LINE))
    says(new_tenant.namespace.wait_message("victim-0", "GpuHeld: "), "GpuHeld", f"{holding.namespace.name}/train-0")


@pytest.mark.promise("guard-16")
@pytest.mark.parametrize("scheduler", ["gpu-scheduler", "another-scheduler"])
def test_no_pod_is_evicted_at_once(tenant: Tenant, scheduler: str) -> None:
    """An Eviction has no pod, so those of other schedulers' pods are refused too."""
    tenant.kube.create(tenant.pods, objects.pod("train-0", LINE, scheduler=scheduler))

    refused = refusal(tenant.call("POST", f"{tenant.pods}{POD}/eviction", eviction(**AT_ONCE)))

    assert refused.endswith(evicted_at_once(tenant))
    assert "deletionTimestamp" not in tenant.namespace.read("train-0")["metadata"]


@pytest.mark.promise("guard-16", "text-6")
@pytest.mark.parametrize("annotations", [{}, {"agentaflow.gpu/count": "1"}], ids=["map", "count"])
def test_no_pod_says_itself_that_it_is_deleted_at_once(
    tenant: Tenant, new_tenant: Tenant, annotations: dict[str, str]
) -> None:
    """An ordinary deletion would be one without a grace period. The controllers of such pods are warned of."""
    text = None if annotations else LINE
    pod = objects.pod("train-0", text, annotations=annotations, terminationGracePeriodSeconds=0)
    status, answer = tenant.call("POST", tenant.pods, pod)
    assert status == 400, answer
    assert text_of(WITHOUT_GRACE) in answer["message"]

    body = controller("Deployment", lines=text, replicas=1)
    template = body["spec"]["template"]
    template["metadata"]["annotations"] |= annotations
    template["spec"]["terminationGracePeriodSeconds"] = 0
    deployments = f"{collection(tenant.namespace.name, 'Deployment')}?dryRun=All"
    assert text_of(WITHOUT_GRACE) in str(tenant.kube.create_with_warnings(deployments, body))

    unreviewed = Tenant(new_tenant.cluster, **{UNREVIEWED.replace("/", "_"): ""})
    unreviewed.kube.create(unreviewed.pods, pod)
    assert unreviewed.namespace.wait_message("train-0", "RequestInvalid: ") == text_of(WITHOUT_GRACE)
    unreviewed.leave()


@pytest.mark.promise("guard-16")
def test_a_pod_that_says_itself_that_it_is_deleted_at_once_is_not(cluster: InstalledCluster) -> None:
    """It was bound before the policy was there. With a grace period in the request it can be deleted."""
    tenant = Tenant(cluster, **{UNREVIEWED.replace("/", "_"): ""})
    tenant.kube.create(tenant.pods, objects.pod("train-0", LINE, terminationGracePeriodSeconds=0))
    cluster.kube.create(
        f"{tenant.pods}{POD}/binding", {"metadata": {"name": "train-0"}, "target": {"kind": "Node", "name": "node2"}}
    )
    for path in (POD, ""):
        refused = refusal(tenant.call("DELETE", f"{tenant.pods}{path}"))
        said = {"ns": tenant.namespace.name, "pod": "train-0", "user": tenant.user}
        assert refused.endswith(denial(POLICY, "a pod on a node is deleted at once", **said))

    status, answer = tenant.call("DELETE", f"{tenant.pods}{POD}", {"gracePeriodSeconds": 1})
    assert status in {200, 202}, answer
    assert "deletionTimestamp" in tenant.namespace.read("train-0")["metadata"]
    tenant.leave()


def test_a_tenant_grants_itself_no_right_to_delete_at_once(tenant: Tenant) -> None:
    """Kubernetes lets nobody grant a right that they lack."""
    roles = f"{RBAC}/namespaces/{tenant.namespace.name}/roles"
    body = {"metadata": {"name": "own"}, "rules": [rights("heldpods", "forcedelete")]}

    assert "attempting to grant RBAC permissions not currently held" in refusal(tenant.call("POST", roles, body))


USUAL: Final[dict[str, tuple[str, str, Object | None]]] = {
    "deleted": ("DELETE", POD, None),
    "deleted now": ("DELETE", POD, {"gracePeriodSeconds": 1}),
    "deleted with all others": ("DELETE", "", None),
    "evicted": ("POST", f"{POD}/eviction", eviction()),
    "evicted with a grace period": ("POST", f"{POD}/eviction", eviction(gracePeriodSeconds=1)),
}


@pytest.mark.parametrize("what", USUAL)
def test_a_pod_is_deleted_with_a_grace_period_as_ever(holding: Tenant, what: str) -> None:
    """It terminates, and its kubelet ends it."""
    method, path, body = USUAL[what]

    status, answer = holding.call(method, f"{holding.pods}{path}", body)

    assert status in {200, 201, 202}, answer
    assert "deletionTimestamp" in holding.namespace.read("train-0")["metadata"]


@pytest.mark.parametrize("what", ["without a node", "Succeeded", "Failed", "of another scheduler"])
def test_a_pod_that_holds_no_gpu_is_deleted_at_once_as_ever(tenant: Tenant, what: str) -> None:
    """It has no process on a GPU of ours."""
    if what == "of another scheduler":
        tenant.kube.create(tenant.pods, objects.pod("train-0", scheduler="another-scheduler", nodeName="node2"))
    elif what == "without a node":
        tenant.kube.create(tenant.pods, objects.pod("train-0", "0=node9:0"))
    else:
        with_pod(tenant)
        tenant.namespace.finish("train-0", what)

    status, answer = tenant.call("DELETE", f"{tenant.pods}{POD}", AT_ONCE)

    assert status == 200, answer
    assert tenant.cluster.kube.get(f"{tenant.pods}{POD}") is None


PARTS: Final = {
    "its kubelet": ("system:node:node2", "system:nodes"),
    "kube-controller-manager": ("system:kube-controller-manager", "any"),
}


@pytest.mark.parametrize("who", PARTS)
def test_the_cluster_itself_deletes_at_once(
    cluster: InstalledCluster, holding: Tenant, tmp_path: Path, who: str
) -> None:
    """A kubelet deletes so what it has ended."""
    kube = user(cluster, tmp_path, *PARTS[who])

    def deleted() -> bool:
        status, answer = kube.call("DELETE", f"{holding.pods}{POD}", AT_ONCE)
        # RBAC knows the new right a moment later.
        assert status == 200 or f'User "{PARTS[who][0]}" cannot ' in answer["message"], answer
        return status == 200

    eventually("it is deleted", deleted)
    assert cluster.kube.get(f"{holding.pods}{POD}") is None


def test_accounts_of_kube_system_delete_at_once(cluster: InstalledCluster, holding: Tenant) -> None:
    """The pod garbage collector deletes so the pods of nodes that are gone or out of service."""
    make_account(cluster.kube, "kube-system", "pod-garbage-collector")
    collector = cluster.account("pod-garbage-collector", "kube-system")

    status, answer = collector.call("DELETE", f"{holding.pods}{POD}", AT_ONCE)

    assert status == 200, answer


def test_whoever_has_the_right_deletes_at_once(cluster: InstalledCluster, new_tenant: Tenant) -> None:
    """The rule that the message of a refusal names is sufficient, in that namespace alone."""
    other = Tenant(cluster)
    with_pod(new_tenant)
    where = new_tenant.namespace.name
    allow(cluster.kube, where, "tenant", "forced", rights("heldpods", "forcedelete"))

    def evicted() -> bool:
        path = f"{new_tenant.pods}{POD}/eviction"
        return new_tenant.call("POST", f"{path}?dryRun=All", eviction(**AT_ONCE))[0] == 201

    eventually("its right is known", evicted)
    status, answer = new_tenant.call("DELETE", f"{new_tenant.pods}{POD}", AT_ONCE)
    assert status == 200, answer
    assert refusal(other.call("POST", f"{other.pods}{POD}/eviction", eviction(**AT_ONCE))).endswith(
        evicted_at_once(other)
    )


def test_controllers_delete_as_ever(cluster: InstalledCluster, new_tenant: Tenant, tmp_path: Path) -> None:
    """A StatefulSet that is scaled, the garbage collector, and the deletion of a namespace."""
    sets = collection(new_tenant.namespace.name, "StatefulSet")
    manager = start_controller_manager(cluster.plane, tmp_path, *CONTROLLERS, own_accounts=True)
    try:
        with new_tenant.namespace.kubelets():
            body = controller("StatefulSet", lines="0=node2:0\n1=node2:1\n", replicas=2, podManagementPolicy="Parallel")
            new_tenant.kube.create(sets, body)
            for name in ("train-0", "train-1"):
                eventually(f"{name} is placed", partial(_node, new_tenant, name), seconds=30)
            new_tenant.kube.patch(f"{sets}/train", {"spec": {"replicas": 1}})
            eventually("it is scaled", lambda: cluster.kube.get(f"{new_tenant.pods}/train-1") is None, seconds=30)
            assert new_tenant.call("DELETE", f"{sets}/train", {"propagationPolicy": "Background"})[0] == 200
            eventually("it is collected", lambda: cluster.kube.get(f"{new_tenant.pods}{POD}") is None, seconds=30)
            with_pod(new_tenant)
            namespace = f"/api/v1/namespaces/{new_tenant.namespace.name}"
            cluster.kube.delete(namespace)
            eventually("the namespace is gone", lambda: cluster.kube.get(namespace) is None, seconds=30)
    finally:
        manager.stop()


def _node(tenant: Tenant, name: str) -> str:
    found = tenant.cluster.kube.get(f"{tenant.pods}/{name}")
    return "" if found is None else str(found["spec"].get("nodeName", ""))


@pytest.fixture
def warned(cluster: InstalledCluster, new_tenant: Tenant) -> Iterator[None]:
    """The policy as `policies_forced_deletion: warn` has it."""
    path = f"{REGISTRATION}/validatingadmissionpolicybindings/gpu-scheduler-{POLICY}"
    before = cluster.kube.get(path)
    assert before is not None
    (body,) = (
        each
        for each in rendered("guards", forced_deletion="warn")
        if each["kind"].endswith("Binding") and each["metadata"]["name"] == f"gpu-scheduler-{POLICY}"
    )
    cluster.kube.patch(path, {"spec": body["spec"]})
    probe = f"{new_tenant.pods}{POD}/eviction?dryRun=All"
    eventually("it warns", lambda: new_tenant.call("POST", probe, eviction(**AT_ONCE))[0] == 404, seconds=20)
    yield
    cluster.kube.patch(path, {"spec": before["spec"]})
    eventually("it refuses", lambda: new_tenant.call("POST", probe, eviction(**AT_ONCE))[0] == 403, seconds=20)


@pytest.mark.usefixtures("warned")
def test_a_cluster_may_warn_instead(holding: Tenant) -> None:
    """The author of a forced deletion reads the same words, and the pod is gone."""
    path = f"{holding.pods}{POD}"
    (warning,) = holding.kube.create_with_warnings(f"{path}/eviction?dryRun=All", eviction(**AT_ONCE))
    said = {"ns": holding.namespace.name, "pod": "train-0", "user": holding.user}
    assert warning.endswith(text_of("a pod is evicted at once", **said))
    status, answer = holding.call("DELETE", path, AT_ONCE)
    assert status == 200, answer
    assert holding.cluster.kube.get(path) is None
