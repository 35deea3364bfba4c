"""The order of reasons: of a pod with several faults, the first in this order is reported."""

from dataclasses import replace

import pytest

from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.cluster_events import ClusterEvent
from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.decision import Bind, Refuse, Wait
from gpu_scheduler.core.filters.volumes import Volume, VolumeClaim, Volumes
from gpu_scheduler.core.pods.constraints import Toleration
from gpu_scheduler.core.pods.pod import ForeignPod, ResourceRequest
from gpu_scheduler.core.reasons import RANKING, REFUSED_AT_ADMISSION, RankedReason, Reason
from gpu_scheduler.core.refs import PodRef
from unit_tests.core.build import POLICY, ROOM, ledger, limit, node, nodes, pod, running
from unit_tests.core.situation import GPU, IDS, ORDER, OTHER, Situation


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
    known, taken, volumes = before.nodes(), before.ledger(before.nodes()), before.volumes()
    cured_by = known.apply(after.node()) | taken.apply_node(after.node())
    for uid in ("uid-of-default/train-a", "uid-of-default/other-0", "uid-web", "uid-busy"):
        cured_by |= taken.forget(uid) | taken.used_resources.drop(uid)
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
    limited = pod("train-0", "0=node1:", containers=pod(**limit()).environment.containers, **limit(2))
    holder, reported = running("other-0", "node1", "0=node1:1", owner=OTHER), []
    for faults in ({"few", "held", "down", "used"}, {"held", "down", "used"}, {"down", "used"}, {"used"}, set()):
        node1 = node(
            "node1", advertised=4, ready="down" not in faults, allocatable={**ROOM, GPU: 1 if "few" in faults else 4}
        )
        known = nodes(node1)
        taken = ledger(*([holder] if "held" in faults else []), known=known)
        if "used" in faults:
            taken.apply_foreign_pod(ForeignPod(PodRef("other", "web", "web"), "node1", ResourceRequest({GPU: 3})))
        decision = decide(limited, Cluster(taken, known, Volumes(), POLICY))
        reported.append("Bound" if isinstance(decision, Bind) else getattr(decision, "reason", None))

    assert reported == [Reason.NOT_ENOUGH_GPUS, Reason.GPU_HELD, Reason.NODE_NOT_READY, Reason.NOT_ENOUGH_GPUS, "Bound"]


def test_a_pod_that_tolerates_the_cordon_is_placed() -> None:
    """A DaemonSet's pods have this toleration."""
    situation = Situation(frozenset({(Reason.NODE_UNSCHEDULABLE, False)}))
    tolerant = Toleration("node.kubernetes.io/unschedulable", "Exists", "", "NoSchedule")
    given = situation.pod()
    given = replace(given, constraints=replace(given.constraints, tolerations=(tolerant,)))
    known = situation.nodes()

    assert isinstance(decide(given, Cluster(situation.ledger(known), known, situation.volumes(), POLICY)), Bind)
