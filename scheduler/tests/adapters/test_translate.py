from pathlib import Path

import msgspec
import pytest
import yaml

from gpu_scheduler.adapters.translate import read_node, read_pod
from gpu_scheduler.core.model import Condition, Container, ContainerKind, EnvVar, Node, Owner, Pod, PodRef

FIXTURES = Path(__file__).parent / "fixtures"


def fixture(name: str) -> bytes:
    """A real object, as `kubectl get -o yaml` gave it, in the API's own JSON."""
    return msgspec.json.encode(yaml.safe_load((FIXTURES / name).read_text(encoding="utf-8")))


def test_a_stateful_sets_pod() -> None:
    """Only what a decision reads is kept: our annotations and labels, the controller, the two variables."""
    key, pod = read_pod(fixture("pod_statefulset_bound.yaml"))

    literal = (EnvVar("CUDA_VISIBLE_DEVICES", "0,1"), EnvVar("CUDA_DEVICE_ORDER", "PCI_BUS_ID"))
    assert key == "5f0c1f9e-61b5-4c43-9d6e-5d1a4e3c8b10"
    assert pod == Pod(
        ref=PodRef("default", "gpu-scheduler-check-0", key),
        scheduler_name="gpu-scheduler",
        node="node1",
        phase="Running",
        generate_name="gpu-scheduler-check-",
        owner=Owner("StatefulSet", "gpu-scheduler-check"),
        annotations={
            "gpu-scheduling-map": "0=node1:0,1\n1=node2:2\n",
            "agentaflow.gpu/observer": "true",
            "agentaflow.gpu/assigned-devices": "0,1",
            "agentaflow.gpu/assigned-index": "0",
            "agentaflow.gpu/assigned-node": "node1",
        },
        labels={"apps.kubernetes.io/pod-index": "0"},
        containers=(
            Container(ContainerKind.CONTAINER, 0, "check", literal),
            Container(ContainerKind.INIT, 0, "prepare", literal),
        ),
    )
    assert pod.scheduled_condition == Condition("True", "", "")


def test_a_waiting_pod_that_terminates() -> None:
    """Gates, deletion, other sources of a variable, and the condition with its words."""
    _, pod = read_pod(fixture("pod_waiting.yaml"))

    assert (pod.node, pod.phase, pod.gated) == (None, "Pending", True)
    assert pod.deleting_since == "2026-11-20T09:00:00Z"
    assert pod.owner is None
    assert pod.scheduled_condition == Condition("False", "Unschedulable", "GpuHeld: GPU 3 of node4 is held")
    by_name = {container.name: container.env for container in pod.containers}
    field_path = "metadata.annotations['agentaflow.gpu/assigned-devices']"
    assert by_name == {
        "reads-annotation": (EnvVar("CUDA_VISIBLE_DEVICES", None, field_path),),
        "reads-secret": (EnvVar("CUDA_VISIBLE_DEVICES", None, None),),
        "says-nothing": (EnvVar("CUDA_VISIBLE_DEVICES", ""),),
        "has-others": (),
        "has-none": None,
        "debugger": None,
    }
    assert pod.containers[-1].kind is ContainerKind.EPHEMERAL


def test_nulls_are_absent() -> None:
    """Kubernetes writes null for what is not there: never an error."""
    raw = b"""{"metadata": {"name": "a", "uid": "u", "creationTimestamp": null, "labels": null, "annotations": null,
      "ownerReferences": null, "deletionTimestamp": null},
      "spec": {"nodeName": null, "schedulingGates": null, "containers": null},
      "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": null, "lastProbeTime": null}]}}"""

    key, pod = read_pod(raw)

    assert key == "u"
    assert pod == Pod(ref=PodRef("", "a", "u"), scheduler_name="")
    assert pod.scheduled_condition == Condition("False", "", "")


def test_what_is_no_pod_is_an_error() -> None:
    """The reflector logs it and goes on."""
    with pytest.raises(msgspec.ValidationError):
        read_pod(b'{"metadata": {"name": 5}, "spec": {}}')


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("node_ready.yaml", Node("node1", ready=True, alias="gpu-a")),
        ("node_cordoned.yaml", Node("node2", ready=False, unschedulable=True)),
    ],
)
def test_nodes(text: str, node: Node) -> None:
    """Ready is what the kubelet said last; Unknown is not Ready."""
    assert read_node(fixture(text)) == (node.name, node)


def test_a_node_that_has_said_nothing_is_not_ready() -> None:
    """It may never have had a kubelet."""
    assert read_node(b'{"metadata": {"name": "new"}}') == ("new", Node("new", ready=False))


def test_texts_of_one_workload_are_kept_once() -> None:
    """Ten thousand pods of one template hold one copy of its map."""
    _, one = read_pod(fixture("pod_statefulset_bound.yaml"))
    _, other = read_pod(fixture("pod_statefulset_bound.yaml"))

    assert one.annotations["gpu-scheduling-map"] is other.annotations["gpu-scheduling-map"]
