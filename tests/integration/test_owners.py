"""Which line is mine: what each kind of controller writes on its pods, and who divides a map with whom.

No controller runs here: pods come with the names, labels and owners that controllers give them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.objects import literal, node, pod, reading, replica

if TYPE_CHECKING:
    from tests.integration.bench import Bench
    from tests.integration.command import Command

THREE = "0=node1:0\n1=node1:1\n2=node1:2\n"
INDEX = "agentaflow.gpu/index"


@pytest.mark.promise("index-7", "index-12", "index-18", "share-2")
def test_a_surge_pod_waits_where_the_map_has_no_spare_line(bench: Bench, scheduler: Command) -> None:
    """A rolling update with an unchanged map is one workload over both ReplicaSets: the new pod waits for the old."""
    bench.node("node1")
    text = "0=node1:0\n"
    bench.make(replica("train", "5d5f", "b7b7b", text))
    bench.placed("train-5d5f-b7b7b")
    bench.make(replica("train", "77cc", "c7c7c", text))

    message = bench.wait_message("train-77cc-c7c7c", "NoFreeIndex: ")

    for part in (f"{bench.namespace}/train-5d5f-b7b7b", "maxUnavailable", "OnDelete"):
        assert part in message
    bench.delete("train-5d5f-b7b7b")
    assert bench.placed("train-77cc-c7c7c", seconds=3).index == 0


@pytest.mark.promise("index-18", "share-2")
def test_a_surge_pod_with_another_map_waits_for_the_old_pods_gpu(bench: Bench, scheduler: Command) -> None:
    """Another map is another workload, but the card is the same: the wait names the old pod and the cures."""
    bench.node("node1")
    bench.make(replica("train", "5d5f", "b7b7b", "0=node1:0\n"))
    bench.placed("train-5d5f-b7b7b")
    bench.make(replica("train", "77cc", "c7c7c", "0=node1:0\n1=node9:1\n"))

    message = bench.wait_message("train-77cc-c7c7c", "GpuHeld: ")

    for part in (f"{bench.namespace}/train-5d5f-b7b7b", "maxUnavailable"):
        assert part in message
    bench.delete("train-5d5f-b7b7b")
    assert bench.placed("train-77cc-c7c7c", seconds=3).index == 0


@pytest.mark.promise("index-19", "index-7")
def test_a_rolling_update_with_a_spare_line_runs_through(bench: Bench, scheduler: Command) -> None:
    """Two replicas, three lines: each new pod takes the spare line, and each old one leaves another spare behind."""
    bench.node("node1")
    old, new = ["b7b7b", "c7c7c"], ["d7d7d", "f7f7f"]
    for suffix in old:
        bench.make(replica("train", "5d5f", suffix, THREE))
        bench.placed(f"train-5d5f-{suffix}")

    given = []
    for leaving, coming in zip(old, new, strict=True):
        bench.make(replica("train", "77cc", coming, THREE))
        given.append(bench.placed(f"train-77cc-{coming}").index)
        bench.delete(f"train-5d5f-{leaving}")

    assert given == [2, 0]


@pytest.mark.promise("index-8")
def test_other_controllers_divide_their_lines_each_for_itself(bench: Bench, scheduler: Command) -> None:
    """Two Jobs with one map are two workloads; so are a Job and bare pods. Lines without GPUs show it."""
    bench.node("node1")
    text = "0=node1:\n1=node1:\n"
    bench.make(pod("one-b7b7b", text, reading(), owner=("Job", "one"), generate_name="one-"))
    bench.make(pod("two-b7b7b", text, reading(), owner=("Job", "two"), generate_name="two-"))
    bench.make(pod("set-b7b7b", text, reading(), owner=("ReplicaSet", "set"), generate_name="set-"))
    assert bench.indices("one-b7b7b", "two-b7b7b", "set-b7b7b") == [0, 0, 0]

    bench.make(pod("bare", text, reading()))
    assert bench.indices("bare") == [0]
    bench.make(pod("other", "# says the same\n" + text, reading()))

    assert bench.indices("other") == [1]


@pytest.mark.promise("index-3")
@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_a_pod_of_an_indexed_job_brings_its_completion_index(bench: Bench, scheduler: Command, where: str) -> None:
    """As label, and as annotation where the label is missing."""
    bench.node("node1")
    written = {where: {"batch.kubernetes.io/job-completion-index": "2"}}
    bench.make(
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

    placed = bench.placed("train-0-b7b7b")

    assert (placed.index, placed.devices) == (2, "2")


@pytest.mark.promise("index-2", "index-4")
def test_a_statefulset_may_start_at_another_ordinal(bench: Bench, scheduler: Command) -> None:
    """The label says it; where an old control plane gives no label, the name does."""
    bench.node("node1")
    text = "5=node1:5\n6=node1:6\n"
    owner = ("StatefulSet", "train")
    labels = {"apps.kubernetes.io/pod-index": "5"}
    bench.make(pod("train-5", text, literal("5"), owner=owner, labels=labels, generate_name="train-"))
    bench.make(pod("train-6", text, literal("6"), owner=owner, generate_name="train-"))

    assert bench.indices("train-5", "train-6") == [5, 6]


@pytest.mark.promise("index-1")
def test_the_annotation_decides_before_label_and_name(bench: Bench, scheduler: Command) -> None:
    """Annotation 2, label 1, name 0: it is 2."""
    bench.node("node1")
    labels = {"apps.kubernetes.io/pod-index": "1"}
    bench.make(pod("train-0", THREE, literal("2"), annotations={INDEX: "2"}, labels=labels))
    bench.make(pod("other-0", THREE, literal("1"), labels=labels))

    assert bench.indices("train-0", "other-0") == [2, 1]


@pytest.mark.promise("index-5")
def test_a_generated_name_of_digits_is_no_index(bench: Bench, scheduler: Command) -> None:
    """Suffix and hash may be digits by chance: 24567 is no line, and 4567 no Deployment's index."""
    bench.node("node1")
    text = "0=node1:0\n1=node1:1\n24567=node1:2\n"
    bench.make(pod("train-24567", text, reading(), generate_name="train-"))
    bench.make(replica("web", "4567", "24567", text))
    assert bench.indices("train-24567", "web-4567-24567")[0] == 0

    bench.delete("train-24567")
    bench.make(pod("train-24567", "24567=node1:3\n", literal("3")))

    assert bench.indices("train-24567") == [24567]


@pytest.mark.promise("index-20")
def test_kubeflows_replicas_are_dynamic_unless_annotated(bench: Bench, scheduler: Command) -> None:
    """A master-0 and a worker-0 of one job must not claim one line."""
    bench.node("node1")
    owner = ("PyTorchJob", "job")
    for kind in ("master", "worker"):
        labels = {"training.kubeflow.org/replica-type": kind, "training.kubeflow.org/replica-index": "0"}
        bench.make(pod(f"job-{kind}-0", THREE, reading(), owner=owner, labels=labels))
        bench.placed(f"job-{kind}-0")
    labels = {"training.kubeflow.org/replica-type": "worker"}
    bench.make(pod("job-worker-1", THREE, literal("2"), owner=owner, labels=labels, annotations={INDEX: "2"}))

    assert bench.indices("job-master-0", "job-worker-0", "job-worker-1") == [0, 1, 2]


@pytest.mark.promise("index-10", "env-8")
def test_the_form_of_the_environment_does_not_change_the_index(bench: Bench, scheduler: Command) -> None:
    """A static pod that reads its devices from the annotation still has its static index, held against the others."""
    bench.add(node("node1"))
    bench.make(pod("train-1", THREE, reading()))
    placed = bench.placed("train-1")
    assert (placed.index, placed.devices) == (1, "1")

    bench.make(pod("other-1", THREE, reading()))

    assert f"{bench.namespace}/train-1" in bench.wait_message("other-1", "IndexHeld: ")
