from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from gpu_scheduler.controller.gpu_node_reconciler import GpuNodeReconciler
from gpu_scheduler.controller.gpu_node_status import Allocations, GpuNode
from gpu_scheduler.controller.reconcile_loop import ReconcileError
from unit_tests.core.build import node, pod, running

GPU_NODE = GpuNode("node1", 1)
OBSERVER = {"agentaflow.gpu/observer": "true"}


@dataclass
class Cluster:
    refuses: bool = False
    cordoned: bool = False
    written: list[Allocations] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.nodes = GpuNodeReconciler(
            self, self.added.append, clock=lambda: self.now, wall=lambda: datetime(2026, 11, 21, tzinfo=UTC)
        )

    async def write(self, name: str, occupied: Allocations) -> bool:
        assert name == "node1"
        if not self.refuses:
            self.written.append(occupied)
            self.nodes.gpu_nodes.applied(replace(GPU_NODE, occupied=occupied, cordoned=self.cordoned))
        return not self.refuses

    async def delete(self, gpu_node: GpuNode) -> bool:
        if not self.refuses:
            self.deleted.append(gpu_node.name)
        return not self.refuses

    async def reconcile(self) -> int:
        """Reconcile node1 a second after the last time; return the number of devices in the last status."""
        self.now += 1
        await self.nodes.reconcile("node1")
        return self.written[-1].allocated


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.nodes.nodes.applied(node("node1"))
    made.nodes.gpu_nodes.applied(GPU_NODE)
    return made


@pytest.mark.promise("order-9")
async def test_allocations_follow_the_pods(cluster: Cluster) -> None:
    """Bound pods hold devices; finished and deleted pods and observers do not. Each change is written once."""
    bound = running("train-0", "node1")
    assert await cluster.reconcile() == 0
    for shown in (pod("train-0"), bound, bound, running("watch-0", "node1", annotations=OBSERVER)):
        cluster.nodes.pods.applied(shown)
        await cluster.reconcile()
    assert [each.allocated for each in cluster.written] == [0, 2]

    cluster.nodes.pods.applied(replace(bound, phase="Succeeded"))
    assert await cluster.reconcile() == 0
    cluster.nodes.pods.applied(bound)
    assert await cluster.reconcile() == 2
    cluster.nodes.pods.forgotten(bound)
    cluster.nodes.pods.forgotten(pod("train-1"))
    assert await cluster.reconcile() == 0
    assert set(cluster.added) == {"node1"}


@pytest.mark.promise("cordon-3")
async def test_a_node_that_is_not_ready_or_gone_is_reported(cluster: Cluster) -> None:
    """Together with the pods that still hold its devices. A GPUNode with a cordon is kept although its node is gone."""
    cluster.cordoned = True
    cluster.nodes.pods.applied(running("train-0", "node1"))
    cluster.nodes.nodes.applied(node("node1", ready=False))
    assert await cluster.reconcile() == 2
    cluster.nodes.nodes.forgotten(node("node1"))
    assert await cluster.reconcile() == 2

    assert [each.conditions[0].reason for each in cluster.written] == ["NodeNotReady", "NodeNotFound"]
    assert cluster.deleted == []


async def test_a_gpunode_without_cordons_is_deleted_after_its_node(cluster: Cluster) -> None:
    """Also after a refusal, when it is reconciled again."""
    cluster.nodes.nodes.forgotten(node("node1"))
    cluster.refuses = True
    with pytest.raises(ReconcileError, match="it could not be deleted after its node"):
        await cluster.nodes.reconcile("node1")
    cluster.refuses = False

    assert await cluster.nodes.reconcile("node1") is None
    assert cluster.deleted == ["node1"]
    assert cluster.written == []


async def test_a_node_without_a_gpunode_is_ignored(cluster: Cluster) -> None:
    """The monitor creates GPUNodes; the controller does not."""
    cluster.nodes.gpu_nodes.forgotten(GPU_NODE)
    assert await cluster.nodes.reconcile("node1") is None
    assert await cluster.nodes.reconcile("node2") is None

    assert cluster.written == []


async def test_a_busy_node_is_written_once_a_second(cluster: Cluster) -> None:
    """Changes within a second are written together."""
    await cluster.reconcile()
    cluster.now += 0.25
    for number in range(3):
        cluster.nodes.pods.applied(running(f"train-{number}", "node1", "0=node1:0\n1=node1:1\n2=node1:2"))
        assert await cluster.nodes.reconcile("node1") == 0.75
    assert [await cluster.reconcile(), len(cluster.written)] == [3, 2]


async def test_a_status_that_cannot_be_written_fails_the_reconcile(cluster: Cluster) -> None:
    """The reconcile is then repeated."""
    cluster.refuses = True
    with pytest.raises(ReconcileError):
        await cluster.nodes.reconcile("node1")
