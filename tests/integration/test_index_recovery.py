"""A scheduler that starts after another one was killed rebuilds all indices from the pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.command import start_alone
from tests.objects import child
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace

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
    second = start_alone(plane, tmp_path, "after-0")
    try:
        second.wait_ready()
        taken = eventually(
            "one of the two has the free line",
            lambda: [name for name in ("train-f7f7f", "train-g7g7g") if namespace.node_of(name)],
        )
        assert namespace.placed(taken[0]).index == 1
        (other,) = {"train-f7f7f", "train-g7g7g"} - set(taken)
        namespace.wait_message(other, "NoFreeIndex: ")
        for name in ("train-b7b7b", "train-d7d7d"):
            assert namespace.read(name) == before[name]
    finally:
        second.process.stop()
