"""For each invariant a forged violation, and the checker says exactly that one."""

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
LEASE: dict[str, Any] = {
    "metadata": {"name": "gpu-scheduler", "namespace": "gpu-scheduler-system"},
    "spec": {"holderIdentity": "one"},
}


class Scene:
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

    def ask(self, name: str, end: str, body: object) -> int:
        path = f"/api/v1/namespaces/default/pods/{name}/{end}"
        return self.server.answer(ApiRequest("one", "POST", path, {}, msgspec.json.encode(body))).status


def made_of(
    name: str, *, env: str | None = None, text: str = "", asked: dict[str, str] | None = None
) -> dict[str, Any]:
    annotations = {f"agentaflow.gpu/{key}": value for key, value in (asked or {}).items()}
    if text:
        annotations["gpu-scheduling-map"] = text
    index = name.rpartition("-")[2]
    labels = {"apps.kubernetes.io/pod-index": index} if text else {}
    owner = OWNER if text else None
    return pod(name, f"uid-{name}", annotations, literal(env) if env else BY_FIELD, labels=labels, owner=owner)


def test_what_the_contract_allows_is_no_violation() -> None:
    """Two lines of one map share a card; two that share memory share one too."""
    watch_state = Scene()
    for name, devices, index in (("train-0", "0,1", "0"), ("train-1", "1", "1")):
        watch_state.put(name, env=devices, text=MAP)
        assert watch_state.bind(name, "node1", devices, index=index) == 201
    for name in ("a", "b"):
        watch_state.put(name, asked={"count": "1", "memory": "8000", "exclusive": "false"})
        assert watch_state.bind(name, "node2", "3") == 201

    watch_state.checker.look()

    assert watch_state.checker.binds == 4
    assert list(watch_state.checker.waiting()) == []


BIND = {
    "another's card": ({"asked": {"count": "1"}}, ("node1", "0"), {}, "apart: GPU 0 of node1 is held by"),
    "too few cards": ({"asked": {"count": "2"}}, ("node2", "0"), {}, "agree: new: asks for 2"),
    "another node than it says": ({"asked": {"count": "1"}}, ("node2", "0"), {"node": "node1"}, "agree: new: bound to"),
    "other cards than it sees": (
        {"env": "4", "text": "0=node2:4"},
        ("node2", "5"),
        {"index": "0"},
        "agree: new: sees GPUs 4, assigned 5",
    ),
    "another line's place": (
        {"text": "0=node2:4\n1=node2:5"},
        ("node2", "5"),
        {"index": "0"},
        "agree: new: line 0 of its map is",
    ),
    "a leader of yesterday": (
        {"asked": {"count": "1"}},
        ("node2", "0"),
        {"by": "two"},
        "fence: a bind of new comes from two while one holds",
    ),
}


@pytest.mark.parametrize(("asks", "place", "assigned", "told"), BIND.values(), ids=BIND)
def test_a_bind_against_the_rules_is_told_at_once(
    asks: dict[str, Any], place: tuple[str, str], assigned: dict[str, str], told: str
) -> None:
    """Right when the API server has it."""
    watch_state = Scene()
    watch_state.put("old", asked={"count": "1"})
    assert watch_state.bind("old", "node1", "0") == 201
    watch_state.put("new", **asks)
    with pytest.raises(BrokenError, match=told):
        watch_state.bind("new", *place, **{"by": "one", **assigned})


LONG_SINCE: dict[str, tuple[dict[str, Any] | None, int, str]] = {
    "cordoned": ({"cordoned": True}, 0, "node: x was bound to node1, which takes no pods"),
    "not Ready": ({"ready": False}, 0, "node: x was bound to node1, which takes no pods"),
    "gone": (None, 0, "node: x was bound to node1, which takes no pods"),
    "with fewer cards": ({"cards": 2}, 0, "node: x was given GPU 3 of node1"),
    "full": ({}, 64, "room: x was bound to node1, where 65 CPUs are taken"),
}


@pytest.mark.parametrize(("state", "cpu", "told"), LONG_SINCE.values(), ids=LONG_SINCE)
def test_a_bind_to_a_node_that_is_known_not_to_take_it_is_told(
    state: dict[str, Any] | None, cpu: int, told: str
) -> None:
    """Once every replica must have heard of it; before, it is only late."""
    for seconds in (1, 100):
        watch_state = Scene()
        watch_state.timeline.run(200)
        if state is None:
            watch_state.server.nodes.remove("/node1")
        else:
            watch_state.server.nodes.put("/node1", node("node1", **{"cards": 8, **state}))
        if cpu:
            other = pod("o", "o", {}, None, scheduler="default-scheduler", node="node1", cpu=cpu)
            watch_state.server.pods.put("default/o", other)
        watch_state.timeline.run(seconds)
        watch_state.put("x", asked={"count": "1"})
        if seconds == 1:
            assert watch_state.bind("x", "node1", "3") == 201
        else:
            with pytest.raises(BrokenError, match=told):
                watch_state.bind("x", "node1", "3")


def test_to_go_on_binding_a_pod_that_is_being_deleted_is_told() -> None:
    """The API server refuses it each time."""
    watch_state = Scene()
    made = watch_state.put("x", asked={"count": "1"})
    ending = {**made["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    watch_state.server.pods.put("default/x", {**made, "metadata": ending})
    assert watch_state.bind("x", "node1", "3") == 409
    watch_state.timeline.run(100)
    with pytest.raises(BrokenError, match="ending: a bind of x is tried"):
        watch_state.bind("x", "node1", "3")


@pytest.mark.parametrize("status", [{"phase": "Failed"}, {}], ids=["ended", "being deleted"])
def test_a_late_bind_that_nobody_could_make_is_harmless(status: dict[str, str]) -> None:
    """Its sender knew that it can't land any more, and gave the lease away."""
    watch_state = Scene()
    made = watch_state.put("x", asked={"count": "1"})
    meta = made["metadata"] if status else {**made["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    watch_state.server.pods.put("default/x", {**made, "metadata": meta, "status": {**made["status"], **status}})
    watch_state.put("y", asked={"count": "1"})
    assert watch_state.bind("y", "node1", "0", by="one") == 201
    watch_state.server.leases.put("gpu-scheduler-system/gpu-scheduler", {**LEASE, "spec": {"holderIdentity": "two"}})

    assert [watch_state.bind(name, "node1", "0", by="one") for name in ("x", "y")] == [409, 409]
    with pytest.raises(BrokenError, match="fence: a bind of y comes from three while two holds"):
        watch_state.bind("y", "node1", "0", by="three")


def test_a_line_that_two_have_is_told() -> None:
    """Whatever cards they hold."""
    watch_state = Scene()
    for name in ("x", "y"):
        made = pod(name, name, {"gpu-scheduling-map": "0=node1:"}, BY_FIELD, owner=OWNER, generate_name="x-")
        watch_state.server.pods.put(f"default/{name}", made)
    watch_state.server.pods.entries["default/x"].object["spec"]["nodeName"] = "node1"
    watch_state.server.pods.entries["default/x"].object["metadata"]["annotations"]["agentaflow.gpu/assigned-index"] = (
        "0"
    )
    second = watch_state.server.pods.entries["default/y"].object
    second["spec"]["nodeName"] = "node1"
    second["metadata"]["annotations"]["agentaflow.gpu/assigned-index"] = "0"
    watch_state.server.pods.put("default/y", second)
    with pytest.raises(BrokenError, match="index: 2 pods of"):
        watch_state.checker.look()


def test_memory_that_is_not_there_is_told() -> None:
    """Three that fit by two."""
    watch_state = Scene()
    for name in ("a", "b"):
        watch_state.put(name, asked={"count": "1", "memory": "8000", "exclusive": "false"})
        watch_state.bind(name, "node2", "3")
    watch_state.put("c", asked={"count": "1", "memory": "8000", "exclusive": "false"})
    with pytest.raises(BrokenError, match="memory: GPU 3 of node2 is given to 3 pods"):
        watch_state.bind("c", "node2", "3")


def test_a_pod_of_others_must_not_be_written() -> None:
    """Neither its status nor its node."""
    watch_state = Scene()
    watch_state.server.pods.put("default/x", pod("x", "x", {}, None, scheduler="default-scheduler"))
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "GpuHeld: no"}
    with pytest.raises(BrokenError, match="others: "):
        watch_state.ask("x", "status", {"metadata": {}, "status": {"conditions": [told]}})


def test_writes_without_end_are_told() -> None:
    """A hot loop is no way to wait."""
    watch_state = Scene()
    watch_state.put("x", asked={"count": "1"})
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "GpuHeld: no"}

    def write() -> None:
        for _ in range(100):
            watch_state.ask("x", "status", {"metadata": {}, "status": {"conditions": [told]}})

    with pytest.raises(BrokenError, match="budget: 26 writes for x"):
        write()


def test_who_could_run_and_waits_is_told() -> None:
    """By number and by map; who could not is to be told why."""
    watch_state = Scene()
    watch_state.put("x", asked={"count": "8"})
    watch_state.put("train-2", env="2", text=MAP)
    watch_state.put("big", asked={"count": "9"})

    assert list(watch_state.checker.waiting()) == [
        "liveness: x could run on node1 and is not bound",
        "liveness: train-2 could run on node1 and is not bound",
        "told: big waits and has no condition PodScheduled=False with a reason",
    ]


CLOSED: dict[str, dict[str, Any]] = {
    "cordoned": {"cordoned": True},
    "not Ready": {"ready": False},
    "without that card": {"cards": 2},
}


@pytest.mark.parametrize("state", CLOSED.values(), ids=CLOSED)
def test_nobody_has_to_run_on_a_node_that_takes_nobody(state: dict[str, Any]) -> None:
    """Only why it waits must be told."""
    watch_state = Scene()
    watch_state.server.nodes.put("/node1", node("node1", **{"cards": 8, **state}))
    watch_state.put("train-2", env="2", text=MAP)

    assert [word.partition(":")[0] for word in watch_state.checker.waiting()] == ["told"]


def test_a_node_that_is_full_takes_nobody() -> None:
    """Whoever filled it."""
    watch_state = Scene()
    watch_state.put("train-2", env="2", text=MAP)
    watch_state.server.pods.put(
        "default/o", pod("o", "o", {}, None, scheduler="default-scheduler", node="node1", cpu=64)
    )

    assert [word.partition(":")[0] for word in watch_state.checker.waiting()] == ["told"]
