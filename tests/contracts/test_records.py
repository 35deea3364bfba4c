"""Roles record what they applied, prune only from their own record, and remove all of it in a safe order."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any, Final

import pytest

from tests.contracts import roles
from tests.contracts.cluster_modules import load_module, load_part
from tests.contracts.paths import REACHED
from tests.contracts.roles import ROOT
from tests.contracts.tasks import TASKS

Json = dict[str, Any]

kubectl, records = load_part("kubectl"), load_part("records")
recording = load_module("plugins", "modules", "applied_record.py")
removal = load_module("plugins", "modules", "removed_objects.py")
Reference = kubectl.Reference
_Cluster: Any = removal.Cluster

SYSTEM: Final = "gpu-scheduler-system"
OURS: Final = {"app.kubernetes.io/part-of": "gpu-scheduler"}
SERVICE: Final = Reference("v1", "Service", SYSTEM, "gpu-scheduler")
OLD: Final = Reference("v1", "ConfigMap", SYSTEM, "gpu-scheduler-old")
NEW: Final = Reference("v1", "ConfigMap", SYSTEM, "gpu-scheduler-new")
NAMESPACE: Final = Reference("v1", "Namespace", "", SYSTEM)
RECORD: Final = Reference("v1", "ConfigMap", SYSTEM, "gpu-scheduler-applied-scheduler")


def body_of(reference: Any, uid: str = "", **metadata: object) -> Json:
    """Return an object with our label."""
    given = {"name": reference.name, "namespace": reference.namespace, "uid": uid or f"uid-of-{reference.name}"}
    return {
        "apiVersion": reference.api_version,
        "kind": reference.kind,
        "metadata": {**given, "labels": OURS, **metadata},
    }


class FakeCluster(_Cluster):  # type: ignore[misc]  # the module is loaded from its file
    """Objects by path. It records the deletions, and can fail at one."""

    def __init__(self, *bodies: Json) -> None:
        super().__init__(["kubectl"])
        self.objects = {Reference.of(body).path: body for body in bodies}
        self.deleted: list[str] = []
        self.written = 0
        self.fails_at = ""

    def get(self, path: str) -> Json | None:
        """Return the object at this path."""
        return self.objects.get(path)

    def get_all(self, references: Any) -> dict[Any, Json]:
        """Return the objects that exist."""
        return {each: self.objects[each.path] for each in references if each.path in self.objects}

    def delete(self, reference: Any, uid: str) -> bool:
        """Delete the object, or mark it as deleted where it has finalizers."""
        if str(reference) == self.fails_at:
            raise kubectl.ClusterError("interrupted")
        found = self.objects[reference.path]
        assert found["metadata"]["uid"] == uid
        self.deleted.append(str(reference))
        if found["metadata"].get("finalizers"):
            found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            return False
        del self.objects[reference.path]
        return True

    def write(self, body: Json) -> None:
        """Store the object."""
        self.written += 1
        self.objects[Reference.of(body).path] = {**body, "metadata": {**body["metadata"], "uid": "uid-of-record"}}

    def contents(self, namespace: str) -> list[Json]:
        """Return the objects of a namespace."""
        return [body for body in self.objects.values() if body["metadata"].get("namespace") == namespace]

    def names(self) -> set[str]:
        """Return what exists, in words."""
        return {str(Reference.of(body)) for body in self.objects.values()}


class ForbiddenCluster(_Cluster):  # type: ignore[misc]  # the module is loaded from its file
    """A cluster whose user may list a namespace only by a grant. It records what kubectl is asked to do."""

    def __init__(self, answer: str = '{"items": []}', *, check: bool = False) -> None:
        super().__init__(["kubectl"], check=check)
        self.grants: set[str] = set()
        self.calls: list[str] = []
        self._answer = answer

    def write(self, body: Json) -> None:
        """Store a grant."""
        self.calls.append(f"write {body['kind']}")
        self.grants.add(body["kind"])

    def run(self, *words: str) -> str:
        """Answer, or raise as kubectl does."""
        self.calls.append(words[0])
        match words[0]:
            case "auth":
                return '{"status": {"userInfo": {"username": "somebody"}}}'
            case "delete":
                self.grants.clear()
            case "get" if self.grants != {"Role", "RoleBinding"}:
                raise kubectl.ClusterError("Error from server (Forbidden): secrets is forbidden")
            case "get" if not self._answer:
                raise kubectl.ClusterError("the API server gave no answer within 60 s")
        return self._answer


@pytest.mark.promise("down-5")
@pytest.mark.parametrize("answer", ['{"items": []}', ""], ids=["listed", "not listed"])
def test_the_right_to_list_a_namespace_is_taken_back(answer: str) -> None:
    """The namespace may stay, because of objects of others; the grant does not, whether the list succeeded or not."""
    cluster = ForbiddenCluster(answer)
    with nullcontext() if answer else pytest.raises(kubectl.ClusterError, match="no answer"):
        cluster.contents(SYSTEM)
    assert cluster.calls[-3:] == ["write RoleBinding", "get", "delete"]
    assert cluster.grants == set()


@pytest.mark.promise("down-5")
def test_check_mode_grants_nothing() -> None:
    """It says why the namespace's contents are unknown."""
    cluster = ForbiddenCluster(check=True)
    with pytest.raises(kubectl.ClusterError, match="Forbidden"):
        cluster.contents(SYSTEM)
    assert cluster.calls == ["api-resources", "get"]


def applied(cluster: FakeCluster, *references: Any, check: bool = False) -> Json:
    """Run the role: it applies these objects, and records them."""
    for reference in references:
        if not check:
            cluster.objects.setdefault(reference.path, body_of(reference))
    results = {"results": [{"result": cluster.objects.get(each.path) or body_of(each)} for each in references]}
    record = records.Record(cluster, "scheduler", SYSTEM)
    result: Json = recording.prune(record, cluster, dict(recording.applied_objects([results])), check=check)
    return result


def removed(cluster: FakeCluster, *listed: Any, check: bool = False, **given: object) -> Json:
    """Remove the role's objects."""
    defaults = {"objects": [body_of(each) for each in listed], "named": [], "only_kinds": [], "spared_kinds": []}
    record = records.Record(cluster, "scheduler", SYSTEM)
    result: Json = removal.remove(record, cluster, {**defaults, "wait_timeout": 0, **given}, check=check)
    return result


@pytest.mark.promise("up-6")
def test_what_a_role_no_longer_applies_is_deleted() -> None:
    """An upgrade deletes what the former version had; what no record has stays, and a repeated run does nothing."""
    cluster = FakeCluster(body_of(Reference("v1", "ConfigMap", SYSTEM, "unrecorded")))
    applied(cluster, SERVICE, OLD)

    upgraded = applied(cluster, SERVICE, NEW)
    written = cluster.written
    repeated = applied(cluster, SERVICE, NEW)

    assert (upgraded["changed"], upgraded["deleted"]) == (True, [str(OLD)])
    assert cluster.names() == {str(SERVICE), str(NEW), str(RECORD), f"ConfigMap {SYSTEM}/unrecorded"}
    assert (repeated["changed"], repeated["deleted"], cluster.written) == (False, [], written)


@pytest.mark.promise("up-6")
@pytest.mark.parametrize(
    ("reference", "now"),
    [
        pytest.param(OLD, {"uid": "another"}, id="an object that somebody made anew under the same name"),
        pytest.param(OLD, {"labels": {}}, id="an object that has lost our label and our field manager"),
        pytest.param(NAMESPACE, {}, id="a namespace, with whatever is in it"),
        pytest.param(
            Reference("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "gpunodes.agentaflow.io"),
            {},
            id="a kind, with all its objects",
        ),
        pytest.param(Reference("v1", "Secret", SYSTEM, "gpu-scheduler-webhook-ca"), {}, id="the CA"),
        pytest.param(Reference("v1", "Secret", SYSTEM, "gpu-scheduler-webhook-tls"), {}, id="the serving pair"),
    ],
)
def test_nothing_else_is_pruned(reference: Any, now: Json) -> None:
    """These stay where a role applied them once and does not any more."""
    cluster = FakeCluster()
    applied(cluster, SERVICE, reference)
    cluster.objects[reference.path]["metadata"].update(now)

    applied(cluster, SERVICE)

    assert cluster.deleted == []
    assert str(reference) in cluster.names()


def test_what_is_never_pruned_stays_in_the_record() -> None:
    """So removal finds a namespace of a former inventory, and a repeated run has no change."""
    cluster = FakeCluster()
    applied(cluster, SERVICE, NAMESPACE)
    applied(cluster, SERVICE)

    assert applied(cluster, SERVICE)["changed"] is False
    assert NAMESPACE in records.Record(cluster, "scheduler", SYSTEM).objects


@pytest.mark.promise("up-6")
def test_interrupted_pruning_is_finished_by_the_next_run() -> None:
    """Until it is pruned the record has what was applied before and what was applied now."""
    cluster = FakeCluster()
    applied(cluster, SERVICE, OLD)
    cluster.fails_at = str(OLD)
    with pytest.raises(kubectl.ClusterError):
        applied(cluster, SERVICE, NEW)
    cluster.fails_at = ""

    applied(cluster, SERVICE)

    assert cluster.names() == {str(SERVICE), str(RECORD)}


def test_check_mode_shows_what_would_be_pruned() -> None:
    """It changes nothing, and the difference of the record is shown."""
    cluster = FakeCluster()
    applied(cluster, SERVICE, OLD)
    before = cluster.names()

    result = applied(cluster, SERVICE, NEW, check=True)

    assert (result["changed"], result["deleted"]) == (True, [str(OLD)])
    assert (cluster.names(), cluster.deleted) == (before, [])
    assert str(OLD.where) in result["diff"]["before"]
    assert str(OLD.where) not in result["diff"]["after"]


@pytest.mark.parametrize("line", ["v1 Service gpu-scheduler", "v1 PersistentVolume disk uid", "???"])
def test_record_that_cannot_be_read_is_refused(line: str) -> None:
    """Nothing is pruned by it: the message has the line, an example, and what to do. No kind but ours can be named."""
    cluster = FakeCluster({**body_of(RECORD), "data": {"objects": f"{line}\n"}})

    with pytest.raises(kubectl.ClusterError, match=r"cannot read ConfigMap .*example: .*delete the ConfigMap") as found:
        applied(cluster, SERVICE)

    assert repr(line) in str(found.value)
    assert cluster.deleted == []


def test_role_that_applies_nothing_any_more_leaves_no_record() -> None:
    """An empty record is deleted: so `injection: policy` clears what the webhook had."""
    cluster = FakeCluster()
    applied(cluster, SERVICE, OLD)

    applied(cluster)

    assert cluster.names() == set()
    assert applied(cluster)["changed"] is False


@pytest.mark.promise("down-5")
def test_removal_takes_record_and_list_in_order() -> None:
    """Workloads go before their rights, the namespace last. What only an interrupted run applied goes, too."""
    deployment = Reference("apps/v1", "Deployment", SYSTEM, "gpu-scheduler")
    role = Reference("rbac.authorization.k8s.io/v1", "ClusterRole", "", "gpu-scheduler")
    cluster = FakeCluster(*map(body_of, (NAMESPACE, role, deployment)))
    applied(cluster, OLD)

    result = removed(cluster, NAMESPACE, role, deployment)

    assert cluster.names() == set()
    assert result["deleted"] == [*map(str, (deployment, OLD, role, NAMESPACE)), str(RECORD)]
    assert removed(cluster, NAMESPACE, role, deployment)["changed"] is False


@pytest.mark.promise("down-5")
def test_removal_leaves_what_others_made() -> None:
    """An object without our label and field manager stays, and so does a namespace that has one; both are named."""
    theirs = body_of(Reference("v1", "ConfigMap", SYSTEM, "theirs"), labels={})
    defaults = body_of(Reference("v1", "ServiceAccount", SYSTEM, "default"), labels={})
    taken = body_of(SERVICE, labels={})
    cluster = FakeCluster(body_of(NAMESPACE), theirs, defaults, taken)

    result = removed(cluster, NAMESPACE, SERVICE)

    assert (result["changed"], cluster.deleted) == (False, [])
    assert [each.partition(":")[0] for each in result["left"]] == [str(SERVICE), str(NAMESPACE)]
    assert "ConfigMap theirs, Service gpu-scheduler" in result["left"][1]


def test_removal_in_check_mode_changes_nothing() -> None:
    """It lists what would go."""
    cluster = FakeCluster()
    applied(cluster, SERVICE)
    before = cluster.names()

    assert removed(cluster, check=True)["deleted"] == [str(SERVICE), str(RECORD)]
    assert cluster.names() == before


def test_removal_that_hangs_names_what_holds_it() -> None:
    """After its time it fails with the object and its finalizers, and a later run goes on from there."""
    held = body_of(SERVICE, finalizers=["example.com/balancer"])
    cluster = FakeCluster(held)
    applied(cluster, SERVICE)

    with pytest.raises(kubectl.ClusterError, match=r"Service .* being deleted since .*: finalizers example.com/bal"):
        removed(cluster)
    assert str(RECORD) in cluster.names()
    cluster.objects.pop(SERVICE.path)

    removed(cluster)
    assert cluster.names() == set()


def _installing() -> list[str]:
    return sorted({task.role for task in TASKS if task.role and task.module == "applied_objects"})


@pytest.mark.parametrize("role", _installing())
def test_every_kind_of_a_role_has_its_place_in_the_order(role: str) -> None:
    """A kind that is missing there could be neither recorded nor removed."""
    texts = [path.read_text() for path in (ROOT / "roles" / role).glob("[tf]*/*.y*ml*")]
    kinds = {kind for text in texts for kind in re.findall(r"^kind: (\w+)$", text, flags=re.MULTILINE)}

    assert kinds - set(records.KINDS) == set()


@pytest.mark.parametrize("role", _installing())
def test_role_that_applies_objects_records_and_removes_them(role: str) -> None:
    """It records under its own name, and `make uninstall` comes to its removal."""
    ours = [task for task in TASKS if task.role == role and isinstance(task.arguments, dict)]
    named = [task.module for task in ours if re.search(rf"\b{role}\b", str(task.arguments.get("role")))]
    reached = {each.task.file for each in REACHED if each.play == "playbooks/uninstall.yml"}

    assert {"applied_objects", "applied_record"} & set(named)
    assert "removed_objects" in named
    assert f"roles/{role}/tasks/remove.yml" in reached


def test_removal_stops_the_questions_before_the_answers() -> None:
    """Registrations go before the webhook, policies after all that runs, and the namespace last."""
    (play,) = roles.read("playbooks", "uninstall.yml")
    key = "ansible.builtin.import_role"
    order = [task[key]["name"] for task in play["tasks"] if task.get(key, {}).get("tasks_from") == "remove"]
    first = roles.read("roles", "webhook", "tasks", "remove.yml")[0]["block"][0]["removed_objects"]

    workloads = ["check", "webhook", "observability", "controller", "scheduler", "driver", "monitor"]
    assert order == [*workloads, "network_policies", "policies", "crds", "certificates"]
    assert first["only_kinds"] == ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
