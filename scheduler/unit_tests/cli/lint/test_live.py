"""What lint finds with a cluster that was read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gpu_scheduler.cli.installation import Installation
from gpu_scheduler.cli.lint.live import check_live
from gpu_scheduler.cli.live_cluster import LiveCluster
from gpu_scheduler.cli.snapshot import read_node
from gpu_scheduler.core.namespace_limits import parse_limits
from gpu_scheduler.kube.objects.pods import read_pod
from gpu_scheduler.scheduler.ports import InputKind
from tests import objects
from unit_tests.cli.lint.manifests import checked, controller, pod, shown, stateful_set, template

if TYPE_CHECKING:
    from gpu_scheduler.cli.lint.check import Checked

GPUS = objects.inventory(*map(objects.device, range(4)))
ONE = "replicas: 1\n"
SWAPPED = "0=node1:1\n1=node1:0\n"
STRAIGHT = "0=node1:0\n1=node1:1\n"


def running(name: str, text: str, devices: str, owner: tuple[str, str], index: int) -> Any:
    """Return a bound pod of node1 with these devices."""
    written = {"agentaflow.gpu/assigned-devices": devices, "agentaflow.gpu/assigned-index": str(index)}
    body = objects.pod(
        name,
        text,
        objects.reading(),
        annotations=written,
        owner=owner,
        nodeName="node1",
        labels={"pod-template-hash": "5d"}
        if owner[0] == "ReplicaSet"
        else {"apps.kubernetes.io/pod-index": str(index)},
    )
    body["metadata"] |= {"namespace": "ml", "uid": f"uid-{name}"}
    return body


def cluster(*pods: Any, limits: str = "", nodes: tuple[Any, ...] = ()) -> LiveCluster:
    """Return a cluster of node1 to node3 with four GPUs each, these nodes and pods."""
    several = (*(objects.node(f"node{number}", annotations=GPUS) for number in (1, 2, 3)), *nodes)
    listed = [read_node(json.dumps(each).encode()) for each in several]
    inputs = (
        *((InputKind.NODE, each.node) for each in listed),
        (InputKind.LIMITS, parse_limits(limits)[0]),
        *((InputKind.POD, read_pod(json.dumps(each).encode())[1]) for each in pods),
    )
    return LiveCluster(Installation(), inputs, {each.node.name: each for each in listed}, {}, ())


def live(text: str, *pods: Any, **more: Any) -> Checked:
    return check_live(checked(text), cluster(*pods, **more))


TRAIN = [
    running("train-0", STRAIGHT, "0", ("StatefulSet", "train"), 0),
    running("train-1", STRAIGHT, "1", ("StatefulSet", "train"), 1),
]
SERVE = [running("serve-5d-bcdfg", "0=node1:0\n", "0", ("ReplicaSet", "serve-5d"), 0)]
TWO_LABELLED = tuple(
    objects.node(name, annotations=GPUS, labels={"gpu-node-name": "twice"}) for name in ("node8", "node9")
)

Found = tuple[str, str, str]
Case = tuple[str, list[Any], dict[str, Any], list[Found]]


def case(text: str, *found: Found, pods: list[Any] | None = None, **more: Any) -> Case:
    """Return what is found in a text, in a cluster with these pods and what else it has."""
    return text, pods or [], more, [*found]


CASES: dict[str, Case] = {
    "everything fits": case(stateful_set("0=node1:0\n")),
    "an unknown node, also of a spare line": case(
        stateful_set("0=node1:0\n1=node7:0\n"), ("error", "NodeNotFound", "1=node7:0")
    ),
    "each unknown node once": case(
        stateful_set("0=a:0\n1=a:1\n2=b:0\n", "replicas: 3\n"),
        ("error", "NodeNotFound", "0=a:0"),
        ("error", "NodeNotFound", "2=b:0"),
    ),
    "an ambiguous alias": case(
        stateful_set("0=twice:0\n"), ("error", "NodeAmbiguous", "0=twice:0"), nodes=TWO_LABELLED
    ),
    "an unknown device": case(stateful_set("0=node1:4\n"), ("error", "GpuNotFound", "0=node1:4")),
    "a device that another holds": case(
        stateful_set("0=node1:0\n", name="other"), ("warning", "GpuHeld", "0=node1:0"), pods=TRAIN
    ),
    "a node that is cordoned": case(
        stateful_set("0=shut:0\n"),
        ("error", "NodeUnschedulable", "0=shut:0"),
        nodes=(objects.node("shut", unschedulable=True, annotations=GPUS),),
    ),
    "more devices than the namespace may ever hold": case(
        pod(template(None, annotations='agentaflow.gpu/count: "2"\n')),
        ("error", "QuotaExceeded", "name: train-0"),
        limits="ml: devices=1",
    ),
    "more devices than the namespace may hold now": case(
        pod(template(None, annotations='agentaflow.gpu/count: "1"\n')),
        ("warning", "QuotaExceeded", "name: train-0"),
        pods=SERVE,
        limits="ml: devices=1",
    ),
    "what runs already": case(stateful_set(STRAIGHT, "replicas: 2\n"), pods=TRAIN),
    "lines that swap devices": case(
        stateful_set(SWAPPED, "replicas: 2\n"), ("error", "RolloutDeadlock", "spec:"), pods=TRAIN
    ),
    "lines that swap devices, and pods that are deleted by hand": case(
        stateful_set(SWAPPED, "replicas: 2\nupdateStrategy: {type: OnDelete}\n"), pods=TRAIN
    ),
    "lines that move to free devices": case(stateful_set("0=node1:0\n1=node1:2\n", "replicas: 2\n"), pods=TRAIN),
    "a Deployment whose new map names the old device, with a line to spare": case(
        controller("Deployment", template("0=node1:0\n1=node1:0\n"), ONE, name="serve"),
        ("error", "RolloutDeadlock", "spec:"),
        pods=SERVE,
    ),
    "a Deployment whose new map names another device": case(
        controller("Deployment", template("0=node1:3\n1=node1:2\n"), ONE, name="serve"), pods=SERVE
    ),
    "a claim that its StatefulSet makes": case(
        stateful_set("0=node1:0\n", "volumeClaimTemplates: [{metadata: {name: data}}]\n")
    ),
}


@pytest.mark.promise("lint-5")
@pytest.mark.parametrize(("text", "pods", "more", "expected"), CASES.values(), ids=CASES)
def test_the_scheduler_s_own_decision_is_the_finding(
    text: str, pods: list[Any], more: dict[str, Any], expected: list[Found]
) -> None:
    """An error if no waiting helps, a warning if it passes when others end."""
    assert shown(live(text, *pods, **more), text) == expected


def test_the_nearest_node_is_named() -> None:
    """The remedy stays."""
    (found,) = live(pod(template("0=nod1:0\n"))).findings

    assert 'did you mean "node1"?; label the node' in found.message


def test_what_the_text_gives_is_not_reported_twice() -> None:
    """Two workloads on one device wait in the dry run too."""
    text = "---\n".join(stateful_set("0=node1:0\n", name=name) for name in ("a", "b"))

    assert [each.word for each in live(text).findings] == ["GpuHeld"]
