"""Changes between a decision and its bind: unusable nodes, and other pods that take resources or the GPU first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.faults.proxied_replica import BINDING, CALL_TIMEOUT, NODES
from tests.integration.faults.proxy_faults import WATCH, Answer, Delay, Fault
from tests.objects import device, inventory, literal, node, pod
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.command import Command
    from tests.integration.faults.proxy import FaultProxy
    from tests.integration.namespace import Namespace
    from tests.objects import Object

pytestmark = pytest.mark.usefixtures("audited")
TAINT: Final = {"key": "maintenance", "effect": "NoSchedule"}


def _devices(count: int) -> Object:
    return {"metadata": {"annotations": inventory(*map(device, range(count)))}}


@dataclass(frozen=True, slots=True)
class Change:
    """A change that makes node1 unusable for GPU 6, the reason of pods that wait then, and the reverse change."""

    reason: str
    damage: Callable[[Namespace], None]
    restore: Callable[[Namespace], None]


CHANGES: Final = {
    "cordoned": Change(
        "NodeUnschedulable",
        lambda namespace: namespace.cordon("node1", cordoned=True),
        lambda namespace: namespace.cordon("node1", cordoned=False),
    ),
    "tainted": Change(
        "TaintNotTolerated",
        lambda namespace: namespace.patch_node("node1", {"spec": {"taints": [TAINT]}}),
        lambda namespace: namespace.patch_node("node1", {"spec": {"taints": []}}),
    ),
    "not ready": Change(
        "NodeNotReady",
        lambda namespace: namespace.set_ready("node1", ready=False),
        lambda namespace: namespace.set_ready("node1", ready=True),
    ),
    "deleted": Change(
        "NodeNotFound",
        lambda namespace: namespace.kube.delete("/api/v1/nodes/node1"),
        lambda namespace: namespace.add(node("node1", annotations=inventory(*map(device, range(8))))),
    ),
    "six devices of eight": Change(
        "GpuNotFound",
        lambda namespace: namespace.patch_node("node1", _devices(6)),
        lambda namespace: namespace.patch_node("node1", _devices(8)),
    ),
    "no device of eight": Change(
        "GpuNotFound",
        lambda namespace: namespace.patch_node("node1", _devices(0)),
        lambda namespace: namespace.patch_node("node1", _devices(8)),
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_refused_bind_is_decided_again_on_the_changed_node(
    namespace: Namespace, proxy: FaultProxy, proxied: Command, change: Change
) -> None:
    """F12. The first bind is refused, then the node becomes unusable: no second bind until it is usable again."""
    _open(namespace)
    binds = f"{namespace.name}/pods/asker-0/binding$"
    with proxy.breaking(Fault("POST", binds, Answer(429, (("Retry-After", "1"),)))) as fault:
        namespace.pod("asker-0", "0=node1:6\n", "6")
        eventually("the first bind was refused", lambda: fault.struck)
        change.damage(namespace)
        namespace.wait_message("asker-0", f"{change.reason}: ", seconds=20)
        assert proxy.count("POST", binds) == 1
        _runs_on(namespace)
        change.restore(namespace)
        namespace.wait_bound("asker-0", "node1", seconds=20)
    assert proxy.count("POST", binds) == 2
    _runs_on(namespace)


def _wait_until_seen(namespace: Namespace) -> None:
    """Wait until the scheduler has received the last change of a node.

    A watch keeps its order: once a pod is bound to a node created after the change, the change was received.
    """
    namespace.node("later")
    namespace.pod("marker-0", "0=later:0\n", "0")
    namespace.wait_bound("marker-0", "later", seconds=20)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_pod_created_during_a_bind_waits_for_the_changed_node(
    namespace: Namespace, proxy: FaultProxy, proxied: Command, change: Change
) -> None:
    """F12. A bind in flight cannot be withdrawn and keeps its device. No other pod is bound to the node."""
    _open(namespace)
    with proxy.breaking(Fault("POST", f"{namespace.name}/pods/first-0/binding$", Delay(CALL_TIMEOUT - 1))) as fault:
        namespace.pod("first-0", "0=node1:6\n", "6")
        eventually("the bind is on its way", lambda: fault.struck)
        change.damage(namespace)
        _wait_until_seen(namespace)
        namespace.pod("asker-0", "0=node1:7\n", "7")
        namespace.wait_message("asker-0", f"{change.reason}: ", seconds=20)
        namespace.wait_bound("first-0", "node1", seconds=20)
    assert namespace.node_of("asker-0") == ""
    _runs_on(namespace)
    change.restore(namespace)
    namespace.wait_bound("asker-0", "node1", seconds=20)
    namespace.pod("rival-0", "0=node1:6\n1=node1:1\n", "6")
    assert f"{namespace.name}/first-0" in namespace.wait_message("rival-0", "GpuHeld: ", seconds=20)


def test_a_late_node_event_affects_no_running_pod(namespace: Namespace, proxy: FaultProxy, proxied: Command) -> None:
    """F12. The watch of nodes is late: earlier binds stay, and later decisions respect the change."""
    _open(namespace)
    with proxy.breaking(Fault(WATCH, NODES, Delay(CALL_TIMEOUT), times=None)) as fault:
        eventually("the watch is late", lambda: fault.struck, seconds=20)
        namespace.cordon("node1", cordoned=True)
        namespace.pod("early-0", "0=node1:6\n", "6")
        namespace.wait_bound("early-0", "node1", seconds=20)
    eventually("the cordon is seen", lambda: _is_reported(namespace), seconds=20)
    namespace.cordon("node1", cordoned=False)
    namespace.wait_bound("late-0", "node1", seconds=20)
    _runs_on(namespace)


ROOM: Final = {"cpu": "4"}
BIG: Final = {"cpu": "3"}
FOREIGN_PODS: Final = {
    "another scheduler's pod": pod("taker", None, scheduler="default-scheduler", requests=BIG, nodeName="node1"),
    "a static pod": pod(
        "taker-node1",
        None,
        scheduler="default-scheduler",
        requests=BIG,
        nodeName="node1",
        annotations={"kubernetes.io/config.mirror": "0123", "kubernetes.io/config.source": "file"},
    ),
    "a pod of ours created with nodeName": pod("taker-0", "0=node1:3\n", literal("3"), requests=BIG, nodeName="node1"),
}


@pytest.mark.parametrize("foreign_pod", FOREIGN_PODS.values(), ids=FOREIGN_PODS)
def test_a_pod_waits_for_resources_that_another_pod_takes_first(
    namespace: Namespace, proxy: FaultProxy, proxied: Command, foreign_pod: Object
) -> None:
    """F13. The first bind is refused, then another pod takes the CPU: no second bind until that pod is deleted."""
    namespace.node("node1", room=ROOM)
    binds = f"{namespace.name}/pods/asker-0/binding$"
    with proxy.breaking(Fault("POST", binds, Answer(429, (("Retry-After", "1"),)))) as fault:
        namespace.make(pod("asker-0", "0=node1:0\n", literal("0"), requests=BIG))
        eventually("the first bind was refused", lambda: fault.struck)
        namespace.make(foreign_pod)
        namespace.wait_message("asker-0", "InsufficientResources: ", seconds=20)
    assert proxy.count("POST", binds) == 1
    namespace.delete(foreign_pod["metadata"]["name"])
    namespace.wait_bound("asker-0", "node1", seconds=20)


def test_a_pod_waits_for_a_gpu_that_another_pod_takes_first(
    namespace: Namespace, proxy: FaultProxy, proxied: Command
) -> None:
    """F13. Another pod is created with nodeName and takes the GPU: the condition names that pod."""
    namespace.node("node1")
    binds = f"{namespace.name}/pods/asker-0/binding$"
    with proxy.breaking(Fault("POST", binds, Answer(429, (("Retry-After", "1"),)))) as fault:
        namespace.pod("asker-0", "0=node1:0\n", "0")
        eventually("the first bind was refused", lambda: fault.struck)
        namespace.make(pod("taker-0", "0=node1:0\n1=node1:1\n", literal("0"), nodeName="node1"))
        assert f"{namespace.name}/taker-0" in namespace.wait_message("asker-0", "GpuHeld: ", seconds=20)
    assert proxy.count("POST", binds) == 1
    namespace.delete("taker-0")
    namespace.wait_bound("asker-0", "node1", seconds=20)


def test_a_gpu_that_is_taken_during_a_bind_is_reported_as_a_conflict(
    namespace: Namespace, proxy: FaultProxy, proxied: Command
) -> None:
    """F13. During a bind a pod with nodeName takes its GPU: within 30 s both get an event, and the metric counts it."""
    namespace.node("node1")
    with proxy.breaking(Fault("POST", BINDING, Delay(CALL_TIMEOUT - 1))) as fault:
        namespace.pod("first-0", "0=node1:0\n", "0")
        eventually("the bind is on its way", lambda: fault.struck)
        namespace.make(pod("taker-0", "0=node1:0\n1=node1:1\n", literal("0"), nodeName="node1"))
        namespace.wait_bound("first-0", "node1", seconds=20)
    eventually("the metric counts it", lambda: proxied.metric("gpu_scheduler_conflicts") == 1, seconds=30)
    for name in ("first-0", "taker-0"):
        assert namespace.wait_event(name, "GpuConflict")
    namespace.delete("taker-0")
    eventually("it is over", lambda: proxied.metric("gpu_scheduler_conflicts") == 0)


def _open(namespace: Namespace) -> None:
    """Create node1 with eight devices, one of them in use."""
    namespace.add(node("node1", annotations=inventory(*map(device, range(8)))))
    namespace.pod("runs-0", "0=node1:5\n", "5")
    namespace.wait_bound("runs-0", "node1", seconds=20)


def _runs_on(namespace: Namespace) -> None:
    """Check that the running pod is neither moved nor deleted."""
    running = namespace.read("runs-0")
    assert running["spec"]["nodeName"] == "node1"
    assert "deletionTimestamp" not in running["metadata"]


def _is_reported(namespace: Namespace) -> bool:
    """Return whether a new pod reports the cordon. Delete the pod if it is bound instead."""
    namespace.pod("late-0", "0=node1:7\n", "7")
    eventually("it is bound or has a condition", lambda: namespace.node_of("late-0") or namespace.condition("late-0"))
    if namespace.node_of("late-0"):
        namespace.delete("late-0")
        return False
    return str(namespace.condition("late-0")["message"]).startswith("NodeUnschedulable: ")
