"""What kubelets refuse, and bad input while the API server is bad too."""

from __future__ import annotations

import time
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from tests import objects
from tests.integration.corpus import INVENTORIES, PODS, odd_node, renamed
from tests.integration.faults.acts import WATCH, Answer, Cut, Fault, Truncate
from tests.integration.faults.afar import BINDING, NODES, STATUS
from tests.integration.faults.afar import PODS as OURS
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from tests.integration.bench import Bench
    from tests.integration.command import Command
    from tests.integration.faults.proxy import FaultProxy
    from tests.objects import Object

pytestmark = pytest.mark.usefixtures("audited")
REJECTIONS: Final = 20
RESTS: Final = (1, 2, 4)
REJECTED: Final = {"status": {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected"}}


@pytest.mark.parametrize("reason", ["UnexpectedAdmissionError", "OutOfcpu"])
def test_each_rejection_gives_the_gpu_back(bench: Bench, proxy: FaultProxy, far: Command, reason: str) -> None:
    """F14. Twenty times its kubelet refuses the pod and its owner makes another: each has the GPU, at one bind each.

    The bind's answer is lost now and then: what the watch showed counts.
    """
    bench.node("node1")
    bench.node("node2")
    bench.pod("beside-0", "0=node2:0\n", "0")
    bench.wait_bound("beside-0", "node2")
    before = proxy.count("POST", f"{bench.namespace}{BINDING}")
    with proxy.breaking(Fault("POST", BINDING, Cut(delivered=True), times=3, skip=5)) as fault:
        for number in range(REJECTIONS):
            name = f"try{number}-0"
            bench.pod(name, f"0=node1:0\n1=node1:{number + 1}\n", "0")
            bench.wait_bound(name, "node1", seconds=5)
            status = {"phase": "Failed", "reason": reason, "message": "Pod was rejected"}
            bench.kube.patch(f"{bench.pods}/{name}/status", {"status": status})
        assert len(fault.struck) == 3
    assert proxy.count("POST", f"{bench.namespace}{BINDING}") - before == REJECTIONS
    bench.pod("last-0", "0=node1:0\n", "0")
    bench.wait_bound("last-0", "node1", seconds=5)
    assert bench.node_of("beside-0") == "node2"


@pytest.mark.promise("wait-5")
def test_an_owner_whose_pods_are_rejected_is_damped(bench: Bench, far: Command) -> None:
    """F14. It replaces each at once: the rests double and say why; others have the node meanwhile; a run ends it."""
    bench.node("node1")
    train = _owner("train")
    bench.make(_of(train, "train0-0"))
    bench.wait_bound("train0-0", "node1")
    for number, rest in enumerate(RESTS):
        bench.kube.patch(f"{bench.pods}/train{number}-0/status", REJECTED)
        rejected = time.monotonic()
        bench.make(_of(train, f"train{number + 1}-0"))
        bench.pod(f"beside{number}-0", "0=node1:0\n1=node1:1\n", "0")
        bench.wait_bound(f"beside{number}-0", "node1")
        bench.delete(f"beside{number}-0")
        told = bench.wait_message(f"train{number + 1}-0", "BindFailed: ")
        assert "cannot bind to node1 yet: its kubelet rejected the last pod of this workload (OutOfcpu)" in told
        bench.wait_bound(f"train{number + 1}-0", "node1")
        assert rest - 0.5 <= time.monotonic() - rejected <= rest + limit(2)
    bench.finish(f"train{len(RESTS)}-0", "Running")
    bench.finish(f"train{len(RESTS)}-0")
    bench.make(_of(train, "last-0"))
    bench.wait_bound("last-0", "node1", seconds=1)


def test_bad_input_under_faults_ends_nothing(bench: Bench, proxy: FaultProxy, far: Command) -> None:
    """F15. All of the corpus, while watches are cut and conditions are refused: each pod reads its word."""
    bench.node("node1")
    words: dict[str, str] = {}
    with ExitStack() as faults:
        watches = Fault(WATCH, OURS, Truncate(), times=4), Fault(WATCH, NODES, Answer(410), times=2)
        for fault in (*watches, Fault("PATCH", STATUS, Answer(500), times=20)):
            faults.enter_context(proxy.breaking(fault))
        eventually("both watches are bad", lambda: all(each.struck for each in watches), seconds=20)
        for number, (_, word, body) in enumerate(PODS):
            # A name is an index too, where nothing else is one.
            if body["metadata"]["name"] == "bad-0":
                words[f"bad{number}-0"] = word
                bench.make(_of_its_own(renamed(f"bad{number}-0", body)))
        for number, text in enumerate(INVENTORIES.values()):
            odd = odd_node(text)
            odd["metadata"] |= {"name": f"odd{number}", "labels": {}}
            bench.add(odd)
        for name, word in words.items():
            if word:
                bench.wait_message(name, f"{word}: ", seconds=60)
            else:
                bench.wait_bound(name, "node1", seconds=60)
    bench.pod("good-0", "0=node1:0\n", "0")
    bench.wait_bound("good-0", "node1", seconds=10)
    eventually("it leads", far.leads)
    assert not far.said("error of our own")


def _owner(name: str) -> Object:
    return {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": str(uuid.uuid4()), "controller": True}


def _of(owner: Object, name: str) -> Object:
    body = objects.pod(name, "0=node1:0\n", objects.literal("0"))
    return {**body, "metadata": {**body["metadata"], "ownerReferences": [owner]}}


def _of_its_own(body: Object) -> Object:
    """Give it a controller: bare pods with one map would share its lines."""
    return {**body, "metadata": {**body["metadata"], "ownerReferences": [_owner(body["metadata"]["name"])]}}
