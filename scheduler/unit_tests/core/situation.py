"""A pod and a cluster with chosen faults: every reason that a pod with a line of a map can wait for."""

from dataclasses import dataclass, replace

from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.decision import Decision
from gpu_scheduler.core.filters.volumes import Volume, VolumeClaim, Volumes
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.cordons import Cordon
from gpu_scheduler.core.nodes.inventory import DeviceReading, Health, counted
from gpu_scheduler.core.nodes.nodes import Node, Nodes
from gpu_scheduler.core.pods.constraints import SchedulingConstraints, Taint
from gpu_scheduler.core.pods.placement import Assignment
from gpu_scheduler.core.pods.pod import ForeignPod, HostPort, Pod, ResourceRequest
from gpu_scheduler.core.reasons import RankedReason, Reason
from gpu_scheduler.core.refs import Owner, PodRef
from unit_tests.core.build import POLICY, ROOM, container, node, pod, running

GPU = "nvidia.com/gpu"
PORT = HostPort("TCP", "0.0.0.0", 80)  # noqa: S104 - every address of the host
OTHER = Owner("StatefulSet", "other")

TOO_LARGE: RankedReason = (Reason.INSUFFICIENT_RESOURCES, True)
# Reasons that the situation below cannot have are missing: quota, devices of a plugin, and those of pods by count.
ORDER: tuple[RankedReason, ...] = (
    (Reason.MAP_INVALID, False),
    (Reason.REQUEST_INVALID, False),
    (Reason.UNSUPPORTED, False),
    (Reason.INDEX_UNKNOWN, False),
    (Reason.INDEX_NOT_IN_MAP, False),
    (Reason.ENV_CONFLICT, False),
    (Reason.ENV_NOT_INJECTED, False),
    (Reason.NODE_NOT_FOUND, False),
    (Reason.GPU_NOT_FOUND, False),
    (Reason.NODE_AFFINITY_MISMATCH, False),
    TOO_LARGE,
    (Reason.TAINT_NOT_TOLERATED, False),
    (Reason.NODE_UNSCHEDULABLE, False),
    (Reason.GPU_CORDONED, False),
    (Reason.GPU_UNHEALTHY, False),
    (Reason.INDEX_HELD, False),
    (Reason.GPU_HELD, False),
    (Reason.NODE_NOT_READY, False),
    (Reason.INSUFFICIENT_RESOURCES, False),
    (Reason.PORT_IN_USE, False),
    (Reason.VOLUME_NOT_BOUND, False),
)
IDS = [f"{reason}{', more than there is' if beyond else ''}" for reason, beyond in ORDER]


@dataclass
class Situation:
    """A pod and a cluster with the given faults."""

    faults: frozenset[RankedReason]

    def has(self, reason: Reason) -> bool:
        """Return whether the reason is among the faults."""
        return (reason, False) in self.faults

    def pod(self) -> Pod:
        """Return the pod, whose line is `1=node1:1`."""
        annotations = {
            **({"agentaflow.gpu/observer": "yes"} if self.has(Reason.REQUEST_INVALID) else {}),
            **({"agentaflow.gpu/index": "one"} if self.has(Reason.INDEX_UNKNOWN) else {}),
        }
        kept = (*pod("train-1", "1=node1:1").environment.containers,)
        if self.has(Reason.ENV_CONFLICT):
            kept += (container(pod("a-0", "0=node1:7").environment.containers[0].env, position=1, name="odd"),)
        if self.has(Reason.ENV_NOT_INJECTED):
            kept = (container(None, name="bare"), *kept)
        return pod(
            "train-9" if self.has(Reason.INDEX_NOT_IN_MAP) else "train-1",
            "nonsense" if self.has(Reason.MAP_INVALID) else "0=node1:0\n1=node1:1",
            annotations=annotations,
            unsupported=("spec.resourceClaims",) if self.has(Reason.UNSUPPORTED) else (),
            constraints=SchedulingConstraints(selector={"zone": "a"}),
            resource_request=ResourceRequest({"cpu": 1000}, frozenset({PORT})),
            claims=("data",),
            containers=kept,
        )

    def nodes(self) -> Nodes:
        """Return node1, unless the fault is that it is missing."""
        result = Nodes()
        if not self.has(Reason.NODE_NOT_FOUND):
            result.apply(self.node())
        return result

    def node(self) -> Node:
        return node(
            "node1",
            ready=not self.has(Reason.NODE_NOT_READY),
            unschedulable=self.has(Reason.NODE_UNSCHEDULABLE),
            taints=(Taint("dedicated", "", "NoSchedule"),) if self.has(Reason.TAINT_NOT_TOLERATED) else (),
            labels={} if self.has(Reason.NODE_AFFINITY_MISMATCH) else {"zone": "a"},
            inventory=counted(1 if self.has(Reason.GPU_NOT_FOUND) else 4),
            cordons=(Cordon("1"),) if self.has(Reason.GPU_CORDONED) else (),
            readings={1: DeviceReading(health=Health.UNHEALTHY)} if self.has(Reason.GPU_UNHEALTHY) else {},
            allocatable={**ROOM, "cpu": 500 if TOO_LARGE in self.faults else 1500},
        )

    def ledger(self, nodes: Nodes) -> Ledger:
        """Return the ledger, with holders of the pod's index, its GPU and its port where these are faults."""
        result = Ledger(POLICY)
        for each in nodes:
            result.apply_node(each)
        if self.has(Reason.INDEX_HELD):
            twin = running("train-a", "node1", "0=node1:0\n1=node1:1", annotations={"agentaflow.gpu/index": "1"})
            result.apply(replace(twin, assignment=Assignment(())))
        if self.has(Reason.GPU_HELD):
            result.apply(running("other-0", "node1", "0=node1:1", owner=OTHER))
        if self.has(Reason.INSUFFICIENT_RESOURCES):
            busy = ForeignPod(PodRef("other", "busy", "uid-busy"), "node1", ResourceRequest({"cpu": 1000}))
            result.apply_foreign_pod(busy)
        if self.has(Reason.PORT_IN_USE):
            web = ForeignPod(PodRef("other", "web", "uid-web"), "node1", ResourceRequest(ports=frozenset({PORT})))
            result.apply_foreign_pod(web)
        return result

    def volumes(self) -> Volumes:
        """Return the pod's claim, bound, or nothing where that is a fault."""
        result = Volumes()
        if not self.has(Reason.VOLUME_NOT_BOUND):
            result.claim_applied(VolumeClaim("default", "data", volume="pv-1"))
            result.volume_applied(Volume("pv-1"))
        return result

    def cluster(self) -> Cluster:
        nodes = self.nodes()
        return Cluster(self.ledger(nodes), nodes, self.volumes(), POLICY)

    def decision(self) -> Decision | None:
        return decide(self.pod(), self.cluster())
