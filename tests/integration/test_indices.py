"""Pods without a static index take the free lines of their map.

No controller runs here: the tests create pods with the names, labels and owners that controllers give them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.objects import child

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.command import Command
    from tests.integration.namespace import Namespace

THREE = "0=node1:0\n1=node1:1\n2=node1:2\n"
INDEX = "agentaflow.gpu/index"


@pytest.mark.promise("index-6", "index-11", "env-5", "env-6")
def test_pods_without_an_index_get_the_free_lines_in_order(namespace: Namespace, scheduler: Command) -> None:
    """The first pod gets the lowest line. The Binding writes node, devices and index, which the containers read."""
    namespace.node("node1")
    namespace.node("node2")
    given = []
    for name in ("train-b7b7b", "train-c7c7c", "train-d7d7d"):
        namespace.make(child("ReplicaSet", name, "0=node1:0,1\n1=node2:3\n5=node1:2\n"))
        given.append(namespace.placed(name))

    assert [(one.index, one.node, one.devices) for one in given] == [
        (0, "node1", "0,1"),
        (1, "node2", "3"),
        (5, "node1", "2"),
    ]


@pytest.mark.promise("index-11")
def test_a_line_that_is_not_possible_now_is_skipped(namespace: Namespace, scheduler: Command) -> None:
    """The pod gets the lowest free line whose node accepts it. The other line is given when its node accepts pods."""
    namespace.node("node1", unschedulable=True)
    namespace.node("node2")
    text = "0=node1:0\n1=node2:0\n"
    namespace.make(child("ReplicaSet", "train-b7b7b", text))
    assert namespace.placed("train-b7b7b").index == 1

    namespace.make(child("ReplicaSet", "train-c7c7c", text))
    namespace.wait_message("train-c7c7c", "NodeUnschedulable: ")
    namespace.cordon("node1", cordoned=False)

    assert namespace.placed("train-c7c7c").index == 0


@pytest.mark.promise("index-11")
def test_the_line_of_a_waiting_static_pod_is_given_to_no_other_pod(namespace: Namespace, scheduler: Command) -> None:
    """A pod with static index 0 waits for a node label. Another pod gets line 0 only when that pod is deleted."""
    namespace.node("node1")
    claims = {INDEX: "0"}
    namespace.make(child("Job", "train-b7b7b", THREE, annotations=claims, nodeSelector={"tier": "gold"}))
    namespace.wait_message("train-b7b7b", "NodeAffinityMismatch: ")
    namespace.make(child("Job", "train-c7c7c", THREE))
    assert namespace.placed("train-c7c7c").index == 1

    namespace.delete("train-b7b7b")
    namespace.make(child("Job", "train-d7d7d", THREE))

    assert namespace.placed("train-d7d7d").index == 0


@pytest.mark.promise("index-12", "index-17", "hold-1")
def test_the_line_of_a_deleted_or_finished_pod_is_given_again(namespace: Namespace, scheduler: Command) -> None:
    """A deleted, a succeeded and a failed pod hold no line."""
    namespace.node("node1")
    names = ("train-b7b7b", "train-c7c7c", "train-d7d7d")
    for name in names:
        namespace.make(child("Job", name, THREE))
        namespace.placed(name)
    ends: list[Callable[[str], object]] = [
        namespace.delete,
        namespace.finish,
        lambda name: namespace.finish(name, "Failed"),
    ]

    for name, late, end in zip(names, ("train-f7f7f", "train-g7g7g", "train-h7h7h"), ends, strict=True):
        namespace.make(child("Job", late, THREE))
        assert f"{namespace.name}/" in namespace.wait_message(late, "NoFreeIndex: ")
        index = namespace.placed(name).index
        end(name)
        assert namespace.placed(late).index == index


@pytest.mark.promise("index-9", "hold-2")
def test_a_terminating_pod_keeps_its_line(namespace: Namespace, scheduler: Command) -> None:
    """Its containers may still run. The message of the waiting pod names the terminating one."""
    namespace.node("node1")
    namespace.make(child("ReplicaSet", "train-b7b7b", "0=node1:0\n"))
    namespace.placed("train-b7b7b")
    namespace.terminate("train-b7b7b")
    namespace.make(child("ReplicaSet", "train-c7c7c", "0=node1:0\n"))

    message = namespace.wait_message("train-c7c7c", "NoFreeIndex: ")

    assert f"{namespace.name}/train-b7b7b" in message
    namespace.delete("train-b7b7b")
    assert namespace.placed("train-c7c7c").index == 0


@pytest.mark.promise("index-16", "index-15")
def test_a_container_that_restarts_keeps_index_and_devices(namespace: Namespace, scheduler: Command) -> None:
    """The placement is stored in the pod's annotations, so a restart of a container changes nothing."""
    namespace.node("node1")
    namespace.make(child("ReplicaSet", "train-b7b7b", THREE))
    given = namespace.placed("train-b7b7b")
    restarted = {"name": "main", "restartCount": 3, "ready": False, "image": "", "imageID": ""}

    path = f"{namespace.pods}/train-b7b7b/status"
    namespace.kube.patch(path, {"status": {"phase": "Running", "containerStatuses": [restarted]}})
    namespace.make(child("ReplicaSet", "train-c7c7c", THREE))

    assert namespace.placed("train-c7c7c").index == 1
    assert namespace.placed("train-b7b7b") == given


@pytest.mark.promise("index-11")
def test_a_hundred_pods_at_once_get_a_hundred_lines(namespace: Namespace, scheduler: Command) -> None:
    """Each line is given once, and none stays free."""
    namespace.node("node1")
    count = 100
    text = "".join(f"{index}=node1:{index}\n" for index in range(count))
    names = [f"train-{character}{other}x9x" for character in "bcdfghjklm" for other in "bcdfghjklm"]
    for name in names:
        namespace.make(child("Job", name, text))

    assert sorted(namespace.indices(*names)) == list(range(count))
