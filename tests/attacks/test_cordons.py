"""Who takes GPUs out of service: neither tenants, nor a stolen token of ours, nor anybody in another's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests import objects
from tests.attacks.installed_cluster import TENANT, refusal
from tests.integration.accounts import RBAC, binding, rights
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.integration.policies import MONITOR
from tests.integration.workloads import API
from tests.messages import denial, text_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.attacks.installed_cluster import InstalledCluster, Tenant
    from tests.kube_client import KubeClient
    from tests.objects import Object

    Request = tuple[str, str, Any, str]

ALL: Final = f"{API}/gpunodes"
NODE: Final = f"{ALL}/node2"
FREE: Final = f"{ALL}/node4"
STATUS: Final = f"{NODE}/status"
ACCOUNTS: Final = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/serviceaccounts"
JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY: Final = "application/apply-patch+yaml"
SINCE: Final = "2026-11-25T10:00:00Z"
BY_RBAC: Final = '" cannot '
USUAL: Final = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
CONFIRMED: Final = {
    "type": "Cordoned",
    "status": "True",
    "reason": "GpusCordoned",
    "message": "forged",
    "lastTransitionTime": SINCE,
    "observedGeneration": 99,
}
READY: Final = {**CONFIRMED, "type": "Ready"}


def entry(device: str, by: str, **more: Any) -> Object:
    """Return a cordon."""
    return {"device": device, "reason": "x", "by": by, "since": SINCE, **more}


def user(name: str) -> str:
    """Return the user name of an account of the system namespace."""
    return f"system:serviceaccount:{SYSTEM_NAMESPACE}:{name}"


def whole(name: str, body: Object | None = None, **meta: Any) -> Object:
    """Return a GPUNode with these parts."""
    return {"apiVersion": "agentaflow.io/v1", "kind": "GPUNode", "metadata": {"name": name, **meta}, **(body or {})}


def lacking(node: str, account: str) -> str:
    """Return the end of an answer to an account that changes the cordons of this node without the right."""
    return denial("cordons", "an account that may not cordon changes cordons", node=node, user=account)


def signed_wrongly(node: str, account: str) -> str:
    """Return the end of an answer to an account of the system namespace that cordons in another's name."""
    return denial("cordons", "a cordon is signed with another name", node=node, user=user(account))


def spec(name: str, *cordons: Object) -> Object:
    """Return the spec of a GPUNode, without the field `cordoned` if there are none."""
    return {"spec": {"nodeName": name, **({"cordoned": list(cordons)} if cordons else {})}}


def applied(path: str, manager: str) -> str:
    """Return the path of a server-side apply that takes over what others have written."""
    return f"{path}?fieldManager={manager}&force=true"


def stored(cluster: InstalledCluster, path: str = NODE) -> Object:
    """Return the GPUNode; empty if there is none."""
    return cluster.kube.get(path) or {}


def sent(cluster: InstalledCluster, kube: KubeClient, request: Request) -> tuple[int, Object]:
    """Send a request; a replacement is one of the version that is stored."""
    method, path, body, content = request
    if method == "PUT":
        version = stored(cluster)["metadata"]["resourceVersion"]
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
    return kube.call(method, path, body, content)


def bind(cluster: InstalledCluster, name: str, role: str) -> KubeClient:
    """Return a client of a new account that is bound to this ClusterRole."""
    cluster.kube.create(ACCOUNTS, {"metadata": {"name": name}})
    body = binding(name, "ClusterRole", role, name, SYSTEM_NAMESPACE)
    cluster.kube.create(f"{RBAC}/clusterrolebindings", body)
    kube = cluster.account(name)
    eventually("its rights are known", lambda: kube.call("GET", f"{ALL}/none")[0] == 404)
    return kube


def bound(cluster: InstalledCluster, name: str, *verbs: str, only: str = "") -> KubeClient:
    """Return a client of a new account that has these verbs on GPUNodes, and may write their status.

    With `only` it may also cordon the node of that name.
    """
    rules = [rights("gpunodes", *verbs), rights("gpunodes/status", "patch", "update")]
    if only:
        rules.append(rights("gpunodes", "cordon", only=[only]))
    cluster.kube.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    return bind(cluster, name, name)


@pytest.fixture(scope="module")
def writer(cluster: InstalledCluster) -> KubeClient:
    """An account with every usual verb on GPUNodes and their status, but not with `cordon`."""
    kube = bound(cluster, "writer", *USUAL)
    # In another's name, which the policy refuses for a reason of its own.
    body = whole("node4", spec("node4", entry("0", "admin")))
    probe = f"{ALL}?dryRun=All"
    eventually("the policy is in force", lambda: kube.call("POST", probe, body)[0] == 403, seconds=20)
    return kube


@pytest.fixture(scope="module")
def operator(cluster: InstalledCluster) -> KubeClient:
    """An account that may cordon, and write whatever else of a GPUNode."""
    return bound(cluster, "operator", *USUAL, "cordon")


@pytest.fixture
def cordoned(cluster: InstalledCluster) -> Iterator[Object]:
    """The GPUNode of node2, with what all write of it.

    Its monitor has reported devices, the administrator has cordoned device 1 by an apply, and scheduler and controller
    have answered.
    """
    _report(cluster.monitor("node2"))
    body = whole("node2", spec("node2", entry("1", "admin")))
    made, answer = cluster.kube.call("PATCH", f"{NODE}?fieldManager=kubectl", body, APPLY)
    assert made == 200, answer

    def settled() -> Object | None:
        found = stored(cluster)
        status = found.get("status", {})
        observed = {each["type"]: each["observedGeneration"] for each in status.get("conditions", ())}
        current = {kind for kind, generation in observed.items() if generation == found["metadata"]["generation"]}
        return found if {"Cordoned", "Ready"} <= current and "allocated" in status else None

    yield eventually("scheduler and controller have written it", settled)
    cluster.kube.call("DELETE", NODE)
    eventually("it is gone", lambda: not stored(cluster))


@pytest.fixture
def free(cluster: InstalledCluster) -> Iterator[str]:
    """The path of a GPUNode of node4. There is none before, and there is none afterwards."""
    assert not stored(cluster, FREE)
    yield FREE
    cluster.kube.call("DELETE", FREE)
    eventually("it is gone", lambda: not stored(cluster, FREE))


def _report(monitor: KubeClient) -> None:
    for path, body in ((NODE, spec("node2")), (STATUS, {"status": {"gpus": 4, "devices": [{"index": 0}]}})):
        done, answer = monitor.call("PATCH", applied(path, "gpu-scheduler-monitor"), whole("node2", body), APPLY)
        assert done in {200, 201}, answer


def _patch(*operations: Object) -> Request:
    return "PATCH", NODE, list(operations), JSON_PATCH


BARE: Final = whole("node2", spec("node2"))
BOTH: Final = whole("node2", spec("node2", entry("1", "admin"), entry("0", user("writer"))))
NEW: Final = whole("node4", spec("node4", entry("0", user("writer"))))
CHANGES: Final[dict[str, Request]] = {
    "cordons another device": ("PATCH", NODE, BOTH, MERGE),
    "cordons another device by an apply": ("PATCH", applied(NODE, "spy"), BOTH, APPLY),
    "cordons another device by a JSON patch": _patch(
        {"op": "add", "path": "/spec/cordoned/-", "value": entry("0", user("writer"))}
    ),
    "signs the cordon anew": ("PATCH", NODE, whole("node2", spec("node2", entry("1", user("writer")))), MERGE),
    "gives the cordon an end": _patch({"op": "add", "path": "/spec/cordoned/0/until", "value": SINCE}),
    "changes the reason": _patch({"op": "replace", "path": "/spec/cordoned/0/reason", "value": "y"}),
    "ends the cordon": ("PATCH", NODE, {"spec": {"cordoned": None}}, MERGE),
    "empties the list": _patch({"op": "replace", "path": "/spec/cordoned", "value": []}),
    "removes the field": _patch({"op": "remove", "path": "/spec/cordoned"}),
    "removes the entry": _patch({"op": "remove", "path": "/spec/cordoned/0"}),
    "replaces the spec": _patch({"op": "replace", "path": "/spec", "value": spec("node2")["spec"]}),
    "applies it without the cordon as who wrote it": ("PATCH", applied(NODE, "kubectl"), BARE, APPLY),
    "replaces the object": ("PUT", NODE, BARE, JSON),
    "deletes it": ("DELETE", NODE, None, JSON),
    "deletes it in the foreground": ("DELETE", f"{NODE}?propagationPolicy=Foreground", None, JSON),
    "deletes all of them": ("DELETE", ALL, None, JSON),
    "deletes all of that name": ("DELETE", f"{ALL}?fieldSelector=metadata.name=node2", None, JSON),
    "creates one with a cordon": ("POST", ALL, NEW, JSON),
    "creates one with a cordon by an apply": ("PATCH", applied(FREE, "spy"), NEW, APPLY),
    "cordons a whole node": ("POST", ALL, whole("node4", spec("node4", entry("*", user("writer")))), JSON),
}


def _node_of(request: Request) -> str:
    return "node4" if "node4" in str(request) else "node2"


@pytest.mark.promise("cordon-4")
@pytest.mark.parametrize("what", CHANGES)
def test_whoever_may_write_gpunodes_may_not_cordon(
    cluster: InstalledCluster, writer: KubeClient, cordoned: Object, what: str
) -> None:
    """However it is written, the policy names the node and the right that is missing, and nothing changes."""
    refused = refusal(sent(cluster, writer, CHANGES[what]))

    assert refused.endswith(lacking(_node_of(CHANGES[what]), user("writer")))
    assert stored(cluster)["spec"] == cordoned["spec"]
    assert not stored(cluster, FREE)


def test_other_fields_need_no_such_right(
    cluster: InstalledCluster, writer: KubeClient, cordoned: Object, free: str
) -> None:
    """A label is a matter of RBAC alone, and so is a GPUNode without cordons."""
    for metadata in ({"labels": {"rack": "7"}}, {"annotations": {"rack": "7"}}):
        assert writer.merge(NODE, {"metadata": metadata})[0] == 200
    refused, answer = writer.merge(NODE, {"spec": {"nodeName": "node4"}})
    assert refused == 422
    assert text_of("a GPUNode is given to another node") in answer["message"]
    forged = whole("node4", {**spec("node4"), "status": {"conditions": [CONFIRMED]}})
    assert writer.call("POST", ALL, forged)[0] == 201
    assert "Cordoned" not in str(stored(cluster, free))
    assert writer.call("DELETE", free)[0] == 200
    assert stored(cluster)["spec"] == cordoned["spec"]


@pytest.mark.promise("cordon-4")
def test_nobody_signs_with_another_name(cluster: InstalledCluster, operator: KubeClient, cordoned: Object) -> None:
    """An operator adds in its own name, and may remove what another has cordoned."""
    theirs = cordoned["spec"]["cordoned"]
    forged = {
        "another user's": [*theirs, entry("0", "alice")],
        "a group's": [*theirs, entry("0", "system:masters")],
        "its own, in another spelling": [*theirs, entry("0", user("operator").upper())],
        "the other's, on a changed entry": [entry("1", "admin", until=SINCE)],
        "the other's, on another device": [*theirs, entry("0", "admin")],
    }
    for what, cordons in forged.items():
        refused = refusal(operator.merge(NODE, {"spec": {"cordoned": cordons}}))
        assert refused.endswith(signed_wrongly("node2", "operator")), what
    refused = refusal(operator.call("POST", ALL, whole("node4", spec("node4", entry("0", "alice")))))
    assert refused.endswith(signed_wrongly("node4", "operator"))
    assert stored(cluster)["spec"] == cordoned["spec"]

    own = [entry("0", user("operator")), *theirs]
    for cordons in (own, own[:1]):
        done, answer = operator.merge(NODE, {"spec": {"cordoned": cordons}})
        assert done == 200, answer
    assert stored(cluster)["spec"]["cordoned"] == own[:1]


@pytest.mark.promise("cordon-4")
def test_a_right_to_cordon_one_node_is_none_for_another(cluster: InstalledCluster, cordoned: Object) -> None:
    """Kubernetes' `resourceNames` bound the verb; all GPUNodes at once are more than one of them."""
    kube = bound(cluster, "one-node", *USUAL, only="node2")
    own = entry("0", user("one-node"))
    done, answer = kube.merge(NODE, {"spec": {"cordoned": [*cordoned["spec"]["cordoned"], own]}})
    assert done == 200, answer

    makes = kube.call("POST", ALL, whole("node4", spec("node4", own)))
    for tried, node in ((makes, "node4"), (kube.call("DELETE", ALL), "node2")):
        assert refusal(tried).endswith(lacking(node, user("one-node")))
    assert len(stored(cluster)["spec"]["cordoned"]) == 2


DENIED: Final[dict[str, Request]] = {
    "confirms": ("PATCH", STATUS, {"status": {"conditions": [CONFIRMED]}}, MERGE),
    "deletes the GPUNode": ("DELETE", NODE, None, JSON),
    "deletes all GPUNodes": ("DELETE", ALL, None, JSON),
    "taints the node": ("PATCH", "/api/v1/nodes/node2", {"spec": {"unschedulable": True}}, MERGE),
    "deletes a pod past its budget": ("DELETE", "/api/v1/namespaces/default/pods/any", None, JSON),
    "creates a pod": ("POST", "/api/v1/namespaces/default/pods", objects.pod("spy", None), JSON),
    "binds a pod": ("POST", "/api/v1/namespaces/default/pods/any/binding", {"target": {"name": "node2"}}, JSON),
    "reads secrets": ("GET", "/api/v1/secrets", None, JSON),
}


@pytest.mark.promise("cordon-4")
def test_the_role_that_is_shipped_suffices_and_has_no_more(
    cluster: InstalledCluster, tenant: Tenant, cordoned: Object
) -> None:
    """It cordons in its own name, evicts any pod, and has no other right."""
    kube = bind(cluster, "technician", "gpu-scheduler-operator")
    for what, request in DENIED.items():
        assert f'User "{user("technician")}" cannot ' in refusal(sent(cluster, kube, request)), what
    refused = refusal(kube.merge(NODE, {"spec": {"cordoned": [entry("0", "admin")]}}))
    assert refused.endswith(signed_wrongly("node2", "technician"))

    own = [*cordoned["spec"]["cordoned"], entry("0", user("technician"))]
    assert kube.merge(NODE, {"spec": {"cordoned": own}})[0] == 200
    tenant.kube.create(tenant.pods, objects.pod("train-0", "0=node9:0"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "train-0"}}
    done, answer = kube.call("POST", f"{tenant.pods}/train-0/eviction", eviction)
    assert done == 201, answer


TOKENS: Final = {
    "the scheduler": "gpu-scheduler",
    "the controller": "gpu-scheduler-controller",
    "the node's own monitor": "node2",
    "another node's monitor": "node1",
    "the renewer": "gpu-scheduler-renewer",
    "the webhook": "gpu-scheduler-webhook",
    "the check": "gpu-scheduler-check",
}
WRITERS: Final = ("the controller", "the node's own monitor", "another node's monitor")
"""Those that may write a GPUNode's status, but for the scheduler."""


def _account(whose: str) -> str:
    """Return the user name of one of our accounts."""
    return MONITOR if TOKENS[whose].startswith("node") else user(TOKENS[whose])


def _elsewhere(whose: str, node: str) -> str:
    """Return the end of an answer to a monitor that writes another GPUNode than its node's."""
    return denial("monitor", "a monitor writes another node", what=f"GPUNode {node}", its=f"node {TOKENS[whose]}")


def stolen(cluster: InstalledCluster, whose: str) -> KubeClient:
    """Return a client with the token of one of our accounts."""
    name = TOKENS[whose]
    if name.startswith("node"):
        return cluster.monitor(name)
    if cluster.kube.get(f"{ACCOUNTS}/{name}") is None:
        # Not needed where no such program runs.
        cluster.kube.create(ACCOUNTS, {"metadata": {"name": name}})
    return cluster.account(name)


@pytest.mark.promise("cordon-4")
@pytest.mark.parametrize("whose", TOKENS)
def test_no_token_of_ours_changes_cordons(cluster: InstalledCluster, cordoned: Object, whose: str) -> None:
    """RBAC refuses, or a policy: to cordon, to uncordon, and to delete what is cordoned, in whatever way."""
    kube = stolen(cluster, whose)
    for what, request in CHANGES.items():
        refused = refusal(sent(cluster, kube, request))
        node = _node_of(request)
        possible = (lacking(node, _account(whose)), _elsewhere(whose, node))
        assert refused.endswith(possible) or BY_RBAC in refused, (what, refused)

    assert stored(cluster)["spec"] == cordoned["spec"]
    assert not stored(cluster, FREE)


@pytest.mark.promise("cordon-4")
def test_a_monitor_makes_no_gpunode_with_a_cordon(cluster: InstalledCluster, free: str) -> None:
    """Neither in its own name nor in the administrator's."""
    monitor = cluster.monitor("node4")
    for name in (MONITOR, "admin"):
        body = whole("node4", spec("node4", entry("0", name)))
        refused = refusal(monitor.call("PATCH", applied(free, "gpu-scheduler-monitor"), body, APPLY))
        assert refused.endswith(lacking("node4", MONITOR))

    assert not stored(cluster, free)


@pytest.mark.promise("cordon-3")
def test_the_garbage_collector_deletes_no_cordon(cluster: InstalledCluster, cordoned: Object) -> None:
    """A node owns the GPUNodes of earlier versions, and whoever writes one may name an owner that does not exist."""
    collector = bind(cluster, "collector", "system:controller:generic-garbage-collector")
    owner = {"apiVersion": "v1", "kind": "Node", "name": "node2", "uid": "1"}
    cluster.kube.patch(NODE, {"metadata": {"ownerReferences": [owner]}})

    refused = refusal(collector.call("DELETE", NODE, {"propagationPolicy": "Background"}))
    assert refused.endswith(lacking("node2", user("collector")))
    assert stored(cluster)["spec"] == cordoned["spec"]


@pytest.mark.promise("cordon-3", "cordon-4")
def test_no_cordon_goes_with_a_gpunode_that_is_being_deleted(
    cluster: InstalledCluster, writer: KubeClient, operator: KubeClient, free: str
) -> None:
    """A finalizer delays a deletion until the GPUNode is cordoned; whoever removes it needs no right to delete."""
    body = whole("node4", spec("node4"), finalizers=["example.com/later"])
    assert writer.call("POST", ALL, body)[0] == 201
    assert writer.call("DELETE", free)[0] == 200
    own = spec("node4", entry("0", user("operator")))

    refused, answer = operator.merge(free, own)

    assert refused == 422, answer
    assert answer["message"].endswith(denial("cordons", "a GPUNode that is being deleted is cordoned"))
    assert writer.merge(free, {"metadata": {"finalizers": None}})[0] == 200
    assert not stored(cluster, free)
    assert operator.call("POST", ALL, whole("node4", own))[0] == 201
    assert refusal(writer.call("DELETE", free)).endswith(lacking("node4", user("writer")))


@pytest.mark.promise("cordon-3")
def test_a_gpunode_that_is_being_deleted_can_be_uncordoned(
    cluster: InstalledCluster, operator: KubeClient, free: str
) -> None:
    """Who may cordon may also delete what is cordoned; a finalizer holds up nobody who puts the GPUs back."""
    cordons = [entry(device, user("operator")) for device in "01"]
    body = whole("node4", spec("node4", *cordons), finalizers=["example.com/later"])
    assert operator.call("POST", ALL, body)[0] == 201
    assert operator.call("DELETE", free)[0] == 200

    done, answer = operator.merge(free, {"spec": {"cordoned": cordons[:1]}})

    assert done == 200, answer
    assert operator.merge(free, {"metadata": {"finalizers": None}})[0] == 200
    assert not stored(cluster, free)


@pytest.mark.promise("cordon-4")
def test_a_monitor_writes_no_finalizer(cluster: InstalledCluster, cordoned: Object, free: str) -> None:
    """Otherwise its GPUNode could be neither deleted nor cordoned; also through the status."""
    held = {"finalizers": ["example.com/never"]}
    made = cluster.monitor("node4").call("PATCH", applied(free, "spy"), whole("node4", spec("node4"), **held), APPLY)
    said = denial("monitor", "a monitor writes a finalizer of its GPUNode")
    assert refusal(made).endswith(said)
    assert refusal(cluster.monitor("node2").merge(NODE, {"metadata": held})).endswith(said)
    cluster.monitor("node2").merge(STATUS, {"metadata": held})

    assert "finalizers" not in stored(cluster)["metadata"]
    assert not stored(cluster, free)
    assert cordoned["spec"]


def _apply(manager: str, *conditions: Object) -> Request:
    status = {"conditions": list(conditions)} if conditions else {}
    return "PATCH", applied(STATUS, manager), whole("node2", {"status": status}), APPLY


def _merge(conditions: list[Object] | None) -> Request:
    return "PATCH", STATUS, {"status": {"conditions": conditions}}, MERGE


FORGERIES: Final[dict[str, Request]] = {
    "confirms what comes": _merge([READY, CONFIRMED]),
    "confirms by an apply": _apply("spy", CONFIRMED),
    "confirms as the scheduler's field manager": _apply("gpu-scheduler", CONFIRMED),
    "says that nothing is cordoned": _apply("spy", {**CONFIRMED, "status": "False"}),
    "changes the observed generation": _apply("spy", {"type": "Cordoned", "observedGeneration": 99}),
    "drops what the scheduler has applied": _apply("gpu-scheduler"),
    "takes it back": _merge([READY]),
    "empties the conditions": _merge([]),
    "removes the conditions": _merge(None),
    "removes the status": ("PATCH", STATUS, [{"op": "remove", "path": "/status"}], JSON_PATCH),
    "replaces the status": ("PUT", STATUS, whole("node2", {**spec("node2"), "status": {}}), JSON),
}


@pytest.mark.promise("cordon-4")
@pytest.mark.parametrize("whose", ["an operator", "who may write GPUNodes", *WRITERS])
def test_only_the_scheduler_confirms(
    cluster: InstalledCluster, operator: KubeClient, writer: KubeClient, cordoned: Object, whose: str
) -> None:
    """A forged confirmation would let an operator pull a card to which a bind is under way."""
    people = {"an operator": operator, "who may write GPUNodes": writer}
    kube = people.get(whose) or stolen(cluster, whose)
    confirms = denial("cordons", "an account that is no scheduler confirms a cordon")
    for what, request in FORGERIES.items():
        refused = refusal(sent(cluster, kube, request))
        if whose in people:
            assert refused.endswith(confirms), what
        elif '" cannot update resource "gpunodes/status"' not in refused:
            assert refused.endswith((confirms, _elsewhere(whose, "node2"))), what

    assert _condition(stored(cluster), "Cordoned") == _condition(cordoned, "Cordoned")


def _condition(gpu_node: Object, kind: str) -> Object:
    found: list[Object] = [each for each in gpu_node["status"]["conditions"] if each["type"] == kind]
    assert len(found) == 1, gpu_node
    return found[0]


def _status(**parts: Any) -> Request:
    return "PATCH", STATUS, {"status": parts}, MERGE


def _confirming(manager: str, **more: Any) -> Request:
    body = whole("node2", {"status": {"conditions": [CONFIRMED], **more}})
    return "PATCH", applied(STATUS, manager), body, APPLY


BEYOND: Final[dict[str, Request]] = {
    "changes the devices": _status(devices=[{"index": 0, "released": True}]),
    "removes the devices": _status(devices=None),
    "adds a device while it confirms": _confirming("gpu-scheduler", devices=[{"index": 7}]),
    "changes the number of GPUs": _status(gpus=99),
    "changes the allocations": _status(allocated=3, allocations=[]),
    "says that the node is ready": _status(conditions=[READY]),
    "adds a condition of another type": _status(conditions=[{**READY, "type": "Mine"}]),
    "drops what the controller has applied": _confirming("gpu-scheduler-controller"),
    "drops what the monitor has applied": _confirming("gpu-scheduler-monitor"),
    "removes the status": ("PATCH", STATUS, {"status": None}, MERGE),
}


@pytest.mark.promise("cordon-4")
@pytest.mark.parametrize("what", BEYOND)
def test_the_scheduler_writes_only_its_confirmation(cluster: InstalledCluster, cordoned: Object, what: str) -> None:
    """Of a GPUNode's status, its stolen token writes nothing else."""
    refused = refusal(sent(cluster, cluster.account("gpu-scheduler"), BEYOND[what]))

    assert refused.endswith(denial("scheduler", "a scheduler writes another field of a GPUNode's status"))
    assert stored(cluster)["status"] == cordoned["status"]


@pytest.mark.promise("cordon-4")
@pytest.mark.parametrize("part", [{"labels": {"spy": "yes"}}, {"finalizers": ["example.com/never"]}], ids=list)
def test_a_confirmation_carries_nothing_else(cluster: InstalledCluster, cordoned: Object, part: Object) -> None:
    """The API server ignores metadata that is written through the status."""
    body = {"metadata": part, "status": {"conditions": [_condition(cordoned, "Ready"), CONFIRMED]}}

    done, answer = cluster.account("gpu-scheduler").merge(STATUS, body)

    assert done in {200, 403}, answer
    assert part.keys().isdisjoint(stored(cluster)["metadata"])


def test_the_scheduler_confirms_by_an_apply(cluster: InstalledCluster, cordoned: Object, free: str) -> None:
    """With a status and without one. What a stolen token confirms need not be obeyed, and the scheduler corrects it."""
    cluster.kube.create(ALL, whole("node4", spec("node4")))
    for path, name in ((STATUS, "node2"), (f"{free}/status", "node4")):
        body = whole(name, {"status": {"conditions": [CONFIRMED]}})
        done, answer = cluster.account("gpu-scheduler").call("PATCH", applied(path, "gpu-scheduler"), body, APPLY)
        assert done == 200, answer
        assert _condition(answer, "Cordoned")["observedGeneration"] == 99

    def corrected() -> bool:
        same = {"lastTransitionTime": SINCE}
        return _condition(stored(cluster), "Cordoned") | same == _condition(cordoned, "Cordoned") | same

    eventually("the scheduler confirms what is true", corrected)
    after = stored(cluster)
    assert {key: after["status"][key] for key in ("devices", "allocated")} == {
        key: cordoned["status"][key] for key in ("devices", "allocated")
    }


def test_the_monitor_reports_what_is_cordoned(cluster: InstalledCluster, cordoned: Object) -> None:
    """Its apply, which has no cordons, removes none."""
    monitor = cluster.monitor("node2")
    _report(monitor)
    body = whole("node2", {"status": {"gpus": 4, "devices": [{"index": 1, "released": True}]}})
    assert monitor.call("PATCH", applied(STATUS, "gpu-scheduler-monitor"), body, APPLY)[0] == 200

    after = stored(cluster)
    assert after["spec"] == cordoned["spec"]
    assert after["status"]["devices"] == body["status"]["devices"]
    assert _condition(after, "Cordoned") == _condition(cordoned, "Cordoned")


@pytest.mark.promise("cordon-3")
def test_the_controller_reports_and_deletes_what_is_not_cordoned(
    cluster: InstalledCluster, cordoned: Object, free: str
) -> None:
    """Its apply keeps the confirmation, and a GPUNode without cordons goes."""
    controller = cluster.account("gpu-scheduler-controller")
    body = whole("node2", {"status": {"allocated": 2, "allocations": [], "conditions": [READY]}})
    done, answer = controller.call("PATCH", applied(STATUS, "gpu-scheduler-controller"), body, APPLY)
    assert done == 200, answer
    assert _condition(answer, "Cordoned") == _condition(cordoned, "Cordoned")
    cluster.kube.create(ALL, whole("node4", spec("node4")))

    made = stored(cluster, free)["metadata"]
    done, answer = controller.call("DELETE", free, {"preconditions": {"uid": made["uid"]}})

    assert done == 200, answer
    assert not stored(cluster, free)


@pytest.mark.promise("cordon-1")
def test_a_monitor_can_hold_up_a_confirmation_and_no_cordon(
    cluster: InstalledCluster, tenant: Tenant, cordoned: Object
) -> None:
    """It can write into managedFields that its count is the scheduler's, whose apply would then remove the count.

    The operator does not learn that the card may be pulled. No pod gets it, though.
    """
    fields = [_with_count(each) for each in cordoned["metadata"]["managedFields"] if not _of_monitor(each)]
    done, answer = cluster.monitor("node2").merge(NODE, {"metadata": {"managedFields": fields}})
    assert done == 200, answer
    failed = text_of("the scheduler cannot confirm cordons")
    before = cluster.scheduler.count(failed)

    cordons = [*cordoned["spec"]["cordoned"], entry("2", "admin")]
    cluster.kube.patch(NODE, {"spec": {"cordoned": cordons}})

    eventually("the scheduler says so", lambda: cluster.scheduler.count(failed) > before, seconds=20)
    tenant.kube.create(tenant.pods, objects.pod("train-0", "0=node2:2"))
    tenant.namespace.wait_message("train-0", "GpuCordoned: ")
    generation = stored(cluster)["metadata"]["generation"]
    assert _condition(stored(cluster), "Cordoned")["observedGeneration"] < generation
    # The remedy: who may write the GPUNode empties the field, and the managers write theirs again.
    cluster.kube.patch(NODE, {"metadata": {"managedFields": [{}]}})
    eventually(
        "it is confirmed",
        lambda: _condition(stored(cluster), "Cordoned")["observedGeneration"] == generation,
        seconds=20,
    )


def _of_monitor(each: Object) -> bool:
    return each["manager"] == "gpu-scheduler-monitor" and each.get("subresource") == "status"


def _with_count(each: Object) -> Object:
    if each["manager"] != "gpu-scheduler":
        return each
    return {**each, "fieldsV1": {"f:status": {**each["fieldsV1"]["f:status"], "f:gpus": {}}}}


def test_a_gpunode_of_the_largest_size_ends_no_program(cluster: InstalledCluster, cordoned: Object) -> None:
    """A monitor makes it that large; scheduler and controller, which read all of them, go on."""
    devices = [{"index": index, "model": "x" * 10_000} for index in range(120)]
    body = whole("node2", {"status": {"gpus": 120, "devices": devices}})
    done, answer = cluster.monitor("node2").call("PATCH", applied(STATUS, "gpu-scheduler-monitor"), body, APPLY)
    assert done == 200, answer

    cluster.kube.patch(NODE, {"spec": {"cordoned": [*cordoned["spec"]["cordoned"], entry("2", "admin")]}})

    def answered() -> bool:
        found = stored(cluster)
        seen = {_condition(found, kind)["observedGeneration"] for kind in ("Cordoned", "Ready")}
        return seen == {found["metadata"]["generation"]}

    eventually("both have answered", answered, seconds=20)


EVICTION: Final = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "any"}}
TENANTS: Final[dict[str, Request]] = {
    "reads it": ("GET", NODE, None, JSON),
    "lists all": ("GET", ALL, None, JSON),
    "confirms": ("PATCH", STATUS, {"status": {"conditions": [CONFIRMED]}}, MERGE),
    "evicts another namespace's pod": ("POST", "/api/v1/namespaces/default/pods/any/eviction", EVICTION, JSON),
    "evicts a pod of the system": (
        "POST",
        f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/pods/any/eviction",
        EVICTION,
        JSON,
    ),
    **CHANGES,
}


@pytest.mark.promise("cordon-4")
def test_a_tenant_reaches_no_gpunode(cluster: InstalledCluster, tenant: Tenant, cordoned: Object) -> None:
    """RBAC alone refuses: GPUNodes belong to no namespace."""
    for what, request in TENANTS.items():
        refused = refusal(sent(cluster, tenant.kube, request))
        assert f'User "system:serviceaccount:{tenant.namespace.name}:tenant" cannot ' in refused, what

    assert stored(cluster)["spec"] == cordoned["spec"]
    assert not stored(cluster, FREE)


@pytest.mark.promise("cordon-4")
def test_a_tenant_grants_itself_no_right_to_cordon(tenant: Tenant) -> None:
    """Kubernetes refuses a Role with a right that its author lacks, and a binding to a ClusterRole with such."""
    roles = f"{RBAC}/namespaces/{tenant.namespace.name}"
    role = {"metadata": {"name": "spy"}, "rules": [rights("gpunodes", "cordon")]}
    operates = binding("spy", "ClusterRole", "gpu-scheduler-operator", TENANT, tenant.namespace.name)
    for path, body in (("roles", role), ("rolebindings", operates)):
        refused = refusal(tenant.call("POST", f"{roles}/{path}", body))
        assert "is attempting to grant RBAC permissions not currently held" in refused

    assert "cannot create resource" in refusal(tenant.call("POST", f"{RBAC}/clusterrolebindings", operates))


def _one(device: str, **more: Any) -> Object:
    return spec("node4", entry(device, "admin", **more))


DEVICE: Final = text_of("a cordon names no device")
WRONG: Final[dict[str, tuple[Object, str]]] = {
    "an index with a leading zero": (_one("01"), DEVICE),
    "a word as device": (_one("all"), DEVICE),
    "no UUID": (_one("GPU-xyz"), DEVICE),
    "a UUID in capitals": (_one(objects.gpu(10).upper()), DEVICE),
    "two devices in one": (_one("0,1"), DEVICE),
    "a device and a line break": (_one("0\n"), DEVICE),
    "a negative index": (_one("-1"), DEVICE),
    "an index as a number": (spec("node4", {**entry("0", "admin"), "device": 0}), "must be of type string"),
    "an empty device": (_one(""), "should be at least 1 chars long"),
    "no device": (spec("node4", {"reason": "x", "by": "admin", "since": SINCE}), "spec.cordoned[0].device: Required"),
    "a long reason": (_one("0", reason="x" * 300), "spec.cordoned[0].reason: Too long"),
    "an empty reason": (_one("0", reason=""), "spec.cordoned[0].reason"),
    "no reason": (spec("node4", {"device": "0", "by": "admin", "since": SINCE}), "reason: Required value"),
    "no name": (spec("node4", {"device": "0", "reason": "x", "since": SINCE}), "by: Required value"),
    "an end that is no time": (_one("0", until="tomorrow"), "until in body must be of type date-time"),
    "an end that is a duration": (_one("0", until="8h"), "until in body must be of type date-time"),
    "a start that is no time": (_one("0", since="now"), "since in body must be of type date-time"),
    "a device twice": (spec("node4", *[entry("0", "admin")] * 2), "Duplicate value"),
    "too many": (spec("node4", *(entry(str(n), "admin") for n in range(65))), "must have at most 64 items"),
    "an entry that is null": ({"spec": {"nodeName": "node4", "cordoned": [None]}}, "must be of type object"),
    "no list": ({"spec": {"nodeName": "node4", "cordoned": {"0": "x"}}}, "must be of type array"),
    "no spec": ({}, "spec: Required value"),
    "a spec that is null": ({"spec": None}, "spec: Required value"),
    "a spec that is a word": ({"spec": "x"}, "must be of type object"),
    "no node": ({"spec": {"cordoned": [entry("0", "admin")]}}, "spec.nodeName: Required value"),
    "another node's name": (spec("node3", entry("0", "admin")), text_of("a GPUNode has another name than its node")),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_cordon_is_refused_by_the_schema(
    cluster: InstalledCluster, writer: KubeClient, free: str, what: str
) -> None:
    """With the field and the rule, for who may cordon and who may not; the policies never err."""
    body, message = WRONG[what]
    for kube in (cluster.kube, writer):
        status, answer = kube.call("POST", ALL, whole("node4", body))
        assert status == 422, answer
        assert message in answer["message"]
        status, answer = kube.call("PATCH", applied(free, "spy"), whole("node4", body), APPLY)
        # An apply whose entries cannot be told apart is answered with 500.
        assert status in {422, 500}, answer
        assert "resulted in error" not in answer["message"]

    assert not stored(cluster, free)


FREE_STATUS: Final = f"{FREE}/status"


def _post(**parts: Any) -> Request:
    return "POST", ALL, {**whole("node4"), **parts}, JSON


def _on(path: str, body: Object) -> Request:
    return "PATCH", path, body, MERGE


ODD: Final[dict[str, Request]] = {
    "creates one with null for cordons": _post(spec={"nodeName": "node4", "cordoned": None}),
    "creates one with an empty list": _post(spec={"nodeName": "node4", "cordoned": []}),
    "creates one with a null status": _post(**spec("node4"), status=None),
    "creates one without a name": _post(spec=NEW["spec"], metadata={"generateName": "node4-"}),
    "adds an empty list": _on(FREE, {"spec": {"cordoned": []}}),
    "adds null": _on(FREE, {"spec": {"cordoned": None}}),
    "takes the spec away": _on(FREE, {"spec": None}),
    "replaces the spec by a word": _on(FREE, {"spec": "x"}),
    "takes the metadata away": _on(FREE, {"metadata": None}),
    "takes the status away": _on(FREE_STATUS, {"status": None}),
    "takes the conditions away": _on(FREE_STATUS, {"status": {"conditions": None}}),
    "writes a condition that is null": _on(FREE_STATUS, {"status": {"conditions": [None]}}),
    "writes a condition without a type": _on(FREE_STATUS, {"status": {"conditions": [{}]}}),
    "writes conditions that are a word": _on(FREE_STATUS, {"status": {"conditions": "x"}}),
    "applies nothing": ("PATCH", applied(FREE, "spy"), whole("node4"), APPLY),
    "applies nothing to the status": ("PATCH", applied(FREE_STATUS, "spy"), whole("node4"), APPLY),
    "deletes all of no name": ("DELETE", f"{ALL}?fieldSelector=metadata.name=none", None, JSON),
    "deletes all of one name": ("DELETE", f"{ALL}?fieldSelector=metadata.name=node4", None, JSON),
    "deletes all": ("DELETE", ALL, None, JSON),
}


@pytest.mark.parametrize("what", ODD)
def test_no_odd_object_makes_a_policy_err(
    cluster: InstalledCluster, writer: KubeClient, operator: KubeClient, free: str, what: str
) -> None:
    """An expression that errs would refuse honest writes too. Everybody is answered, our own accounts among them."""
    makes = ODD[what][0] == "POST"
    ours = (cluster.account("gpu-scheduler"), cluster.account("gpu-scheduler-controller"), cluster.monitor("node4"))
    for kube in (writer, operator, *ours, cluster.kube):
        if makes:
            cluster.kube.call("DELETE", free)
        else:
            cluster.kube.call("POST", ALL, whole("node4", spec("node4")))
        status, answer = sent(cluster, kube, ODD[what])
        assert "resulted in error" not in str(answer)
        assert status < 500, answer
