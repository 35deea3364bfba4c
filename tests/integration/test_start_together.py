"""Workloads whose pods start together: no pod is bound before all lines of the map can be had."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.pod_controllers import collection, controller
from tests.messages import text_of
from tests.objects import literal, pod
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.command import Command
    from tests.integration.installed import Installed
    from tests.integration.namespace import Namespace
    from tests.objects import Object

TOGETHER = {"agentaflow.gpu/start": "together"}
LINES = "0=node1:0\n1=node1:1\n2=node2:0\n"
DEVICES = {0: "0", 1: "1", 2: "0"}


def member(index: int) -> Object:
    """Return a pod of StatefulSet train."""
    return pod(
        f"train-{index}",
        LINES,
        literal(DEVICES[index]),
        annotations=TOGETHER,
        owner=("StatefulSet", "train"),
        labels={"apps.kubernetes.io/pod-index": str(index)},
    )


def single(name: str, text: str, devices: str) -> Object:
    """Return a pod that starts alone."""
    return pod(f"{name}-0", text, literal(devices), owner=("StatefulSet", name))


@pytest.mark.promise("together-1", "together-2", "together-3")
def test_no_pod_is_bound_before_all_lines_can_be_had(
    namespace: Namespace, scheduler: Command, operator: Installed
) -> None:
    """A StatefulSet makes its pods one by one: the first waits for the GPUs of those that do not exist yet."""
    namespace.node("node1")
    namespace.node("node2")
    namespace.make(single("other", "0=node2:0\n", "0"))
    namespace.placed("other-0")
    namespace.make(member(0))

    namespace.wait_message("train-0", "GpuHeld: ", parts=("index 2", "GPU 0", "node2", f"{namespace.name}/other-0"))
    (answer,) = operator.items("explain", "train-0", "-n", namespace.name, code=1)
    assert [step["command"] for step in answer["remedy"]["steps"]] == [
        f"kubectl delete pod -n {namespace.name} other-0"
    ]
    assert answer["places"][0]["obstacles"] == []
    assert f"held by {namespace.name}/other-0" in namespace.wait_event("train-0", "FailedScheduling")["note"]

    namespace.delete("other-0")
    assert namespace.placed("train-0").devices == "0"
    namespace.make(single("late", "0=node2:0\n", "0"))
    kept = f"StatefulSet {namespace.name}/train (line 2, to start together)"
    namespace.wait_message("late-0", "GpuHeld: ", parts=("GPU 0", "node2", kept))
    (node,) = [each for each in operator.items("nodes") if each["name"] == "node2"]
    (found,) = node["cards"]
    assert [(holder["name"], holder["line"]) for holder in found["holders"]] == [("train", 2)]

    for index in (1, 2):
        namespace.make(member(index))
        assert namespace.placed(f"train-{index}").index == index
    for index in range(3):
        namespace.delete(f"train-{index}")
    assert namespace.placed("late-0").node == "node2"
    assert scheduler.metric("gpu_scheduler_conflicts") == 0


@pytest.mark.promise("together-5")
def test_a_pod_that_cannot_follow_says_that_the_others_run(namespace: Namespace, scheduler: Command) -> None:
    """Its node is cordoned after the first Binding. What runs goes on, and the pod follows when it can."""
    namespace.node("node1")
    namespace.node("node2")
    namespace.make(member(0))
    before = namespace.placed("train-0") and namespace.read("train-0")
    namespace.cordon("node2", cordoned=True)
    namespace.make(member(2))

    why = text_of("a pod cannot follow those with which it starts together", node="node2")
    namespace.wait_message("train-2", why)
    assert why in namespace.wait_event("train-2", "FailedScheduling")["note"]
    namespace.make(member(1))
    namespace.placed("train-1")
    assert namespace.read("train-0") == before
    namespace.cordon("node2", cordoned=False)
    assert namespace.placed("train-2").node == "node2"


@pytest.mark.promise("together-1", "together-5")
def test_of_workloads_that_need_each_others_gpus_one_starts(controllers: Namespace, scheduler: Command) -> None:
    """Kubernetes' controllers make a StatefulSet, an Indexed Job and a Deployment at once, each in its own order."""
    for name in ("node1", "node2"):
        controllers.node(name)
    indexed: Object = {"completions": 3, "parallelism": 3, "completionMode": "Indexed"}
    bodies = [
        controller(
            "StatefulSet", "set", "0=node1:0\n1=node2:0\n2=node1:1\n", replicas=3, podManagementPolicy="Parallel"
        ),
        controller("Job", "job", "0=node2:0\n1=node1:1\n2=node1:0\n", **indexed),
        controller("Deployment", "web", "0=node1:1\n1=node1:0\n2=node2:0\n", replicas=3),
    ]
    for body in bodies:
        body["spec"]["template"]["metadata"]["annotations"] |= TOGETHER
        controllers.kube.create(collection(controllers.name, body["kind"]), body)
    started: list[str] = []
    while len(started) < len(bodies):
        started.append(
            eventually("three pods of one workload run", lambda: _one_started(controllers, started), seconds=30)
        )
        (kind,) = (body["kind"] for body in bodies if body["metadata"]["name"] == started[-1])
        controllers.kube.delete(f"{collection(controllers.name, kind)}/{started[-1]}?propagationPolicy=Orphan")
        if kind == "Deployment":
            # It would make pods anew, which start before the others again.
            controllers.kube.call("DELETE", f"{collection(controllers.name, 'ReplicaSet')}?propagationPolicy=Orphan")
        eventually("its pods are gone", lambda: not _deleted(controllers, started[-1]))
    assert sorted(started) == ["job", "set", "web"]
    assert scheduler.metric("gpu_scheduler_conflicts") == 0


def _pods(namespace: Namespace) -> dict[str, str]:
    """Return the node of each pod by its name; empty if it has none."""
    _, answer = namespace.kube.call("GET", namespace.pods)
    return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in answer["items"]}


def _deleted(namespace: Namespace, workload: str) -> list[str]:
    """Delete all pods of the workload. Return their names."""
    found = [name for name in _pods(namespace) if name.startswith(workload)]
    for name in found:
        namespace.delete(name)
    return found


def _one_started(namespace: Namespace, gone: list[str]) -> str | None:
    """Return the workload of which all three pods are bound. No pod of another one may be bound then."""
    bound = [name.partition("-")[0] for name, node in _pods(namespace).items() if node]
    assert len(set(bound)) <= 1, bound
    return bound[0] if len(bound) == 3 and bound[0] not in gone else None
