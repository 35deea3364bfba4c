from dataclasses import replace
from typing import Any

import pytest

from gpu_scheduler.core.cluster_events import DeviceChanged, IndexChanged
from gpu_scheduler.core.decision import Bind, Wait
from gpu_scheduler.core.nodes.nodes import Nodes
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.policy import Policy, Sharing
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import Owner
from tests.core.build import KEEP, PCI, container, decided, exists, ledger, node, nodes, pod, running, visible

ANY = {"agentaflow.gpu/sharing": "any"}
OBSERVER = {"agentaflow.gpu/observer": "true"}
DEPLOYMENT = Owner("Deployment", "web")
ALONE: dict[str, Any] = {"owner": None, "namespace": "other"}


SHARING = {
    "two lines of one map share the GPU that both name": (
        pod("train-4"),
        running("train-3", "node4"),
        Sharing.SAME_WORKLOAD,
        True,
    ),
    "another workload waits": (
        pod("other-4", owner=Owner("StatefulSet", "other")),
        running("train-3", "node4"),
        Sharing.SAME_WORKLOAD,
        False,
    ),
    "the same map in another namespace is another workload": (
        pod("train-4", namespace="b"),
        running("train-3", "node4"),
        Sharing.SAME_WORKLOAD,
        False,
    ),
    "another map of the same owner is another workload": (
        pod("train-0", "0=node4:3"),
        running("train-3", "node4"),
        Sharing.SAME_WORKLOAD,
        False,
    ),
    "bare pods with one map are one workload": (
        pod("a-4", owner=None),
        running("b-3", "node4", owner=None),
        Sharing.SAME_WORKLOAD,
        True,
    ),
    "bare pods with two maps are two": (
        pod("a-0", "0=node4:3", owner=None),
        running("b-3", "node4", owner=None),
        Sharing.SAME_WORKLOAD,
        False,
    ),
    "a neighbour that holds the GPU outside its line does not share it": (
        pod("train-4"),
        running("train-0", "node4", containers=(container((visible("3"), PCI)),)),
        Sharing.SAME_WORKLOAD,
        False,
    ),
    "a device that one line kept from its environment is not shared": (
        pod("train-4"),
        running("train-1", "node4", annotations=KEEP, containers=(container((visible("3"), PCI)),)),
        Sharing.SAME_WORKLOAD,
        False,
    ),
    "both pods may opt in": (
        pod("other-3", annotations=ANY, **ALONE),
        running("train-3", "node4", annotations=ANY),
        Sharing.SAME_WORKLOAD,
        True,
    ),
    "one pod alone cannot opt in": (
        pod("other-3", annotations=ANY, **ALONE),
        running("train-3", "node4"),
        Sharing.SAME_WORKLOAD,
        False,
    ),
    "the operator may allow all sharing": (pod("other-3", **ALONE), running("train-3", "node4"), Sharing.ANY, True),
    "the operator may forbid all sharing": (pod("train-4"), running("train-3", "node4"), Sharing.NONE, False),
    "what the operator forbids no annotation allows": (
        pod("train-4", annotations=ANY),
        running("train-3", "node4", annotations=ANY),
        Sharing.NONE,
        False,
    ),
    "an observer stands beside a holder": (
        pod("other-3", annotations=OBSERVER, **ALONE),
        running("train-3", "node4"),
        Sharing.NONE,
        True,
    ),
    "a holder comes beside an observer": (
        pod("other-3", **ALONE),
        running("train-3", "node4", annotations=OBSERVER),
        Sharing.NONE,
        True,
    ),
    "the same GPU number of another node is another GPU": (
        pod("a-0", "0=node3:3", **ALONE),
        running("train-3", "node4"),
        Sharing.NONE,
        True,
    ),
    "a pod without GPUs needs none free": (
        pod("a-0", "0=node4:", **ALONE),
        running("train-3", "node4"),
        Sharing.NONE,
        True,
    ),
    "kept devices must be free as well": (
        pod("a-0", "0=node4:0", annotations=KEEP, containers=(container((visible("3"), PCI)),), **ALONE),
        running("train-3", "node4"),
        Sharing.SAME_WORKLOAD,
        False,
    ),
    "a pod of another scheduler holds nothing that we know of": (
        pod("a-3", **ALONE),
        running("train-3", "node4", scheduler_name="default-scheduler"),
        Sharing.NONE,
        True,
    ),
    "a finished pod holds nothing": (
        pod("a-3", **ALONE),
        replace(running("train-3", "node4"), phase="Succeeded"),
        Sharing.NONE,
        True,
    ),
    "a terminating pod still holds": (
        pod("a-3", **ALONE),
        replace(running("train-3", "node4"), deleting_since="2026-11-21T01:00:00Z"),
        Sharing.NONE,
        False,
    ),
}


@pytest.mark.parametrize(("pending", "holder", "sharing", "free"), SHARING.values(), ids=SHARING)
def test_who_may_share_a_gpu(pending: Pod, holder: Pod, sharing: Sharing, free: bool) -> None:  # noqa: FBT001
    """A GPU is given twice only where the rules of sharing say so; else the second waits for the first."""
    policy = Policy(sharing=sharing)
    decision = decided(pending, ledger(holder, policy=policy), policy=policy)

    if free:
        assert isinstance(decision, Bind)
    else:
        assert isinstance(decision, Wait)
        assert decision.reason is Reason.GPU_HELD
        assert DeviceChanged("node4", "3") in decision.cured_by


SINCE = "2026-11-21T01:00:00Z"
UP = nodes()
DOWN = nodes(node("node4", ready=False))

HELD = {
    "by a stranger": (
        pod("other-3", **ALONE),
        running("train-3", "node4"),
        UP,
        (
            "GpuHeld: GPU 3 of node4 is held by default/train-3; wait until it ends, delete it, or name another GPU in "
            'the map; to share it, both pods need annotation agentaflow.gpu/sharing: "any"'
        ),
    ),
    "by the old pod of a rolling update": (
        pod("web-0", "0=node4:3", owner=DEPLOYMENT),
        running("web-3", "node4", owner=DEPLOYMENT),
        UP,
        (
            "GpuHeld: GPU 3 of node4 is held by default/web-3; in a rolling update the old pod must go first: "
            "maxUnavailable of at least 1, OnDelete where lines swap GPUs, or a spare line in the map"
        ),
    ),
    "by a pod that is terminating": (
        pod("other-3", **ALONE),
        replace(running("train-3", "node4"), deleting_since=SINCE),
        UP,
        (
            f"GpuHeld: GPU 3 of node4 is held by default/train-3, terminating since {SINCE}; it is free when that pod "
            "is gone; if it hangs, see its finalizers and events: kubectl describe pod -n default train-3"
        ),
    ),
    "by a pod that is terminating on a dead node": (
        pod("other-3", **ALONE),
        replace(running("train-3", "node4"), deleting_since=SINCE),
        DOWN,
        (
            f"GpuHeld: GPU 3 of node4 is held by default/train-3, terminating since {SINCE}, and its node node4 is not "
            "Ready, so nothing confirms its end; bring node4 back or, when its machine is certainly off, let "
            "Kubernetes give it up: kubectl taint node node4 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
        ),
    ),
    "the index, by another pod of the workload": (
        pod("train-a", annotations={"agentaflow.gpu/index": "3"}),
        running("train-3", "node4"),
        UP,
        (
            "IndexHeld: index 3 of this workload is held by default/train-3; wait until it ends, or give this pod "
            "another index; a rolling update needs maxUnavailable of at least 1"
        ),
    ),
    "the index, by a pod that is terminating on a node that is gone": (
        pod("train-a", annotations={"agentaflow.gpu/index": "3"}),
        replace(running("train-3", "node9"), deleting_since=SINCE),
        UP,
        (
            f"IndexHeld: index 3 of this workload is held by default/train-3, terminating since {SINCE}, and its node "
            "node9 does not exist any more, so nothing confirms its end; bring node9 back or, when its machine is "
            "certainly off, let Kubernetes give it up: kubectl taint node node9 "
            "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
        ),
    ),
    "the index, by an observer": (
        pod("train-a", annotations={"agentaflow.gpu/index": "3"}),
        running("train-3", "node4", annotations=OBSERVER),
        UP,
        (
            "IndexHeld: index 3 of this workload is held by default/train-3; wait until it ends, or give this pod "
            "another index; a rolling update needs maxUnavailable of at least 1"
        ),
    ),
}


@pytest.mark.parametrize(("pending", "holder", "known", "message"), HELD.values(), ids=HELD)
def test_held(pending: Pod, holder: Pod, known: Nodes, message: str) -> None:
    """Who waits reads who holds it, since when that pod is terminating, what its node does, and what helps."""
    decision = decided(pending, ledger(holder), known)

    assert isinstance(decision, Wait)
    assert message == decision.message


def test_the_operator_who_forbids_sharing_is_not_contradicted() -> None:
    """No message recommends an annotation that the policy ignores."""
    policy = Policy(sharing=Sharing.NONE)
    decision = decided(pod("other-3", **ALONE), ledger(running("train-3", "node4"), policy=policy), policy=policy)

    assert isinstance(decision, Wait)
    assert "sharing" not in decision.message


def test_who_waits_for_a_gpu_is_woken_by_all_that_can_help() -> None:
    """The GPU itself, and the node of its line: its alias may move to another."""
    decision = decided(
        pod("a-0", "0=gpus:3", owner=None),
        ledger(running("train-3", "node4")),
        nodes(node("node4", alias="gpus")),
    )

    assert isinstance(decision, Wait)
    assert {DeviceChanged("node4", "3"), exists("node4"), exists("gpus")} == decision.cured_by


def test_who_waits_for_an_index_is_woken_by_it() -> None:
    """The index of this workload, and the node of its line."""
    pending = pod("train-a", annotations={"agentaflow.gpu/index": "3"})
    decision = decided(pending, ledger(running("train-3", "node4")))

    assert isinstance(decision, Wait)
    assert pending.request.line is not None
    workload = pending.request.line.workload
    assert {IndexChanged(workload, 3), exists("node4")} == decision.cured_by


def test_a_pod_keeps_its_place_when_its_name_is_used_again() -> None:
    """A pod that was made anew under its old name waits for the old one: a name is no identity."""
    old = replace(running("train-3", "node4"), deleting_since=SINCE)
    new = pod("train-3")
    decision = decided(replace(new, ref=replace(new.ref, uid="another")), ledger(old))

    assert isinstance(decision, Wait)
    assert decision.reason is Reason.INDEX_HELD
