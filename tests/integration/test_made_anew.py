"""`plan` and `drain` know the pods that Kubernetes' own controllers have made, and what these make in their place."""

from __future__ import annotations

import copy
import json
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests import objects
from tests.integration.control_plane import ADMIN_TOKEN
from tests.integration.controller_manager import start_controller_manager
from tests.integration.installed import Installed
from tests.integration.pod_controllers import collection, controller, delete_controllers
from tests.integration.workloads import API
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace
    from tests.integration.workloads import Workloads
    from tests.objects import Object

CONTROLLERS: Final = ("statefulset", "deployment", "replicaset", "job", "garbage-collector")
LONG: Final = "long-" + "job" * 18
"""So long a name that its Job cuts the prefix of its pods' names."""


def work(kind: str, name: str, lines: str, **spec: Any) -> Object:
    """Return a controller whose pods are as after the webhook. They share their devices."""
    body = controller(kind, name, lines, **spec)
    template = body["spec"]["template"]
    template["metadata"]["annotations"]["agentaflow.gpu/sharing"] = "any"
    template["spec"]["containers"][0]["env"] = objects.reading()
    return body


def indexed(name: str, lines: str, completions: int, parallelism: int) -> Object:
    """Return an Indexed Job."""
    return work("Job", name, lines, completions=completions, parallelism=parallelism, completionMode="Indexed")


WORK: Final = (
    work(
        "StatefulSet",
        "train",
        "0=node1:0\n1=node2:0\n2=node2:1\n3=node1:3\n",
        replicas=3,
        serviceName="train",
        podManagementPolicy="Parallel",
    ),
    work("Deployment", "web", "0=node1:1\n1=node2:2\n", replicas=2),
    work("ReplicaSet", "fleet", "0=node1:1\n", replicas=1),
    indexed("sweep", "0=node2:3\n1=node2:3\n2=node1:2\n3=node2:3\n", 4, 2),
    indexed(LONG, "0=node1:2\n", 1, 1),
    work("Job", "once", "0=node1:2\n"),
)
AT_ONCE: Final = 10
"""Pods of WORK that run at the same time."""


@dataclass
class Made:
    """The namespace with the pods of WORK, all placed, and the command line."""

    namespace: Namespace
    me: Installed

    def pods(self) -> dict[str, Object]:
        """Return all pods, by name."""
        _, answer = self.namespace.kube.call("GET", self.namespace.pods)
        return {pod["metadata"]["name"]: pod for pod in answer["items"]}

    def alive(self) -> dict[str, Object]:
        """Return the pods that have not ended and are not being deleted."""
        return {
            name: pod
            for name, pod in self.pods().items()
            if pod["status"]["phase"] not in {"Succeeded", "Failed"} and "deletionTimestamp" not in pod["metadata"]
        }

    def placed(self) -> dict[str, Object] | None:
        """Return the pods that have not ended, when there are as many as WORK has at once, and all have a node."""
        pods = self.alive()
        done = len(pods) == AT_ONCE and all("nodeName" in pod["spec"] for pod in pods.values())
        return pods if done else None

    def plan(self, *words: str, code: int | None = 0) -> Any:
        """Return the plan of this command line."""
        (plan,) = self.me.items("plan", *words, "-n", self.namespace.name, code=code)
        return plan


@pytest.fixture
def made(kinds: ControlPlane, workloads: Workloads, running: Command, tmp_path: Path) -> Iterator[Made]:
    """Let kube-controller-manager make the pods of WORK, and the scheduler place them.

    A bare pod is there before, which the ReplicaSet adopts. The Job's pods with the indices 0 and 1 are done.
    """
    namespace = workloads.namespace
    for name in ("node1", "node2"):
        namespace.node(name, annotations=objects.inventory(*map(objects.device, range(4))))
    found = Made(namespace, Installed(tmp_path, kinds, ADMIN_TOKEN, namespace.name))
    process = start_controller_manager(kinds, tmp_path, *(f"{each}-controller" for each in CONTROLLERS))
    try:
        template = copy.deepcopy(WORK[2]["spec"]["template"])
        namespace.make({**template, "metadata": {**template["metadata"], "name": "given"}})
        eventually("it is placed", partial(namespace.node_of, "given"))
        for body in WORK:
            kinds.kube.create(collection(namespace.name, body["kind"]), body)
        for index in (0, 1):
            (name,) = eventually("it runs", partial(begin_with, found, f"sweep-{index}-"), seconds=30)
            namespace.finish(name)
        eventually("all are placed", found.placed, seconds=30)
        yield found
    finally:
        delete_controllers(kinds.kube)
        eventually("their pods are gone", lambda: emptied(found), seconds=30)
        process.stop()
        kinds.kube.call("DELETE", f"{API}/gpunodes")


def begin_with(made: Made, start: str) -> list[str]:
    """Return the names of placed pods that begin so."""
    return [name for name, pod in made.pods().items() if name.startswith(start) and "nodeName" in pod["spec"]]


def emptied(made: Made) -> bool:
    """Delete the pods; return whether there is none."""
    made.namespace.empty()
    return not made.pods()


def on(made: Made, node: str) -> set[str]:
    """Return the names of the pods that have not ended on this node."""
    return {name for name, pod in made.alive().items() if pod["spec"].get("nodeName") == node}


def identities(pods: dict[str, Object]) -> Counter[tuple[str, str]]:
    """Return how many pods have which controller and index: those that are made anew have those of the old ones."""
    marks = ("apps.kubernetes.io/pod-index", "batch.kubernetes.io/job-completion-index")
    labels = [(pod["metadata"]["ownerReferences"][0]["name"], pod["metadata"]["labels"]) for pod in pods.values()]
    return Counter((owner, next((given[mark] for mark in marks if mark in given), "")) for owner, given in labels)


@pytest.mark.promise("plan-3", "plan-5")
def test_a_plan_knows_the_pods_of_kubernetes_controllers(made: Made, tmp_path: Path) -> None:
    """By name, by number or by index, as their controllers do: none is planned twice, and none is lost."""
    file = tmp_path / "work.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": list(WORK)}))

    again = made.plan("-f", str(file))
    fewer = made.plan("--scale", "statefulset/train=2", "--scale", "deployment/web=1")
    more = made.plan("--scale", "statefulset/train=4", "--scale", "replicaset/fleet=1")
    drained = made.plan("--drain", "node1", code=1)
    broken = made.plan("--without", "node1:0", code=1)

    assert {pod["name"] for pod in again["pods"]} <= made.pods().keys()
    assert {pod["outcome"] for pod in again["pods"]} == {"exists"}
    assert {"train-0", "train-1", "train-2", "given"} < {pod["name"] for pod in again["pods"]}
    (kept,) = (pod["name"] for pod in fewer["pods"] if pod["name"].startswith("web-") and pod["outcome"] == "exists")
    (other,) = (name for name in made.alive() if name.startswith("web-") and name != kept)
    assert {pod["name"]: pod["outcome"] for pod in fewer["pods"]} == {
        "train-0": "exists",
        "train-1": "exists",
        "train-2": "removed",
        kept: "exists",
        other: "removed",
    }
    assert [(pod["name"], pod["outcome"], pod["node"], pod["devices"]) for pod in more["pods"]] == [
        ("train-0", "exists", "node1", ["0"]),
        ("train-1", "exists", "node2", ["0"]),
        ("train-2", "exists", "node2", ["1"]),
        ("train-3", "fits", "node1", ["3"]),
        ("given", "exists", "node1", ["1"]),
    ]
    assert {pod["replaces"]["name"] for pod in drained["pods"]} == on(made, "node1")
    assert {"train-0", "sweep-2", f"{LONG}-0"} < {pod["name"] for pod in drained["pods"]}
    assert {pod["reason"] for pod in drained["pods"]} <= {"NodeUnschedulable", "NoFreeIndex"}
    assert (drained["counts"]["lost"], drained["counts"]["waits"]) == (0, len(drained["pods"]))
    assert [(pod["name"], pod["outcome"], pod["reason"]) for pod in broken["pods"]] == [
        ("train-0", "waits", "GpuUnhealthy")
    ]


@pytest.mark.promise("cordon-5")
def test_a_drain_evicts_the_pods_that_kubernetes_controllers_make_anew(made: Made) -> None:
    """Without --force: each is made anew by its controller, as the drain has said."""
    before, leaving = made.alive(), on(made, "node1")

    with made.namespace.kubelets():
        items = made.me.items("drain", "node1", "--reason", "fan noise")

    assert {item["name"] for item in items} == leaving
    assert {item["outcome"] for item in items} == {"waits"}
    # A Job waits ten seconds before it makes a pod anew.
    eventually("all are made anew", lambda: len(made.alive()) == AT_ONCE, seconds=60)
    after = made.alive()
    assert identities(after) == identities(before)
    assert {pod["metadata"]["uid"] for pod in after.values()}.isdisjoint(item["uid"] for item in items)
    assert {item["successor"] for item in items} > {"train-0", "sweep-2", f"{LONG}-0"}
    assert "train-0" in after
