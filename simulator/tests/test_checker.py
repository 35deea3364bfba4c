"""The checker reports exactly the invariant that a forged object violates."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from simulator.api_server.server import ApiRequest, Server
from simulator.clock import Timeline
from simulator.cluster.objects import BY_FIELD, literal, node, pod
from simulator.invariants.checker import BrokenError, Checker

MAP = "0=node1:0,1\n1=node1:1\n2=node1:2\n"
OWNER = ("StatefulSet", "train")
OURS = "gpu-scheduler-c"
LEASE: dict[str, Any] = {
    "metadata": {"name": "gpu-scheduler", "namespace": "gpu-scheduler-system"},
    "spec": {"holderIdentity": "one"},
}


class ForgedCluster:
    """A cluster of two nodes whose objects are forged by hand."""

    def __init__(self) -> None:
        self.timeline, self.server = Timeline(), Server()
        self.checker = Checker(self.timeline, self.server)
        for name in ("node1", "node2"):
            self.server.nodes.put(f"/{name}", node(name, 8))
        self.server.leases.put("gpu-scheduler-system/gpu-scheduler", dict(LEASE))

    def put(self, name: str, **more: Any) -> dict[str, Any]:
        made = made_of(name, **more)
        self.server.pods.put(f"default/{name}", made)
        return made

    def bind(self, name: str, node_name: str, devices: str, by: str = "one", **assigned: str) -> int:
        given = {"devices": devices, "node": node_name, "by": by, **assigned}
        annotations = {f"agentaflow.gpu/assigned-{key}": value for key, value in given.items()}
        body = {"metadata": {"annotations": annotations}, "target": {"name": node_name}}
        return self.ask(name, "binding", body)

    def allocate(self, name: str, node_name: str, device: str, *pods: str) -> None:
        """Allocate the device to a claim of this name, and reserve it for these pods."""
        results = [{"driver": "d", "pool": node_name, "device": f"gpu-{device}"}]
        reserved = [{"resource": "pods", "name": each, "uid": f"uid-{each}"} for each in pods]
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
        made = {"metadata": {"name": name, "namespace": "default"}, "spec": {}, "status": status}
        self.server.resource_claims.put(f"default/{name}", made)

    def ask(self, name: str, end: str, body: object) -> int:
        path = f"/api/v1/namespaces/default/pods/{name}/{end}"
        return self.server.answer(ApiRequest("one", "POST", path, {}, msgspec.json.encode(body))).status


def made_of(
    name: str,
    *,
    env: str | None = None,
    text: str = "",
    request: dict[str, str] | None = None,
    claims: tuple[str, ...] = (),
) -> dict[str, Any]:
    annotations = {f"agentaflow.gpu/{key}": value for key, value in (request or {}).items()}
    if text:
        annotations["gpu-scheduling-map"] = text
    index = name.rpartition("-")[2]
    labels = {"apps.kubernetes.io/pod-index": index} if text else {}
    owner = OWNER if text else None
    return pod(
        name, f"uid-{name}", annotations, literal(env) if env else BY_FIELD, labels=labels, owner=owner, claims=claims
    )


def test_allowed_binds_are_no_violation() -> None:
    """Two lines of one map may share a device, and so may two pods that share memory."""
    cluster = ForgedCluster()
    for name, devices, index in (("train-0", "0,1", "0"), ("train-1", "1", "1")):
        cluster.put(name, env=devices, text=MAP)
        assert cluster.bind(name, "node1", devices, index=index) == 201
    for name in ("a", "b"):
        cluster.put(name, request={"count": "1", "memory": "8000", "exclusive": "false"})
        assert cluster.bind(name, "node2", "3") == 201

    cluster.checker.check()

    assert cluster.checker.binds == 4
    assert list(cluster.checker.waiting()) == []


BIND = {
    "a device that is held": ({"request": {"count": "1"}}, ("node1", "0"), {}, "apart: GPU 0 of node1 is held by"),
    "too few devices": ({"request": {"count": "2"}}, ("node2", "0"), {}, "agree: new: asks for 2"),
    "another node than assigned": (
        {"request": {"count": "1"}},
        ("node2", "0"),
        {"node": "node1"},
        "agree: new: bound to",
    ),
    "other devices than it sees": (
        {"env": "4", "text": "0=node2:4"},
        ("node2", "5"),
        {"index": "0"},
        "agree: new: sees GPUs 4, assigned 5",
    ),
    "the devices of another line": (
        {"text": "0=node2:4\n1=node2:5"},
        ("node2", "5"),
        {"index": "0"},
        "agree: new: line 0 of its map is",
    ),
    "a former leader": (
        {"request": {"count": "1"}},
        ("node2", "0"),
        {"by": "two"},
        "fence: a bind of new comes from two while one holds",
    ),
}


@pytest.mark.parametrize(("fields", "place", "assigned", "message"), BIND.values(), ids=BIND)
def test_a_bind_against_the_rules_is_reported_at_once(
    fields: dict[str, Any], place: tuple[str, str], assigned: dict[str, str], message: str
) -> None:
    """As soon as the API server stores it."""
    cluster = ForgedCluster()
    cluster.put("old", request={"count": "1"})
    assert cluster.bind("old", "node1", "0") == 201
    cluster.put("new", **fields)
    with pytest.raises(BrokenError, match=message):
        cluster.bind("new", *place, **{"by": "one", **assigned})


ISOLATED: dict[str, tuple[list[tuple[str, ...]], str, str]] = {
    "no claim": ([], "GPU-00310003-", "allocated: x has \\('3',\\) of node1, and its claims \\[\\]"),
    "another device": ([(OURS, "node1", "4", "x")], "GPU-00310003-", "allocated: x has"),
    "not reserved for it": ([(OURS, "node1", "3", "y")], "GPU-00310003-", "allocated: x has"),
    "a number for the container": ([(OURS, "node1", "3", "x")], "3", "agree: x: has claims, and sees GPUs 3,"),
    "others came first": (
        [("other", "node1", "3"), (OURS, "node1", "3", "x")],
        "GPU-00310003-",
        "taken: x is bound to a GPU that claim other had before",
    ),
}


@pytest.mark.parametrize(("allocated", "device", "message"), ISOLATED.values(), ids=ISOLATED)
def test_a_bind_without_its_claims_is_reported(allocated: list[tuple[str, ...]], device: str, message: str) -> None:
    """They must be allocated its devices and reserved for it, before another scheduler has allocated these."""
    cluster = ForgedCluster()
    cluster.put("x", request={"count": "1"}, claims=(OURS,))
    for each in allocated:
        cluster.allocate(*each)
    with pytest.raises(BrokenError, match=message):
        cluster.bind("x", "node1", device)


def test_a_claim_is_checked_while_its_pod_holds() -> None:
    """Another scheduler that allocates the device later errs; a cleared allocation is an error of ours."""
    cluster = ForgedCluster()
    cluster.put("x", request={"count": "1"}, claims=(OURS,))
    cluster.allocate(OURS, "node1", "3", "x")
    assert cluster.bind("x", "node1", "GPU-00310003-") == 201
    cluster.allocate("other", "node1", "3")
    cluster.checker.check()
    assert list(cluster.checker.waiting()) == []
    cluster.server.resource_claims.remove(f"default/{OURS}")
    with pytest.raises(BrokenError, match="allocated: x has"):
        cluster.checker.check()


def test_a_claim_that_no_pod_needs_is_reported() -> None:
    """What others have keeps pods from running."""
    cluster = ForgedCluster()
    cluster.put("train-2", env="2", text=MAP)
    cluster.allocate("other", "node1", "2")
    cluster.allocate(OURS, "node1", "4", "train-2")

    assert [line.partition(":")[0] for line in cluster.checker.waiting()] == ["released", "condition"]


OUTDATED: dict[str, tuple[dict[str, Any] | None, int, str]] = {
    "cordoned": ({"cordoned": True}, 0, "node: x was bound to node1, which takes no pods"),
    "not Ready": ({"ready": False}, 0, "node: x was bound to node1, which takes no pods"),
    "gone": (None, 0, "node: x was bound to node1, which takes no pods"),
    "with fewer devices": ({"count": 2}, 0, "node: x was given GPU 3 of node1"),
    "full": ({}, 64, "room: x was bound to node1, where 65 CPUs are taken"),
}


@pytest.mark.parametrize(("state", "cpu", "message"), OUTDATED.values(), ids=OUTDATED)
def test_a_bind_to_an_unsuitable_node_is_reported(state: dict[str, Any] | None, cpu: int, message: str) -> None:
    """After every replica must have received the change. Before that the bind is only late."""
    for seconds in (1, 100):
        cluster = ForgedCluster()
        cluster.timeline.run(200)
        if state is None:
            cluster.server.nodes.remove("/node1")
        else:
            cluster.server.nodes.put("/node1", node("node1", **{"count": 8, **state}))
        other = pod("o", "o", {}, None, scheduler="default-scheduler", node="node1", cpu=cpu)
        cluster.server.pods.put("default/o", other)
        cluster.timeline.run(seconds)
        cluster.put("x", request={"count": "1"})
        if seconds == 1:
            assert cluster.bind("x", "node1", "3") == 201
        else:
            with pytest.raises(BrokenError, match=message):
                cluster.bind("x", "node1", "3")


def test_repeated_binds_of_a_terminating_pod_are_reported() -> None:
    """The API server refuses each of them."""
    cluster = ForgedCluster()
    made = cluster.put("x", request={"count": "1"})
    ending = {**made["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    cluster.server.pods.put("default/x", {**made, "metadata": ending})
    assert cluster.bind("x", "node1", "3") == 409
    cluster.timeline.run(100)
    with pytest.raises(BrokenError, match="ending: a bind of x is tried"):
        cluster.bind("x", "node1", "3")


@pytest.mark.parametrize("status", [{"phase": "Failed"}, {}], ids=["ended", "being deleted"])
def test_a_late_bind_of_an_ended_pod_is_no_violation(status: dict[str, str]) -> None:
    """Its sender knew that the bind cannot be applied any more, and released the lease."""
    cluster = ForgedCluster()
    made = cluster.put("x", request={"count": "1"})
    meta = made["metadata"] if status else {**made["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    cluster.server.pods.put("default/x", {**made, "metadata": meta, "status": {**made["status"], **status}})
    cluster.put("y", request={"count": "1"})
    assert cluster.bind("y", "node1", "0", by="one") == 201
    cluster.server.leases.put("gpu-scheduler-system/gpu-scheduler", {**LEASE, "spec": {"holderIdentity": "two"}})

    assert [cluster.bind(name, "node1", "0", by="one") for name in ("x", "y")] == [409, 409]
    with pytest.raises(BrokenError, match="fence: a bind of y comes from three while two holds"):
        cluster.bind("y", "node1", "0", by="three")


def test_a_line_that_two_pods_hold_is_reported() -> None:
    """Whatever devices they hold."""
    cluster = ForgedCluster()
    for name in ("x", "y"):
        made = pod(name, name, {"gpu-scheduling-map": "0=node1:"}, BY_FIELD, owner=OWNER, generate_name="x-")
        cluster.server.pods.put(f"default/{name}", made)
    cluster.server.pods.entries["default/x"].object["spec"]["nodeName"] = "node1"
    cluster.server.pods.entries["default/x"].object["metadata"]["annotations"]["agentaflow.gpu/assigned-index"] = "0"
    second = cluster.server.pods.entries["default/y"].object
    second["spec"]["nodeName"] = "node1"
    second["metadata"]["annotations"]["agentaflow.gpu/assigned-index"] = "0"
    cluster.server.pods.put("default/y", second)
    with pytest.raises(BrokenError, match="index: 2 pods of"):
        cluster.checker.check()


def test_memory_beyond_the_devices_memory_is_reported() -> None:
    """Three pods are given a device that has room for two."""
    cluster = ForgedCluster()
    for name in ("a", "b"):
        cluster.put(name, request={"count": "1", "memory": "8000", "exclusive": "false"})
        cluster.bind(name, "node2", "3")
    cluster.put("c", request={"count": "1", "memory": "8000", "exclusive": "false"})
    with pytest.raises(BrokenError, match="memory: GPU 3 of node2 is given to 3 pods"):
        cluster.bind("c", "node2", "3")


def test_a_write_to_a_foreign_pod_is_reported() -> None:
    """The scheduler may write neither its status nor its node."""
    cluster = ForgedCluster()
    cluster.server.pods.put("default/x", pod("x", "x", {}, None, scheduler="default-scheduler"))
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "GpuHeld: no"}
    with pytest.raises(BrokenError, match="others: "):
        cluster.ask("x", "status", {"metadata": {}, "status": {"conditions": [condition]}})


def test_too_many_writes_are_reported() -> None:
    """A scheduler must not wait in a hot loop."""
    cluster = ForgedCluster()
    cluster.put("x", request={"count": "1"})
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "GpuHeld: no"}

    def write() -> None:
        for _ in range(100):
            cluster.ask("x", "status", {"metadata": {}, "status": {"conditions": [condition]}})

    with pytest.raises(BrokenError, match="budget: 26 writes for x"):
        write()


def test_a_waiting_pod_that_could_run_is_reported() -> None:
    """By number and by map. A pod that could not run must have a condition with the reason."""
    cluster = ForgedCluster()
    cluster.put("x", request={"count": "8"})
    cluster.put("train-2", env="2", text=MAP)
    cluster.put("big", request={"count": "9"})

    assert list(cluster.checker.waiting()) == [
        "liveness: x could run on node1 and is not bound",
        "liveness: train-2 could run on node1 and is not bound",
        "condition: big waits and has no condition PodScheduled=False with a reason",
    ]


CLOSED: dict[str, tuple[dict[str, Any], int]] = {
    "cordoned": ({"cordoned": True}, 0),
    "not Ready": ({"ready": False}, 0),
    "without that device": ({"count": 2}, 0),
    "full, whichever pods fill it": ({}, 64),
}


@pytest.mark.parametrize(("state", "cpu"), CLOSED.values(), ids=CLOSED)
def test_no_pod_has_to_run_on_a_closed_node(state: dict[str, Any], cpu: int) -> None:
    """Only its condition must give the reason."""
    cluster = ForgedCluster()
    cluster.server.nodes.put("/node1", node("node1", **{"count": 8, **state}))
    other = pod("o", "o", {}, None, scheduler="default-scheduler", node="node1", cpu=cpu)
    cluster.server.pods.put("default/o", other)
    cluster.put("train-2", env="2", text=MAP)

    assert [line.partition(":")[0] for line in cluster.checker.waiting()] == ["condition"]
