"""Which of several places an explanation puts first: its remedy is about that one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.explanation.explain import explain
from gpu_scheduler.core.filters.volumes import Volumes
from gpu_scheduler.core.nodes.inventory import counted
from gpu_scheduler.core.pods.constraints import Taint
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import Owner
from unit_tests.core.build import POLICY, ledger, node, nodes, pod, running

if TYPE_CHECKING:
    from gpu_scheduler.core.nodes.nodes import Node
    from gpu_scheduler.core.pods.pod import Pod

ALONE = Owner("StatefulSet", "other")
HOLDER = running("other-0", "node2", "0=node2:0", owner=ALONE)
HERE = running("other-0", "node1", "0=node1:0", owner=ALONE)
GOING = replace(HERE, deleting_since="2026-11-21T01:00:00Z")


def having(name: str, **others: object) -> Node:
    """Return a node with four GPUs."""
    return node(name, inventory=counted(4), **others)


NEARER: dict[str, tuple[tuple[Node, ...], tuple[Pod, ...], list[list[Reason]]]] = {
    "what passes is nearer than one obstacle that no waiting cures": (
        (having("node2", unschedulable=True, ready=False),),
        (HOLDER,),
        [[Reason.NODE_UNSCHEDULABLE, Reason.GPU_HELD, Reason.NODE_NOT_READY], [Reason.NODE_NOT_FOUND]],
    ),
    "fewer obstacles are nearer, whatever opens more commands": (
        (having("node1", unschedulable=True, taints=(Taint("a", "b", "NoSchedule"),)), having("node2", ready=False)),
        (),
        [[Reason.NODE_NOT_READY], [Reason.TAINT_NOT_TOLERATED, Reason.NODE_UNSCHEDULABLE]],
    ),
    "of as many, the one that a command opens": (
        (having("node1", ready=False), having("node2", unschedulable=True)),
        (),
        [[Reason.NODE_UNSCHEDULABLE], [Reason.NODE_NOT_READY]],
    ),
    "the end of a pod is such a command": (
        (having("node1"), having("node2")),
        (GOING, replace(HOLDER, ref=replace(HOLDER.ref, name="third-0", uid="third"))),
        [[Reason.GPU_HELD], [Reason.GPU_HELD]],
    ),
    "of as many with as many commands, the one that is reported last": (
        (having("node1", unschedulable=True), having("node2")),
        (HOLDER,),
        [[Reason.GPU_HELD], [Reason.NODE_UNSCHEDULABLE]],
    ),
}


@pytest.mark.promise("explain-3")
@pytest.mark.parametrize(("known", "held", "expected"), NEARER.values(), ids=NEARER)
def test_the_remedy_is_about_the_nearest_line(
    known: tuple[Node, ...], held: tuple[Pod, ...], expected: list[list[Reason]]
) -> None:
    """The pod may take either line; that of node2 is the nearer one, and stands second in the map."""
    pending = pod("web-1-a", "0=node1:0\n1=node2:0", owner=Owner("ReplicaSet", "web-1"), generate_name="web-1-")
    cluster = nodes(*known)
    found = explain(pending, Cluster(ledger(*held, known=cluster), cluster, Volumes(), POLICY), {})

    assert [[each.reason for each in place.obstacles] for place in found.places] == expected
    assert [place.node for place in found.places] == ["node2", "node1"]
    assert found.remedy is not None
    assert found.remedy.node == "node2"
