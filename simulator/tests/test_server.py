"""The API server in memory answers as the real one does, as far as a scheduler sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from simulator.api_server.server import PAGE, ApiRequest, Server
from simulator.api_server.store import ExpiredVersionError, Selector, event_of
from simulator.cluster.objects import BY_FIELD, pod

if TYPE_CHECKING:
    from gpu_scheduler.kube.http.client import ApiResponse

BINDING = "/api/v1/namespaces/default/pods/train/binding"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/gpu-scheduler-system/leases"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
OURS = Selector("spec.schedulerName=gpu-scheduler")
OTHERS = Selector("spec.schedulerName!=gpu-scheduler,spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed")


def made(name: str = "train", uid: str = "uid-1", **more: Any) -> dict[str, Any]:
    return pod(name, uid, {}, BY_FIELD, **more)


def ask(server: Server, verb: str, path: str, body: object = None, **query: str) -> ApiResponse:
    return server.answer(ApiRequest("one", verb, path, query, None if body is None else msgspec.json.encode(body)))


def bind(server: Server, uid: str | None = "uid-1") -> int:
    meta = {"annotations": {"agentaflow.gpu/assigned-devices": "0"}} | ({} if uid is None else {"uid": uid})
    return ask(server, "POST", BINDING, {"metadata": meta, "target": {"name": "node1"}}).status


def test_a_pod_is_bound_once_with_its_annotations() -> None:
    """Node and devices are set in one write. A second bind is a conflict."""
    server = Server()
    server.pods.put("default/train", made())

    assert (bind(server), bind(server)) == (201, 409)
    bound = server.pods.entries["default/train"].object
    assert bound["spec"]["nodeName"] == "node1"
    assert bound["metadata"]["annotations"]["agentaflow.gpu/assigned-devices"] == "0"


@pytest.mark.parametrize(
    ("uid", "pod_is", "status"),
    [
        ("uid-1", None, 404),
        ("uid-0", {}, 409),
        (None, {}, 201),
        ("uid-1", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, 409),
        ("uid-1", {"status": {"phase": "Failed"}}, 409),
    ],
    ids=["no pod", "another uid", "no uid", "being deleted", "ended"],
)
def test_a_pod_that_cannot_be_bound_is_refused(uid: str | None, pod_is: dict[str, Any] | None, status: int) -> None:
    """Each case has its status code."""
    server = Server()
    if pod_is is not None:
        fresh = made()
        server.pods.put("default/train", {key: {**fresh[key], **pod_is.get(key, {})} for key in fresh})

    assert bind(server, uid) == status


def test_the_pages_of_a_list_have_one_version() -> None:
    """Later objects are not in it, and an old page has expired."""
    server = Server()
    for number in range(PAGE + 1):
        server.pods.put(f"default/p{number}", made(f"p{number}"))
    first = msgspec.json.decode(ask(server, "GET", "/api/v1/pods").body)
    server.pods.put("default/late", made("late"))
    following = first["metadata"]["continue"]
    second = msgspec.json.decode(ask(server, "GET", "/api/v1/pods", **{"continue": following}).body)

    assert [len(page["items"]) for page in (first, second)] == [PAGE, 1]
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
    assert ask(server, "GET", "/api/v1/pods", **{"continue": following}).status == 410


def test_a_watch_reports_pods_that_enter_and_leave_its_selector() -> None:
    """A foreign pod that ends leaves the selector of pods that use a node's resources."""
    server = Server()
    types: list[tuple[str | None, str | None]] = []

    def type_of(line: bytes | None) -> str | None:
        return None if line is None else msgspec.json.decode(line)["type"]

    server.pods.watchers.append(
        lambda change: types.append((type_of(event_of(change, OURS)), type_of(event_of(change, OTHERS))))
    )
    other = made("other", scheduler="default-scheduler")
    server.pods.put("default/other", other)
    server.pods.put("default/other", {**other, "spec": {**other["spec"], "nodeName": "node1"}})
    server.pods.put("default/other", {**other, "status": {"phase": "Failed"}})
    server.pods.put("default/train", made())
    server.pods.remove("default/train")

    assert types == [(None, None), (None, "ADDED"), (None, "DELETED"), ("ADDED", None), ("DELETED", None)]


def test_a_watch_resumes_unless_its_version_has_expired() -> None:
    """A version expires after a compaction."""
    server = Server()
    server.pods.put("default/train", made())
    version = server.pods.version
    server.pods.remove("default/train")

    assert [change.after for change in server.pods.since(version)] == [None]
    server.pods.forget()
    with pytest.raises(ExpiredVersionError):
        server.pods.since(version)


def test_an_update_of_a_lease_needs_its_version() -> None:
    """The second writer gets a conflict."""
    server = Server()
    lease = {"metadata": {"name": "gpu-scheduler", "namespace": "gpu-scheduler-system"}, "spec": {}}
    path = f"{LEASES}/gpu-scheduler"

    assert ask(server, "GET", path).status == 404
    assert [ask(server, "POST", LEASES, lease).status for _ in range(2)] == [200, 409]
    seen = msgspec.json.decode(ask(server, "GET", path).body)
    assert [ask(server, "PUT", path, seen).status for _ in range(2)] == [200, 409]


def test_a_claim_is_created_once_and_patched_at_its_version() -> None:
    """An allocation is cleared before another one is written, and a claim that is deleted is not reserved."""
    server = Server()
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {}}}
    pod_of = {"resource": "pods", "name": "train", "uid": "uid-1"}

    def patch(part: str = "", **body: Any) -> int:
        version = server.resource_claims.entries["default/c"].object["metadata"]["resourceVersion"]
        meta = {"resourceVersion": version} | body.pop("metadata", {})
        return ask(server, "PATCH", f"{CLAIMS}/c{part}", {"metadata": meta, **body}).status

    assert [ask(server, verb, f"{CLAIMS}/c").status for verb in ("GET", "PATCH")] == [404, 404]
    assert [ask(server, "POST", CLAIMS, claim).status for _ in range(2)] == [200, 409]
    assert patch("/status", metadata={"resourceVersion": "1"}, status={}) == 409
    assert patch("/status", status={"reservedFor": [pod_of]}) == 422
    assert patch("/status", status={"allocation": {"devices": {}}, "reservedFor": [pod_of]}) == 200
    assert patch("/status", status={"allocation": {}}) == 422
    assert patch("/status", status={"allocation": None, "reservedFor": None}) == 200
    assert patch(metadata={"finalizers": ["f"]}) == 200
    found = msgspec.json.decode(ask(server, "GET", f"{CLAIMS}/c").body)
    assert (found["metadata"]["finalizers"], found["status"], found["spec"]) == (["f"], {}, claim["spec"])

    assert patch(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}) == 200
    assert patch("/status", status={"allocation": {"devices": {}}, "reservedFor": [pod_of]}) == 422


def test_a_status_keeps_the_conditions_of_others() -> None:
    """Conditions merge by their type. A different uid is a conflict."""
    server = Server()
    fresh = made()
    server.pods.put("default/train", {**fresh, "status": {"phase": "Pending", "conditions": [{"type": "Other"}]}})
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "GpuHeld: no"}
    path = BINDING.replace("binding", "status")

    statuses = [
        ask(server, "PATCH", path, {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}).status
        for uid in ("uid-1", "uid-0")
    ]

    assert statuses == [200, 409]
    assert server.pods.entries["default/train"].object["status"]["conditions"] == [{"type": "Other"}, condition]
