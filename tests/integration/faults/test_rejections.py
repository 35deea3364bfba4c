"""Pods that kubelets reject, and bad input during faults of the API server."""

from __future__ import annotations

import time
import uuid
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from tests import objects
from tests.integration.bad_input import INVENTORIES, PODS, odd_node, renamed
from tests.integration.faults.proxied_replica import BINDING, NODES, STATUS
from tests.integration.faults.proxied_replica import PODS as OURS
from tests.integration.faults.proxy_faults import WATCH, Answer, Cut, Fault, Truncate
from tests.messages import text_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.command import Command
    from tests.integration.faults.proxy import FaultProxy
    from tests.integration.namespace import Namespace
    from tests.objects import Object

pytestmark = pytest.mark.usefixtures("audited")
REJECTIONS: Final = 20
RESTS: Final = (1, 2, 4)
NOT_YET: Final = (
    text_of("a pod waits after its kubelet has rejected the last pods of its workload")
    .partition(": ")[2]
    .partition(";")[0]
)
REJECTED: Final = {"status": {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected"}}


@pytest.mark.parametrize("reason", ["UnexpectedAdmissionError", "OutOfcpu"])
def test_each_rejection_releases_the_gpu(
    namespace: Namespace, proxy: FaultProxy, proxied: Command, reason: str
) -> None:
    """F14. Twenty times the kubelet rejects the pod and its owner creates another: each gets the GPU with one bind.

    Three answers to binds are lost. The watch then shows that the pod is bound.
    """
    namespace.node("node1")
    namespace.node("node2")
    namespace.pod("beside-0", "0=node2:0\n", "0")
    namespace.wait_bound("beside-0", "node2")
    before = proxy.count("POST", f"{namespace.name}{BINDING}")
    with proxy.breaking(Fault("POST", BINDING, Cut(delivered=True), times=3, skip=5)) as fault:
        for number in range(REJECTIONS):
            name = f"try{number}-0"
            namespace.pod(name, f"0=node1:0\n1=node1:{number + 1}\n", "0")
            namespace.wait_bound(name, "node1")
            status = {"phase": "Failed", "reason": reason, "message": "Pod was rejected"}
            namespace.kube.patch(f"{namespace.pods}/{name}/status", {"status": status})
        assert len(fault.struck) == 3
    assert proxy.count("POST", f"{namespace.name}{BINDING}") - before == REJECTIONS
    namespace.pod("last-0", "0=node1:0\n", "0")
    namespace.wait_bound("last-0", "node1")
    assert namespace.node_of("beside-0") == "node2"


@pytest.mark.promise("wait-5")
def test_pods_wait_longer_after_each_rejection_of_their_owners_pods(namespace: Namespace, proxied: Command) -> None:
    """F14. The delay doubles with each rejection and is reported. Other pods get the node; a running pod resets it."""
    namespace.node("node1")
    train = _owner("train")
    namespace.make(_of(train, "train0-0"))
    namespace.wait_bound("train0-0", "node1")
    for number, rest in enumerate(RESTS):
        # The next pod waits already, so the rejection itself causes the attempt that reports the delay.
        after = f"train{number + 1}-0"
        namespace.make(_of(train, after))
        eventually("it waits", partial(namespace.condition, after))
        rejected = time.monotonic()
        namespace.kube.patch(f"{namespace.pods}/train{number}-0/status", REJECTED)
        namespace.pod(f"beside{number}-0", f"0=node1:{number + 1}\n", str(number + 1))
        namespace.wait_bound(f"beside{number}-0", "node1")
        namespace.wait_bound(after, "node1", seconds=30)
        # Not sooner; how long at most is tested in virtual time.
        assert time.monotonic() - rejected >= rest
        assert any(NOT_YET in note for note in _notes(namespace, after))
    namespace.finish(f"train{len(RESTS)}-0", "Running")
    namespace.make(_of(train, "last-0"))
    eventually("it waits", lambda: namespace.condition("last-0"))
    namespace.finish(f"train{len(RESTS)}-0")
    namespace.wait_bound("last-0", "node1")
    namespace.wait_event("last-0", "Scheduled")
    assert not any(NOT_YET in note for note in _notes(namespace, "last-0"))


def _notes(namespace: Namespace, name: str) -> list[str]:
    return [event["note"] for event in namespace.events(name)]


def test_bad_input_under_faults_ends_nothing(namespace: Namespace, proxy: FaultProxy, proxied: Command) -> None:
    """F15. Every invalid pod gets its reason while watches are cut and conditions are refused."""
    namespace.node("node1")
    words: dict[str, str] = {}
    with ExitStack() as faults:
        watches = Fault(WATCH, OURS, Truncate(), times=4), Fault(WATCH, NODES, Answer(410), times=2)
        for fault in (*watches, Fault("PATCH", STATUS, Answer(500), times=20)):
            faults.enter_context(proxy.breaking(fault))
        eventually("both watches failed", lambda: all(each.struck for each in watches), seconds=20)
        for number, (_, word, body) in enumerate(PODS):
            # Other names may give the pod its index, so only pods of this name can be renamed.
            if body["metadata"]["name"] == "bad-0":
                words[f"bad{number}-0"] = word
                namespace.make(_of_its_own(renamed(f"bad{number}-0", body)))
        for number, text in enumerate(INVENTORIES.values()):
            odd = odd_node(text)
            odd["metadata"] |= {"name": f"odd{number}", "labels": {}}
            namespace.add(odd)
        for name, word in words.items():
            if word:
                namespace.wait_message(name, f"{word}: ", seconds=60)
            else:
                namespace.wait_bound(name, "node1", seconds=60)
    namespace.pod("good-0", "0=node1:0\n", "0")
    namespace.wait_bound("good-0", "node1", seconds=10)
    eventually("it leads", proxied.leads)
    assert not proxied.logged("internal error")


def _owner(name: str) -> Object:
    return {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": str(uuid.uuid4()), "controller": True}


def _of(owner: Object, name: str) -> Object:
    body = objects.pod(name, "0=node1:0\n", objects.literal("0"))
    return {**body, "metadata": {**body["metadata"], "ownerReferences": [owner]}}


def _of_its_own(body: Object) -> Object:
    """Return the pod with a controller of its own: bare pods with the same map would be one workload."""
    return {**body, "metadata": {**body["metadata"], "ownerReferences": [_owner(body["metadata"]["name"])]}}
