"""The index of a pod by its kind of controller, and which pods form one workload.

No controller runs here: the tests create pods with the names, labels and owners that controllers give them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.objects import literal, node, pod, reading, replica

if TYPE_CHECKING:
    from tests.integration.command import Command
    from tests.integration.namespace import Namespace

THREE = "0=node1:0\n1=node1:1\n2=node1:2\n"
INDEX = "agentaflow.gpu/index"


@pytest.mark.promise("index-7", "index-12", "index-18", "share-2")
def test_a_surge_pod_waits_where_the_map_has_no_spare_line(namespace: Namespace, scheduler: Command) -> None:
    """With an unchanged map both ReplicaSets are one workload, so the new pod waits for the line of the old one."""
    namespace.node("node1")
    text = "0=node1:0\n"
    namespace.make(replica("train", "5d5f", "b7b7b", text))
    namespace.placed("train-5d5f-b7b7b")
    namespace.make(replica("train", "77cc", "c7c7c", text))

    message = namespace.wait_message("train-77cc-c7c7c", "NoFreeIndex: ")

    for part in (f"{namespace.name}/train-5d5f-b7b7b", "maxUnavailable", "OnDelete"):
        assert part in message
    namespace.delete("train-5d5f-b7b7b")
    assert namespace.placed("train-77cc-c7c7c").index == 0


@pytest.mark.promise("index-18", "share-2", "fixed-2")
def test_a_surge_pod_with_another_map_waits_for_the_old_pods_gpu(namespace: Namespace, scheduler: Command) -> None:
    """With another map it is another workload, but the device is the same. The message names old pod and remedies."""
    namespace.node("node1")
    namespace.make(replica("train", "5d5f", "b7b7b", "0=node1:0\n"))
    old = namespace.placed("train-5d5f-b7b7b")
    namespace.make(replica("train", "77cc", "c7c7c", "0=node1:0\n1=node9:1\n"))

    message = namespace.wait_message("train-77cc-c7c7c", "GpuHeld: ")

    for part in (f"{namespace.name}/train-5d5f-b7b7b", "maxUnavailable"):
        assert part in message
    assert namespace.placed("train-5d5f-b7b7b") == old
    namespace.delete("train-5d5f-b7b7b")
    assert namespace.placed("train-77cc-c7c7c").index == 0


@pytest.mark.promise("index-19", "index-7")
def test_a_rolling_update_with_a_spare_line_completes(namespace: Namespace, scheduler: Command) -> None:
    """With two replicas and three lines each new pod takes the spare line. Each deleted pod frees another line."""
    namespace.node("node1")
    old, new = ["b7b7b", "c7c7c"], ["d7d7d", "f7f7f"]
    for suffix in old:
        namespace.make(replica("train", "5d5f", suffix, THREE))
        namespace.placed(f"train-5d5f-{suffix}")

    given = []
    for leaving, coming in zip(old, new, strict=True):
        namespace.make(replica("train", "77cc", coming, THREE))
        given.append(namespace.placed(f"train-77cc-{coming}").index)
        namespace.delete(f"train-5d5f-{leaving}")

    assert given == [2, 0]


@pytest.mark.promise("index-8")
def test_each_other_controller_is_a_workload_of_its_own(namespace: Namespace, scheduler: Command) -> None:
    """With one map each Job, each ReplicaSet and all bare pods are separate workloads: each has its own index 0."""
    namespace.node("node1")
    text = "0=node1:\n1=node1:\n"
    namespace.make(pod("one-b7b7b", text, reading(), owner=("Job", "one"), generate_name="one-"))
    namespace.make(pod("two-b7b7b", text, reading(), owner=("Job", "two"), generate_name="two-"))
    namespace.make(pod("set-b7b7b", text, reading(), owner=("ReplicaSet", "set"), generate_name="set-"))
    assert namespace.indices("one-b7b7b", "two-b7b7b", "set-b7b7b") == [0, 0, 0]

    namespace.make(pod("bare", text, reading()))
    assert namespace.indices("bare") == [0]
    namespace.make(pod("other", "# says the same\n" + text, reading()))

    assert namespace.indices("other") == [1]


@pytest.mark.promise("index-3")
@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_a_pod_of_an_indexed_job_brings_its_completion_index(
    namespace: Namespace, scheduler: Command, where: str
) -> None:
    """The index is read from the label, and from the annotation if the label is missing."""
    namespace.node("node1")
    written = {where: {"batch.kubernetes.io/job-completion-index": "2"}}
    namespace.make(
        pod(
            "train-0-b7b7b",
            THREE,
            literal("2"),
            owner=("Job", "train"),
            generate_name="train-0-",
            labels=written.get("labels"),
            annotations=written.get("annotations"),
        )
    )

    placed = namespace.placed("train-0-b7b7b")

    assert (placed.index, placed.devices) == (2, "2")


@pytest.mark.promise("index-2", "index-4")
def test_a_statefulset_may_start_at_another_ordinal(namespace: Namespace, scheduler: Command) -> None:
    """The index is read from the label, and from the name if an old control plane sets no label."""
    namespace.node("node1")
    text = "5=node1:5\n6=node1:6\n"
    owner = ("StatefulSet", "train")
    labels = {"apps.kubernetes.io/pod-index": "5"}
    namespace.make(pod("train-5", text, literal("5"), owner=owner, labels=labels, generate_name="train-"))
    namespace.make(pod("train-6", text, literal("6"), owner=owner, generate_name="train-"))

    assert namespace.indices("train-5", "train-6") == [5, 6]


@pytest.mark.promise("index-1")
def test_the_annotation_decides_before_label_and_name(namespace: Namespace, scheduler: Command) -> None:
    """With annotation 2, label 1 and name 0 the index is 2."""
    namespace.node("node1")
    labels = {"apps.kubernetes.io/pod-index": "1"}
    namespace.make(pod("train-0", THREE, literal("2"), annotations={INDEX: "2"}, labels=labels))
    namespace.make(pod("other-0", THREE, literal("1"), labels=labels))

    assert namespace.indices("train-0", "other-0") == [2, 1]


@pytest.mark.promise("index-5")
def test_a_generated_name_of_digits_is_no_index(namespace: Namespace, scheduler: Command) -> None:
    """Generated suffixes and hashes may consist of digits, like 24567 and 4567 here."""
    namespace.node("node1")
    text = "0=node1:0\n1=node1:1\n24567=node1:2\n"
    namespace.make(pod("train-24567", text, reading(), generate_name="train-"))
    namespace.make(replica("web", "4567", "24567", text))
    assert namespace.indices("train-24567", "web-4567-24567")[0] == 0

    namespace.delete("train-24567")
    namespace.make(pod("train-24567", "24567=node1:3\n", literal("3")))

    assert namespace.indices("train-24567") == [24567]


@pytest.mark.promise("index-20")
def test_kubeflows_replicas_are_dynamic_unless_annotated(namespace: Namespace, scheduler: Command) -> None:
    """The names master-0 and worker-0 of one job must not mean the same line."""
    namespace.node("node1")
    owner = ("PyTorchJob", "job")
    for kind in ("master", "worker"):
        labels = {"training.kubeflow.org/replica-type": kind, "training.kubeflow.org/replica-index": "0"}
        namespace.make(pod(f"job-{kind}-0", THREE, reading(), owner=owner, labels=labels))
        namespace.placed(f"job-{kind}-0")
    labels = {"training.kubeflow.org/replica-type": "worker"}
    namespace.make(pod("job-worker-1", THREE, literal("2"), owner=owner, labels=labels, annotations={INDEX: "2"}))

    assert namespace.indices("job-master-0", "job-worker-0", "job-worker-1") == [0, 1, 2]


@pytest.mark.promise("index-10", "env-8")
def test_the_form_of_the_environment_does_not_change_the_index(namespace: Namespace, scheduler: Command) -> None:
    """A pod with a static index whose variable refers to the annotation holds its index too."""
    namespace.add(node("node1"))
    namespace.make(pod("train-1", THREE, reading()))
    placed = namespace.placed("train-1")
    assert (placed.index, placed.devices) == (1, "1")

    namespace.make(pod("other-1", THREE, reading()))

    assert f"{namespace.name}/train-1" in namespace.wait_message("other-1", "IndexHeld: ")
