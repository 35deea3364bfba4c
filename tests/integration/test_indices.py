"""Which line is free: pods without an index of their own share out the lines of their map.

No controller runs here: pods come with the names, labels and owners that controllers give them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.command import start_alone
from tests.objects import child
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.bench import Bench
    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane

THREE = "0=node1:0\n1=node1:1\n2=node1:2\n"
INDEX = "agentaflow.gpu/index"


@pytest.mark.promise("index-6", "index-11", "env-5", "env-6")
def test_pods_without_an_index_share_out_the_lines(bench: Bench, scheduler: Command) -> None:
    """First come, lowest line; node, devices and index come in the one write that the containers read."""
    bench.node("node1")
    bench.node("node2")
    given = []
    for name in ("train-b7b7b", "train-c7c7c", "train-d7d7d"):
        bench.make(child("ReplicaSet", name, "0=node1:0,1\n1=node2:3\n5=node1:2\n"))
        given.append(bench.placed(name))

    assert [(one.index, one.node, one.devices) for one in given] == [
        (0, "node1", "0,1"),
        (1, "node2", "3"),
        (5, "node1", "2"),
    ]


@pytest.mark.promise("index-11")
def test_a_line_that_is_not_possible_now_is_passed_over(bench: Bench, scheduler: Command) -> None:
    """The lowest free line whose node can take the pod wins; the one passed over is given as soon as it is possible."""
    bench.node("node1", unschedulable=True)
    bench.node("node2")
    text = "0=node1:0\n1=node2:0\n"
    bench.make(child("ReplicaSet", "train-b7b7b", text))
    assert bench.placed("train-b7b7b").index == 1

    bench.make(child("ReplicaSet", "train-c7c7c", text))
    bench.wait_message("train-c7c7c", "NodeUnschedulable: ")
    bench.cordon("node1", cordoned=False)

    assert bench.placed("train-c7c7c").index == 0


@pytest.mark.promise("index-11")
def test_a_line_that_a_waiting_pod_brings_along_is_left_to_it(bench: Bench, scheduler: Command) -> None:
    """A static pod waits for its node's label; until then its line is nobody else's, and it goes when that pod goes."""
    bench.node("node1")
    claims = {INDEX: "0"}
    bench.make(child("Job", "train-b7b7b", THREE, annotations=claims, nodeSelector={"tier": "gold"}))
    bench.wait_message("train-b7b7b", "NodeAffinityMismatch: ")
    bench.make(child("Job", "train-c7c7c", THREE))
    assert bench.placed("train-c7c7c").index == 1

    bench.delete("train-b7b7b")
    bench.make(child("Job", "train-d7d7d", THREE))

    assert bench.placed("train-d7d7d").index == 0


@pytest.mark.promise("index-12", "index-17", "hold-1")
def test_the_line_of_a_pod_that_has_gone_is_given_again(bench: Bench, scheduler: Command) -> None:
    """Deleted, succeeded or failed: nothing is remembered of it."""
    bench.node("node1")
    names = ("train-b7b7b", "train-c7c7c", "train-d7d7d")
    for name in names:
        bench.make(child("Job", name, THREE))
        bench.placed(name)
    ends: list[Callable[[str], object]] = [bench.delete, bench.finish, lambda name: bench.finish(name, "Failed")]

    for name, late, end in zip(names, ("train-f7f7f", "train-g7g7g", "train-h7h7h"), ends, strict=True):
        bench.make(child("Job", late, THREE))
        assert f"{bench.namespace}/" in bench.wait_message(late, "NoFreeIndex: ")
        index = bench.placed(name).index
        end(name)
        assert bench.placed(late, seconds=3).index == index


@pytest.mark.promise("index-9", "hold-2")
def test_a_terminating_pod_keeps_its_line(bench: Bench, scheduler: Command) -> None:
    """Its containers may still run; who waits is told whom for."""
    bench.node("node1")
    bench.make(child("ReplicaSet", "train-b7b7b", "0=node1:0\n"))
    bench.placed("train-b7b7b")
    bench.terminate("train-b7b7b")
    bench.make(child("ReplicaSet", "train-c7c7c", "0=node1:0\n"))

    message = bench.wait_message("train-c7c7c", "NoFreeIndex: ")

    assert f"{bench.namespace}/train-b7b7b" in message
    bench.delete("train-b7b7b")
    assert bench.placed("train-c7c7c", seconds=3).index == 0


@pytest.mark.promise("index-15", "index-17", "hold-8", "lead-3")
def test_indices_are_rebuilt_after_the_scheduler_was_killed(plane: ControlPlane, bench: Bench, tmp_path: Path) -> None:
    """Nothing moves, a line that became free meanwhile is known to be free, and the next pod gets it."""
    bench.node("node1")
    names = ("train-b7b7b", "train-c7c7c", "train-d7d7d")
    first = start_alone(plane, tmp_path, "before-0")
    first.wait_ready()
    for name in names:
        bench.make(child("ReplicaSet", name, THREE))
        bench.placed(name)
    before = {name: bench.read(name) for name in names}

    first.kill()
    bench.delete("train-c7c7c")
    bench.make(child("ReplicaSet", "train-f7f7f", THREE))
    bench.make(child("ReplicaSet", "train-g7g7g", THREE))
    second = start_alone(plane, tmp_path, "after-0")
    try:
        second.wait_ready()
        taken = eventually(
            "one of the two has the free line",
            lambda: [name for name in ("train-f7f7f", "train-g7g7g") if bench.node_of(name)],
        )
        assert bench.placed(taken[0]).index == 1
        (other,) = {"train-f7f7f", "train-g7g7g"} - set(taken)
        bench.wait_message(other, "NoFreeIndex: ")
        for name in ("train-b7b7b", "train-d7d7d"):
            assert bench.read(name) == before[name]
    finally:
        second.process.stop()


@pytest.mark.promise("index-16", "index-15")
def test_a_container_that_restarts_keeps_index_and_devices(bench: Bench, scheduler: Command) -> None:
    """What a pod was given stands in the pod; its containers' lives change nothing."""
    bench.node("node1")
    bench.make(child("ReplicaSet", "train-b7b7b", THREE))
    given = bench.placed("train-b7b7b")
    restarted = {"name": "main", "restartCount": 3, "ready": False, "image": "", "imageID": ""}

    path = f"{bench.pods}/train-b7b7b/status"
    bench.kube.patch(path, {"status": {"phase": "Running", "containerStatuses": [restarted]}})
    bench.make(child("ReplicaSet", "train-c7c7c", THREE))

    assert bench.placed("train-c7c7c").index == 1
    assert bench.placed("train-b7b7b") == given


@pytest.mark.promise("index-11", "index-14")
def test_a_hundred_pods_at_once_get_a_hundred_lines(bench: Bench, scheduler: Command) -> None:
    """Each line once, none left over."""
    bench.node("node1")
    count = 100
    text = "".join(f"{index}=node1:{index}\n" for index in range(count))
    names = [f"train-{letter}{other}x9x" for letter in "bcdfghjklm" for other in "bcdfghjklm"]
    for name in names:
        bench.make(child("Job", name, text))

    assert sorted(bench.indices(*names)) == list(range(count))
