from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from gpu_scheduler.controller.gpu_node_reconciler import GpuNodeReconciler
from gpu_scheduler.controller.gpu_node_status import Allocations, GpuNode
from gpu_scheduler.controller.reconcile_loop import ReconcileError
from tests.core.build import node, pod, running

TOLD = GpuNode("node1", 1)
OBSERVER = {"agentaflow.gpu/observer": "true"}


@dataclass
class Cluster:
    """A GPUNode's status in memory."""

    deaf: bool = False
    told: list[Allocations] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.nodes = GpuNodeReconciler(
            self, self.added.append, clock=lambda: self.now, wall=lambda: datetime(2026, 11, 21, tzinfo=UTC)
        )

    async def write(self, name: str, occupied: Allocations) -> bool:
        """See NodeWriter."""
        assert name == "node1"
        if not self.deaf:
            self.told.append(occupied)
            self.nodes.gpu_nodes.applied(replace(TOLD, occupied=occupied))
        return not self.deaf

    async def look(self) -> int:
        """Look at node1, some time after the last look; answers how many cards were told last."""
        self.now += 1
        await self.nodes.reconcile("node1")
        return self.told[-1].allocated


@pytest.fixture
def cluster() -> Cluster:
    """A node with its GPUNode."""
    made = Cluster()
    made.nodes.nodes.applied(node("node1"))
    made.nodes.gpu_nodes.applied(TOLD)
    return made


async def test_pods_come_and_go(cluster: Cluster) -> None:
    """Bound pods hold, finished and forgotten ones do not, observers never did; each change is told once."""
    bound = running("train-0", "node1")
    assert await cluster.look() == 0
    for shown in (pod("train-0"), bound, bound, running("watch-0", "node1", annotations=OBSERVER)):
        cluster.nodes.pods.applied(shown)
        await cluster.look()
    assert [each.allocated for each in cluster.told] == [0, 2]

    cluster.nodes.pods.applied(replace(bound, phase="Succeeded"))
    assert await cluster.look() == 0
    cluster.nodes.pods.applied(bound)
    assert await cluster.look() == 2
    cluster.nodes.pods.forgotten(bound)
    cluster.nodes.pods.forgotten(pod("train-1"))
    assert await cluster.look() == 0
    assert set(cluster.added) == {"node1"}


async def test_a_node_that_is_not_ready_or_gone_is_told(cluster: Cluster) -> None:
    """And who still holds its cards."""
    cluster.nodes.pods.applied(running("train-0", "node1"))
    cluster.nodes.nodes.applied(node("node1", ready=False))
    assert await cluster.look() == 2
    cluster.nodes.nodes.forgotten(node("node1"))
    assert await cluster.look() == 2

    assert [each.conditions[0].reason for each in cluster.told] == ["NodeNotReady", "NodeNotFound"]


async def test_what_has_no_gpunode_is_left_alone(cluster: Cluster) -> None:
    """The monitor makes them, not we."""
    cluster.nodes.gpu_nodes.forgotten(TOLD)
    assert await cluster.nodes.reconcile("node1") is None
    assert await cluster.nodes.reconcile("node2") is None

    assert cluster.told == []


async def test_a_busy_node_is_told_of_once_a_second(cluster: Cluster) -> None:
    """What happens meanwhile is told together."""
    await cluster.look()
    cluster.now += 0.25
    for number in range(3):
        cluster.nodes.pods.applied(running(f"train-{number}", "node1", "0=node1:0\n1=node1:1\n2=node1:2"))
        assert await cluster.nodes.reconcile("node1") == 0.75
    assert [await cluster.look(), len(cluster.told)] == [3, 2]


async def test_a_status_that_cannot_be_written_is_a_failed_look(cluster: Cluster) -> None:
    """So it is repeated."""
    cluster.deaf = True
    with pytest.raises(ReconcileError):
        await cluster.nodes.reconcile("node1")
