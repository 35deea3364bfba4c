"""A scheduler that starts after another one was killed rebuilds all indices from the pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.command import start_alone
from tests.objects import child, literal, pod
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace
    from tests.objects import Object

THREE = "0=node1:0\n1=node1:1\n2=node1:2\n"


@pytest.mark.promise("index-15", "index-17", "hold-8", "lead-3")
def test_indices_are_rebuilt_after_the_scheduler_was_killed(
    plane: ControlPlane, namespace: Namespace, tmp_path: Path
) -> None:
    """Bound pods are unchanged. A line that became free while no scheduler ran is given to the next pod."""
    namespace.node("node1")
    names = ("train-b7b7b", "train-c7c7c", "train-d7d7d")
    first = start_alone(plane, tmp_path, "before-0")
    first.wait_ready()
    for name in names:
        namespace.make(child("ReplicaSet", name, THREE))
        namespace.placed(name)
    before = {name: namespace.read(name) for name in names}

    first.kill()
    namespace.delete("train-c7c7c")
    namespace.make(child("ReplicaSet", "train-f7f7f", THREE))
    namespace.make(child("ReplicaSet", "train-g7g7g", THREE))
    with start_alone(plane, tmp_path, "after-0").serving():
        taken = eventually(
            "one of the two has the free line",
            lambda: [name for name in ("train-f7f7f", "train-g7g7g") if namespace.node_of(name)],
        )
        assert namespace.placed(taken[0]).index == 1
        (other,) = {"train-f7f7f", "train-g7g7g"} - set(taken)
        namespace.wait_message(other, "NoFreeIndex: ")
        for name in ("train-b7b7b", "train-d7d7d"):
            assert namespace.read(name) == before[name]


@pytest.mark.promise("together-2", "together-3")
def test_lines_are_kept_after_a_restart(plane: ControlPlane, namespace: Namespace, tmp_path: Path) -> None:
    """One pod is bound when the scheduler is killed. Without the annotation of its Binding, nothing would be kept."""
    namespace.node("node1")
    namespace.node("node2")
    first = start_alone(plane, tmp_path, "together-0")
    first.wait_ready()
    namespace.make(_member(1))
    namespace.placed("train-1")
    first.kill()
    namespace.make(pod("other", "0=node2:0\n", literal("0"), annotations={"agentaflow.gpu/index": "0"}))
    with start_alone(plane, tmp_path, "together-1").serving():
        namespace.wait_message("other", "GpuHeld: ", parts=("GPU 0", "node2", "StatefulSet "))
        namespace.make(_member(2))
        assert namespace.placed("train-2").node == "node2"
        namespace.kube.patch(
            f"{namespace.pods}/train-1", {"metadata": {"annotations": {"agentaflow.gpu/assigned-together": None}}}
        )
        namespace.delete("train-2")
        assert namespace.placed("other").node == "node2"


def _member(index: int) -> Object:
    """Return a pod of StatefulSet train, whose pods start together."""
    return pod(
        f"train-{index}",
        "0=node1:0\n1=node1:1\n2=node2:0\n",
        literal("0" if index == 2 else str(index)),
        annotations={"agentaflow.gpu/start": "together"},
        owner=("StatefulSet", "train"),
    )
