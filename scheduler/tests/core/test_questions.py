"""The order of the questions: a pod with every fault hears of the first, cures it, and hears of the next."""

from dataclasses import dataclass, replace

import pytest

from gpu_scheduler.core.cluster_events import ClusterEvent
from gpu_scheduler.core.decide import Cluster, decide
from gpu_scheduler.core.decision import Bind, Decision, Refuse, Wait
from gpu_scheduler.core.filters.volumes import Volume, VolumeClaim, Volumes
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.inventory import DeviceReading, Health, counted
from gpu_scheduler.core.nodes.nodes import Node, Nodes
from gpu_scheduler.core.pods.constraints import SchedulingConstraints, Taint, Toleration
from gpu_scheduler.core.pods.placement import Assignment
from gpu_scheduler.core.pods.pod import ForeignPod, HostPort, Pod, ResourceRequest
from gpu_scheduler.core.reasons import REFUSED_AT_ADMISSION, Reason
from gpu_scheduler.core.refs import Owner, PodRef
from tests.core.build import POLICY, ROOM, container, node, pod, running

GPU = "nvidia.com/gpu"
PORT = HostPort("TCP", "0.0.0.0", 80)  # noqa: S104 - every address of the host
OTHER = Owner("StatefulSet", "other")

# Cards of a plugin are another world than cards by name; they have their turn below.
ORDER = (
    Reason.MAP_INVALID,
    Reason.REQUEST_INVALID,
    Reason.UNSUPPORTED,
    Reason.INDEX_UNKNOWN,
    Reason.INDEX_NOT_IN_MAP,
    Reason.ENV_CONFLICT,
    Reason.ENV_NOT_INJECTED,
    Reason.NODE_NOT_FOUND,
    Reason.GPU_NOT_FOUND,
    Reason.INDEX_HELD,
    Reason.GPU_HELD,
    Reason.GPU_UNHEALTHY,
    Reason.NODE_NOT_READY,
    Reason.NODE_UNSCHEDULABLE,
    Reason.TAINT_NOT_TOLERATED,
    Reason.NODE_AFFINITY_MISMATCH,
    Reason.INSUFFICIENT_RESOURCES,
    Reason.PORT_IN_USE,
    Reason.VOLUME_NOT_BOUND,
)


@dataclass
class Situation:
    """A pod and a cluster; every fault that is named is there."""

    faults: frozenset[Reason]

    def has(self, *reasons: Reason) -> bool:
        """Whether one of them is among the faults."""
        return not self.faults.isdisjoint(reasons)

    def pod(self) -> Pod:
        """Its line is `1=node1:1`."""
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
        """node1, if it is there."""
        result = Nodes()
        if not self.has(Reason.NODE_NOT_FOUND):
            result.apply(self.node())
        return result

    def node(self) -> Node:
        """node1."""
        return node(
            "node1",
            ready=not self.has(Reason.NODE_NOT_READY),
            unschedulable=self.has(Reason.NODE_UNSCHEDULABLE),
            taints=(Taint("dedicated", "", "NoSchedule"),) if self.has(Reason.TAINT_NOT_TOLERATED) else (),
            labels={} if self.has(Reason.NODE_AFFINITY_MISMATCH) else {"zone": "a"},
            inventory=counted(1 if self.has(Reason.GPU_NOT_FOUND) else 4),
            readings={1: DeviceReading(health=Health.UNHEALTHY)} if self.has(Reason.GPU_UNHEALTHY) else {},
            allocatable={**ROOM, "cpu": 500} if self.has(Reason.INSUFFICIENT_RESOURCES) else ROOM,
        )

    def ledger(self, nodes: Nodes) -> Ledger:
        """Who holds the pod's index, its GPU and its port."""
        result = Ledger(POLICY)
        for each in nodes:
            result.apply_node(each)
        if self.has(Reason.INDEX_HELD):
            twin = running("train-a", "node1", "0=node1:0\n1=node1:1", annotations={"agentaflow.gpu/index": "1"})
            result.apply(replace(twin, assignment=Assignment(())))
        if self.has(Reason.GPU_HELD):
            result.apply(running("other-0", "node1", "0=node1:1", owner=OTHER))
        if self.has(Reason.PORT_IN_USE):
            web = ForeignPod(PodRef("other", "web", "uid-web"), "node1", ResourceRequest(ports=frozenset({PORT})))
            result.apply_foreign_pod(web)
        return result

    def volumes(self) -> Volumes:
        """The pod's claim, bound or not there."""
        result = Volumes()
        if not self.has(Reason.VOLUME_NOT_BOUND):
            result.claim_applied(VolumeClaim("default", "data", volume="pv-1"))
            result.volume_applied(Volume("pv-1"))
        return result

    def decision(self) -> Decision | None:
        """What becomes of the pod."""
        nodes = self.nodes()
        return decide(self.pod(), Cluster(self.ledger(nodes), nodes, self.volumes(), POLICY))


def test_without_a_fault_it_is_placed() -> None:
    """The faults below are the only ones."""
    assert isinstance(Situation(frozenset()).decision(), Bind)


@pytest.mark.parametrize("number", range(len(ORDER)), ids=ORDER)
def test_the_first_fault_is_told(number: int) -> None:
    """With all later ones beside it, or alone: the story is the same, and starts with its word."""
    for faults in (ORDER[number:], ORDER[number : number + 1]):
        decision = Situation(frozenset(faults)).decision()
        assert isinstance(decision, Wait | Refuse)
        assert decision.reason is ORDER[number]
        assert decision.message.startswith(f"{ORDER[number]}: ")
        assert isinstance(decision, Refuse) == (decision.reason in REFUSED_AT_ADMISSION)


def news(before: Situation, after: Situation) -> frozenset[ClusterEvent]:
    """What the watches tell when the cluster's one fault goes away."""
    nodes, ledger, volumes = before.nodes(), before.ledger(before.nodes()), before.volumes()
    cured_by = nodes.apply(after.node()) | ledger.apply_node(after.node())
    for uid in ("uid-of-default/train-a", "uid-of-default/other-0", "uid-web"):
        cured_by |= ledger.forget(uid)
    cured_by |= volumes.claim_applied(VolumeClaim("default", "data", volume="pv-1"))
    return cured_by | volumes.volume_applied(Volume("pv-1"))


WAITS = tuple(reason for reason in ORDER if reason not in REFUSED_AT_ADMISSION | {Reason.ENV_NOT_INJECTED})


@pytest.mark.parametrize("reason", WAITS, ids=WAITS)
def test_the_cure_of_a_wait_wakes_the_pod(reason: Reason) -> None:
    """Whatever the pod waits for, the change that ends the wait is among its wakes."""
    ill, well = Situation(frozenset({reason})), Situation(frozenset())
    decision = ill.decision()

    assert isinstance(decision, Wait)
    assert decision.cured_by & news(ill, well)


def test_cards_of_a_plugin_are_asked_for_before_the_node_is() -> None:
    """Where a plugin hands out cards: who holds them, whether any are left, then the node's state."""
    limited = pod(
        "train-0",
        "0=node1:",
        gpu_limits=(("main", 2),),
        resource_request=ResourceRequest({GPU: 2}),
        containers=pod(gpu_limits=(("main", 1),)).environment.containers,
    )
    told = []
    for faults in ({"held", "few", "down"}, {"few", "down"}, {"down"}, set()):
        there = node(
            "node1",
            advertised=4,
            ready="down" not in faults,
            allocatable={**ROOM, GPU: 1 if "few" in faults else 4},
        )
        nodes = Nodes()
        nodes.apply(there)
        ledger = Ledger(POLICY)
        ledger.apply_node(there)
        if "held" in faults:
            ledger.apply(running("other-0", "node1", "0=node1:1", owner=OTHER))
        decision = decide(limited, Cluster(ledger, nodes, Volumes(), POLICY))
        told.append("Bound" if isinstance(decision, Bind) else getattr(decision, "reason", None))

    assert told == [Reason.GPU_HELD, Reason.NOT_ENOUGH_GPUS, Reason.NODE_NOT_READY, "Bound"]


def test_a_pod_that_tolerates_the_cordon_passes_it() -> None:
    """As a DaemonSet's pods do."""
    situation = Situation(frozenset({Reason.NODE_UNSCHEDULABLE}))
    tolerant = Toleration("node.kubernetes.io/unschedulable", "Exists", "", "NoSchedule")
    given = situation.pod()
    given = replace(given, constraints=replace(given.constraints, tolerations=(tolerant,)))
    nodes = situation.nodes()

    assert isinstance(decide(given, Cluster(situation.ledger(nodes), nodes, situation.volumes(), POLICY)), Bind)
