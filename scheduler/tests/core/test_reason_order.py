"""The order of reasons: of a pod with several faults, the first in this order is reported."""

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
from gpu_scheduler.core.reasons import RANKING, REFUSED_AT_ADMISSION, RankedReason, Reason
from gpu_scheduler.core.refs import Owner, PodRef
from tests.core.build import POLICY, ROOM, container, node, pod, running

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
        """Return node1 with its faults."""
        return node(
            "node1",
            ready=not self.has(Reason.NODE_NOT_READY),
            unschedulable=self.has(Reason.NODE_UNSCHEDULABLE),
            taints=(Taint("dedicated", "", "NoSchedule"),) if self.has(Reason.TAINT_NOT_TOLERATED) else (),
            labels={} if self.has(Reason.NODE_AFFINITY_MISMATCH) else {"zone": "a"},
            inventory=counted(1 if self.has(Reason.GPU_NOT_FOUND) else 4),
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

    def decision(self) -> Decision | None:
        """Return the decision on the pod."""
        nodes = self.nodes()
        return decide(self.pod(), Cluster(self.ledger(nodes), nodes, self.volumes(), POLICY))


def test_a_pod_without_a_fault_is_placed() -> None:
    """The situation has no other faults."""
    assert isinstance(Situation(frozenset()).decision(), Bind)


def test_the_order_is_that_of_the_ranking() -> None:
    """What is listed here stands in RANKING in the same order, and RANKING has each reason."""
    assert [each for each in RANKING if each in ORDER] == list(ORDER)
    assert {reason for reason, _ in RANKING} == set(Reason)


@pytest.mark.promise("text-14")
@pytest.mark.parametrize("number", range(len(ORDER)), ids=IDS)
def test_the_first_fault_is_reported(number: int) -> None:
    """Alone or with all later faults: the decision is the same, and the message begins with the reason."""
    for faults in (ORDER[number:], ORDER[number : number + 1]):
        decision = Situation(frozenset(faults)).decision()
        assert isinstance(decision, Wait | Refuse)
        assert decision.reason is ORDER[number][0]
        assert decision.message.startswith(f"{ORDER[number][0]}: ")
        assert decision.message.startswith(decision.topic)
        assert isinstance(decision, Refuse) == (decision.reason in REFUSED_AT_ADMISSION)


def events_of_remedy(before: Situation, after: Situation) -> frozenset[ClusterEvent]:
    """Return the cluster events when the only fault of the cluster ends."""
    nodes, ledger, volumes = before.nodes(), before.ledger(before.nodes()), before.volumes()
    cured_by = nodes.apply(after.node()) | ledger.apply_node(after.node())
    for uid in ("uid-of-default/train-a", "uid-of-default/other-0", "uid-web", "uid-busy"):
        cured_by |= ledger.forget(uid) | ledger.used_resources.drop(uid)
    cured_by |= volumes.claim_applied(VolumeClaim("default", "data", volume="pv-1"))
    return cured_by | volumes.volume_applied(Volume("pv-1"))


WAITS = tuple(each for each in ORDER if each[0] not in REFUSED_AT_ADMISSION | {Reason.ENV_NOT_INJECTED})


@pytest.mark.promise("wait-1")
@pytest.mark.parametrize("reason", WAITS, ids=IDS[-len(WAITS) :])
def test_the_remedy_of_a_wait_requeues_the_pod(reason: RankedReason) -> None:
    """The events that requeue the waiting pod include those of the change that ends its wait."""
    before, after = Situation(frozenset({reason})), Situation(frozenset())
    decision = before.decision()

    assert isinstance(decision, Wait)
    assert decision.cured_by & events_of_remedy(before, after)


def test_the_order_beside_a_device_plugin() -> None:
    """On a node with a device plugin the order is: too few in all, held devices, the node's state, too few left."""
    limited = pod(
        "train-0",
        "0=node1:",
        gpu_limits=(("main", 2),),
        resource_request=ResourceRequest({GPU: 2}),
        containers=pod(gpu_limits=(("main", 1),)).environment.containers,
    )
    reported = []
    for faults in ({"few", "held", "down", "used"}, {"held", "down", "used"}, {"down", "used"}, {"used"}, set()):
        node1 = node(
            "node1",
            advertised=4,
            ready="down" not in faults,
            allocatable={**ROOM, GPU: 1 if "few" in faults else 4},
        )
        nodes = Nodes()
        nodes.apply(node1)
        ledger = Ledger(POLICY)
        ledger.apply_node(node1)
        if "held" in faults:
            ledger.apply(running("other-0", "node1", "0=node1:1", owner=OTHER))
        if "used" in faults:
            ledger.apply_foreign_pod(ForeignPod(PodRef("other", "web", "web"), "node1", ResourceRequest({GPU: 3})))
        decision = decide(limited, Cluster(ledger, nodes, Volumes(), POLICY))
        reported.append("Bound" if isinstance(decision, Bind) else getattr(decision, "reason", None))

    assert reported == [
        Reason.NOT_ENOUGH_GPUS,
        Reason.GPU_HELD,
        Reason.NODE_NOT_READY,
        Reason.NOT_ENOUGH_GPUS,
        "Bound",
    ]


def test_a_pod_that_tolerates_the_cordon_is_placed() -> None:
    """A DaemonSet's pods have this toleration."""
    situation = Situation(frozenset({(Reason.NODE_UNSCHEDULABLE, False)}))
    tolerant = Toleration("node.kubernetes.io/unschedulable", "Exists", "", "NoSchedule")
    given = situation.pod()
    given = replace(given, constraints=replace(given.constraints, tolerations=(tolerant,)))
    nodes = situation.nodes()

    assert isinstance(decide(given, Cluster(situation.ledger(nodes), nodes, situation.volumes(), POLICY)), Bind)
