"""What changes between a decision and its bind: nodes that turn bad, and others who take the room or the GPU first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.faults.acts import WATCH, Answer, Delay, Fault
from tests.integration.faults.afar import BINDING, CALL_TIMEOUT, NODES
from tests.objects import card, inventory, literal, node, pod
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.bench import Bench
    from tests.integration.command import Command
    from tests.integration.faults.proxy import FaultProxy
    from tests.objects import Object

pytestmark = pytest.mark.usefixtures("audited")
TAINT: Final = {"key": "maintenance", "effect": "NoSchedule"}


def _cards(count: int) -> Object:
    return {"metadata": {"annotations": inventory(*map(card, range(count)))}}


@dataclass(frozen=True, slots=True)
class Change:
    """How node1 turns bad for GPU 6, the word of who waits for it, and how it turns good again."""

    reason: str
    spoil: Callable[[Bench], None]
    mend: Callable[[Bench], None]


CHANGES: Final = {
    "cordoned": Change(
        "NodeUnschedulable",
        lambda bench: bench.cordon("node1", cordoned=True),
        lambda bench: bench.cordon("node1", cordoned=False),
    ),
    "tainted": Change(
        "TaintNotTolerated",
        lambda bench: bench.patch_node("node1", {"spec": {"taints": [TAINT]}}),
        lambda bench: bench.patch_node("node1", {"spec": {"taints": []}}),
    ),
    "not ready": Change(
        "NodeNotReady",
        lambda bench: bench.set_ready("node1", ready=False),
        lambda bench: bench.set_ready("node1", ready=True),
    ),
    "deleted": Change(
        "NodeNotFound",
        lambda bench: bench.kube.delete("/api/v1/nodes/node1"),
        lambda bench: bench.add(node("node1", annotations=inventory(*map(card, range(8))))),
    ),
    "six cards of eight": Change(
        "GpuNotFound",
        lambda bench: bench.patch_node("node1", _cards(6)),
        lambda bench: bench.patch_node("node1", _cards(8)),
    ),
    "no card of eight": Change(
        "GpuNotFound",
        lambda bench: bench.patch_node("node1", _cards(0)),
        lambda bench: bench.patch_node("node1", _cards(8)),
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_refused_bind_is_decided_anew_on_the_node_as_it_is(
    bench: Bench, proxy: FaultProxy, far: Command, change: Change
) -> None:
    """F12. The first bind is refused, meanwhile the node turns bad: no second one until it is good again."""
    _open(bench)
    binds = f"{bench.namespace}/pods/asker-0/binding$"
    with proxy.breaking(Fault("POST", binds, Answer(429, (("Retry-After", "1"),)))) as fault:
        bench.pod("asker-0", "0=node1:6\n", "6")
        eventually("the first bind was refused", lambda: fault.struck)
        change.spoil(bench)
        bench.wait_message("asker-0", f"{change.reason}: ", seconds=20)
        assert proxy.count("POST", binds) == 1
        _runs_on(bench)
        change.mend(bench)
        bench.wait_bound("asker-0", "node1", seconds=20)
    assert proxy.count("POST", binds) == 2
    _runs_on(bench)


def _wait_until_seen(bench: Bench) -> None:
    """Two watches have no order, one has: who is on a node that came after a change shows that it was seen."""
    bench.node("later")
    bench.pod("marker-0", "0=later:0\n", "0")
    bench.wait_bound("marker-0", "later", seconds=20)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_who_comes_while_a_bind_is_on_its_way_waits_for_the_node(
    bench: Bench, proxy: FaultProxy, far: Command, change: Change
) -> None:
    """F12. A bind that has left cannot be called back; nobody is sent after it, and it holds what it was given."""
    _open(bench)
    with proxy.breaking(Fault("POST", f"{bench.namespace}/pods/first-0/binding$", Delay(CALL_TIMEOUT - 1))) as fault:
        bench.pod("first-0", "0=node1:6\n", "6")
        eventually("the bind is on its way", lambda: fault.struck)
        change.spoil(bench)
        _wait_until_seen(bench)
        bench.pod("asker-0", "0=node1:7\n", "7")
        bench.wait_message("asker-0", f"{change.reason}: ", seconds=20)
        bench.wait_bound("first-0", "node1", seconds=20)
    assert bench.node_of("asker-0") == ""
    _runs_on(bench)
    change.mend(bench)
    bench.wait_bound("asker-0", "node1", seconds=20)
    bench.pod("rival-0", "0=node1:6\n1=node1:1\n", "6")
    assert f"{bench.namespace}/first-0" in bench.wait_message("rival-0", "GpuHeld: ", seconds=20)


def test_a_change_that_comes_late_costs_no_running_pod(bench: Bench, proxy: FaultProxy, far: Command) -> None:
    """F12. The watch of nodes is late: what was decided meanwhile stands, and what is decided afterwards knows."""
    _open(bench)
    with proxy.breaking(Fault(WATCH, NODES, Delay(CALL_TIMEOUT), times=None)) as fault:
        eventually("the watch is late", lambda: fault.struck, seconds=20)
        bench.cordon("node1", cordoned=True)
        bench.pod("early-0", "0=node1:6\n", "6")
        bench.wait_bound("early-0", "node1", seconds=20)
    eventually("the cordon is seen", lambda: _is_told(bench), seconds=20)
    bench.cordon("node1", cordoned=False)
    bench.wait_bound("late-0", "node1", seconds=20)
    _runs_on(bench)


ROOM: Final = {"cpu": "4"}
BIG: Final = {"cpu": "3"}
STRANGERS: Final = {
    "another scheduler's pod": pod("taker", None, scheduler="default-scheduler", requests=BIG, nodeName="node1"),
    "a static pod": pod(
        "taker-node1",
        None,
        scheduler="default-scheduler",
        requests=BIG,
        nodeName="node1",
        annotations={"kubernetes.io/config.mirror": "0123", "kubernetes.io/config.source": "file"},
    ),
    "a pod of ours that was put there": pod("taker-0", "0=node1:3\n", literal("3"), requests=BIG, nodeName="node1"),
}


@pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS)
def test_room_that_another_takes_first_is_missed_in_time(
    bench: Bench, proxy: FaultProxy, far: Command, stranger: Object
) -> None:
    """F13. The first bind is refused, meanwhile the CPU goes to another: no bind until that one has gone."""
    bench.node("node1", room=ROOM)
    binds = f"{bench.namespace}/pods/asker-0/binding$"
    with proxy.breaking(Fault("POST", binds, Answer(429, (("Retry-After", "1"),)))) as fault:
        bench.make(pod("asker-0", "0=node1:0\n", literal("0"), requests=BIG))
        eventually("the first bind was refused", lambda: fault.struck)
        bench.make(stranger)
        bench.wait_message("asker-0", "InsufficientResources: ", seconds=20)
    assert proxy.count("POST", binds) == 1
    bench.delete(stranger["metadata"]["name"])
    bench.wait_bound("asker-0", "node1", seconds=20)


def test_a_gpu_that_another_takes_first_is_waited_for(bench: Bench, proxy: FaultProxy, far: Command) -> None:
    """F13. Put on the node past every scheduler, the taker holds it: the condition names it."""
    bench.node("node1")
    binds = f"{bench.namespace}/pods/asker-0/binding$"
    with proxy.breaking(Fault("POST", binds, Answer(429, (("Retry-After", "1"),)))) as fault:
        bench.pod("asker-0", "0=node1:0\n", "0")
        eventually("the first bind was refused", lambda: fault.struck)
        bench.make(pod("taker-0", "0=node1:0\n1=node1:1\n", literal("0"), nodeName="node1"))
        assert f"{bench.namespace}/taker-0" in bench.wait_message("asker-0", "GpuHeld: ", seconds=20)
    assert proxy.count("POST", binds) == 1
    bench.delete("taker-0")
    bench.wait_bound("asker-0", "node1", seconds=20)


def test_a_gpu_that_is_taken_under_a_bind_is_a_conflict_that_is_told(
    bench: Bench, proxy: FaultProxy, far: Command
) -> None:
    """F13. The bind has left when another is put on its GPU: within 30 s both read of it, and the metric counts it."""
    bench.node("node1")
    with proxy.breaking(Fault("POST", BINDING, Delay(CALL_TIMEOUT - 1))) as fault:
        bench.pod("first-0", "0=node1:0\n", "0")
        eventually("the bind is on its way", lambda: fault.struck)
        bench.make(pod("taker-0", "0=node1:0\n1=node1:1\n", literal("0"), nodeName="node1"))
        bench.wait_bound("first-0", "node1", seconds=20)
    eventually("the metric counts it", lambda: far.metric("gpu_scheduler_conflicts") == 1, seconds=30)
    for name in ("first-0", "taker-0"):
        assert bench.wait_event(name, "GpuConflict")
    bench.delete("taker-0")
    eventually("it is over", lambda: far.metric("gpu_scheduler_conflicts") == 0)


def _open(bench: Bench) -> None:
    """Make node1 with eight cards, one of them in use."""
    bench.add(node("node1", annotations=inventory(*map(card, range(8)))))
    bench.pod("runs-0", "0=node1:5\n", "5")
    bench.wait_bound("runs-0", "node1", seconds=20)


def _runs_on(bench: Bench) -> None:
    """Who runs is not touched, whatever happens to its node."""
    running = bench.read("runs-0")
    assert running["spec"]["nodeName"] == "node1"
    assert "deletionTimestamp" not in running["metadata"]


def _is_told(bench: Bench) -> bool:
    """Whether a new pod hears of the cordon; one that does not is taken away again."""
    bench.pod("late-0", "0=node1:7\n", "7")
    eventually("it is bound or told", lambda: bench.node_of("late-0") or bench.condition("late-0"))
    if bench.node_of("late-0"):
        bench.delete("late-0")
        return False
    return str(bench.condition("late-0")["message"]).startswith("NodeUnschedulable: ")
