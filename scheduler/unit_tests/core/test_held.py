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
from tests.messages import says
from unit_tests.core.build import KEEP, decided, exists, ledger, node, nodes, own, pod, running

ANY = {"agentaflow.gpu/sharing": "any"}
OBSERVER = {"agentaflow.gpu/observer": "true"}
DEPLOYMENT = Owner("Deployment", "web")
ALONE: dict[str, Any] = {"owner": None, "namespace": "other"}
SAME, NONE = Sharing.SAME_WORKLOAD, Sharing.NONE
TRAIN_3 = running("train-3", "node4")
ON_3 = own("3")
SINCE = "2026-11-21T01:00:00Z"

SHARING = {
    "two lines of one map share the GPU that both name": (pod("train-4"), TRAIN_3, SAME, True),
    "another workload waits": (pod("other-4", owner=Owner("StatefulSet", "other")), TRAIN_3, SAME, False),
    "the same map in another namespace is another workload": (pod("train-4", namespace="b"), TRAIN_3, SAME, False),
    "another map of the same owner is another workload": (pod("train-0", "0=node4:3"), TRAIN_3, SAME, False),
    "bare pods with one map are one workload": (
        pod("a-4", owner=None),
        running("b-3", "node4", owner=None),
        SAME,
        True,
    ),
    "bare pods with two maps are two": (
        pod("a-0", "0=node4:3", owner=None),
        running("b-3", "node4", owner=None),
        SAME,
        False,
    ),
    "another line's pod that holds the GPU outside its line does not share it": (
        pod("train-4"),
        running("train-0", "node4", containers=ON_3),
        SAME,
        False,
    ),
    "a device that one pod keeps from its environment is not shared": (
        pod("train-4"),
        running("train-1", "node4", annotations=KEEP, containers=ON_3),
        SAME,
        False,
    ),
    "both pods may opt in": (
        pod("other-3", annotations=ANY, **ALONE),
        running("train-3", "node4", annotations=ANY),
        SAME,
        True,
    ),
    "one pod alone cannot opt in": (pod("other-3", annotations=ANY, **ALONE), TRAIN_3, SAME, False),
    "the operator may allow all sharing": (pod("other-3", **ALONE), TRAIN_3, Sharing.ANY, True),
    "the operator may forbid all sharing": (pod("train-4"), TRAIN_3, NONE, False),
    "no annotation allows what the operator forbids": (
        pod("train-4", annotations=ANY),
        running("train-3", "node4", annotations=ANY),
        NONE,
        False,
    ),
    "an observer is placed beside a holder": (pod("other-3", annotations=OBSERVER, **ALONE), TRAIN_3, NONE, True),
    "a holder is placed beside an observer": (
        pod("other-3", **ALONE),
        running("train-3", "node4", annotations=OBSERVER),
        NONE,
        True,
    ),
    "the same GPU number of another node is another GPU": (pod("a-0", "0=node3:3", **ALONE), TRAIN_3, NONE, True),
    "a pod without GPUs needs no free GPU": (pod("a-0", "0=node4:", **ALONE), TRAIN_3, NONE, True),
    "kept devices must be free as well": (
        pod("a-0", "0=node4:0", annotations=KEEP, containers=ON_3, **ALONE),
        TRAIN_3,
        SAME,
        False,
    ),
    "a pod of another scheduler holds no device in the ledger": (
        pod("a-3", **ALONE),
        running("train-3", "node4", scheduler_name="default-scheduler"),
        NONE,
        True,
    ),
    "a finished pod holds no device": (pod("a-3", **ALONE), replace(TRAIN_3, phase="Succeeded"), NONE, True),
    "a terminating pod still holds its devices": (
        pod("a-3", **ALONE),
        replace(TRAIN_3, deleting_since=SINCE),
        NONE,
        False,
    ),
}


@pytest.mark.promise("share-1", "share-2", "share-3", "share-4", "share-5", "share-6", "hold-2")
@pytest.mark.parametrize(("pending", "holder", "sharing", "free"), SHARING.values(), ids=SHARING)
def test_pods_may_share_a_gpu(pending: Pod, holder: Pod, sharing: Sharing, free: bool) -> None:  # noqa: FBT001
    """Two pods get one GPU only where the rules of sharing allow it; otherwise the second pod waits."""
    policy = Policy(sharing=sharing)
    decision = decided(pending, ledger(holder, policy=policy), policy=policy)

    if free:
        assert isinstance(decision, Bind)
    else:
        assert isinstance(decision, Wait)
        assert decision.reason is Reason.GPU_HELD
        assert DeviceChanged("node4", "3") in decision.cured_by


UUID = "GPU-00000003-0000-4000-8000-000000000000"
READY = nodes()
NOT_READY = nodes(node("node4", ready=False))

HELD = {
    "by another workload": (
        pod("other-3", **ALONE),
        TRAIN_3,
        READY,
        ("GpuHeld", "GPU 3", "node4", "default/train-3", "agentaflow.gpu/sharing"),
    ),
    "by another kind of name": (
        pod("other-3", **ALONE),
        running("train-3", "node4", f"3=node4:{UUID}"),
        READY,
        ("GpuHeld", "GPU 3", "node4", UUID, "default/train-3", "agentaflow.gpu/sharing"),
    ),
    "by the old pod of a rolling update": (
        pod("web-0", "0=node4:3", owner=DEPLOYMENT),
        running("web-3", "node4", owner=DEPLOYMENT),
        READY,
        ("GpuHeld", "GPU 3", "node4", "default/web-3"),
    ),
    "by a pod that is terminating": (
        pod("other-3", **ALONE),
        replace(TRAIN_3, deleting_since=SINCE),
        READY,
        ("GpuHeld", "GPU 3", "node4", "default/train-3", SINCE, "kubectl describe pod -n default train-3"),
    ),
    "by a pod that is terminating on a dead node": (
        pod("other-3", **ALONE),
        replace(TRAIN_3, deleting_since=SINCE),
        NOT_READY,
        ("GpuHeld", "GPU 3", "node4", "default/train-3", SINCE),
    ),
    "the index, by another pod of the workload": (
        pod("train-a", annotations={"agentaflow.gpu/index": "3"}),
        TRAIN_3,
        READY,
        ("IndexHeld", "index 3", "default/train-3"),
    ),
    "the index, by a pod that is terminating on a deleted node": (
        pod("train-a", annotations={"agentaflow.gpu/index": "3"}),
        replace(running("train-3", "node9"), deleting_since=SINCE),
        READY,
        ("IndexHeld", "index 3", "default/train-3", SINCE, "node9"),
    ),
    "the index, by another bare pod": (
        pod("x", owner=None, annotations={"agentaflow.gpu/index": "3"}),
        running("y-3", "node4", owner=None),
        READY,
        ("IndexHeld", "index 3", "default/y-3"),
    ),
    "the index, by an observer": (
        pod("train-a", annotations={"agentaflow.gpu/index": "3"}),
        running("train-3", "node4", annotations=OBSERVER),
        READY,
        ("IndexHeld", "index 3", "default/train-3"),
    ),
}


@pytest.mark.promise("index-10", "share-2", "share-7", "hold-3")
@pytest.mark.parametrize(("pending", "holder", "known", "said"), HELD.values(), ids=HELD)
def test_the_message_names_the_holder(pending: Pod, holder: Pod, known: Nodes, said: tuple[str, ...]) -> None:
    """The message names the holder, since when it is terminating, the state of its node, and a remedy."""
    decision = decided(pending, ledger(holder), known)

    assert isinstance(decision, Wait)
    says(decision.message, *said)


MORE = {
    "one pod that holds two GPUs is named once": ((("b", "0,1"),), ("GPU 0", "b/x-0")),
    "each pod is named with a GPU that it holds": (
        (("b", "0"), ("c", "2"), ("d", "1")),
        ("GPU 0", "b/x-0", "GPU 1 by d/x-0", "GPU 2 by c/x-0"),
    ),
    "a fourth pod is counted": (
        (("b", "0"), ("c", "1"), ("d", "2"), ("e", "3")),
        ("GPU 0", "b/x-0", "GPU 1 by c/x-0", "GPU 2 by d/x-0", "1 more pod"),
    ),
    "further pods are counted": (
        (("b", "0"), ("c", "1"), ("d", "2"), ("e", "3"), ("f", "4")),
        ("GPU 0", "b/x-0", "GPU 1 by c/x-0", "GPU 2 by d/x-0", "2 more pods"),
    ),
    "the first is reported as terminating": (
        (("b", "0", SINCE), ("c", "1")),
        ("GPU 0", "b/x-0", SINCE, "GPU 1 by c/x-0"),
    ),
}


@pytest.mark.promise("text-14")
@pytest.mark.parametrize(("holders", "named"), MORE.values(), ids=MORE)
def test_at_most_three_holders_are_named(holders: tuple[tuple[str, ...], ...], named: tuple[str, ...]) -> None:
    """The others are counted, and the topic has only the first: the message is not written anew for the others."""
    held = ledger()
    for namespace, devices, *since in holders:
        holder = running("x-0", "node1", f"0=node1:{devices}", namespace=namespace, owner=None)
        held.apply(replace(holder, deleting_since=since[0] if since else None))
    decision = decided(pod("a-0", "0=node1:0,1,2,3,4"), held)

    assert isinstance(decision, Wait)
    says(decision.message, "GpuHeld", *named)
    assert [name in decision.topic for name in ("b/x-0", *named[2:])] == [True, *(name == SINCE for name in named[2:])]


def test_the_message_does_not_recommend_forbidden_sharing() -> None:
    """Where the policy forbids sharing, no message names the annotation for it."""
    policy = Policy(sharing=Sharing.NONE)
    decision = decided(pod("other-3", **ALONE), ledger(TRAIN_3, policy=policy), policy=policy)

    assert isinstance(decision, Wait)
    assert "sharing" not in decision.message


def test_a_pod_that_waits_for_a_gpu_is_requeued_by_gpu_and_node() -> None:
    """The events are those of the GPU and of the node, because the alias may move to another node."""
    decision = decided(pod("a-0", "0=gpus:3", owner=None), ledger(TRAIN_3), nodes(node("node4", alias="gpus")))

    assert isinstance(decision, Wait)
    assert {DeviceChanged("node4", "3"), exists("node4"), exists("gpus")} == decision.cured_by


def test_a_pod_that_waits_for_an_index_is_requeued_by_index_and_node() -> None:
    """The events are those of the index of this workload and of the node of its line."""
    pending = pod("train-a", annotations={"agentaflow.gpu/index": "3"})
    decision = decided(pending, ledger(TRAIN_3))

    assert isinstance(decision, Wait)
    assert pending.request.line is not None
    workload = pending.request.line.workload
    assert {IndexChanged(workload, 3), exists("node4")} == decision.cured_by


def test_a_pod_keeps_its_hold_when_its_name_is_used_again() -> None:
    """A pod that is created again under its old name waits for the old pod, because the uid is the identity."""
    old = replace(TRAIN_3, deleting_since=SINCE)
    new = pod("train-3")
    decision = decided(replace(new, ref=replace(new.ref, uid="another")), ledger(old))

    assert isinstance(decision, Wait)
    assert decision.reason is Reason.INDEX_HELD
