"""The scheduling loop with pods that a strategy places: their order, their requeues, a change of the strategy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpu_scheduler import names
from gpu_scheduler.core.nodes.inventory import Device, DeviceReading, Health, Inventory
from gpu_scheduler.core.nodes.monitor_leases import MonitorLease
from gpu_scheduler.core.refs import Owner
from gpu_scheduler.scheduler.ports import AttemptResult, Unknown
from unit_tests.core.build import bound, node, pod
from unit_tests.scheduler.test_scheduling_loop import looping
from unit_tests.virtual import settle

if TYPE_CHECKING:
    from gpu_scheduler.core.nodes.nodes import Node
    from gpu_scheduler.core.pods.pod import Pod
    from unit_tests.scheduler.test_scheduling_loop import Loop


def asking(name: str, count: int = 1, **annotations: str) -> Pod:
    """Return a pod that requests `count` GPUs; each keyword sets the annotation agentaflow.gpu/<keyword>."""
    annotated = {f"agentaflow.gpu/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return pod(name, None, annotations={names.COUNT: str(count), **annotated})


def gpu_node(name: str, count: int = 1, **readings: DeviceReading) -> Node:
    """Return a node with `count` A100s and its monitor's readings: `gpu0=DeviceReading(…)`."""
    inventory = Inventory(tuple(Device(index, model="A100", memory=40960) for index in range(count)))
    return node(
        name, inventory=inventory, readings={int(key.removeprefix("gpu")): each for key, each in readings.items()}
    )


def apply_nodes(loop: Loop, *nodes: Node) -> None:
    for each in nodes:
        loop.scheduler.cache.nodes.applied(each)


def placed(loop: Loop) -> list[str]:
    """List the binds that were sent, in order, as pod=node:devices."""
    return [f"{bind.pod.name}={bind.placement.node}:{bind.placement.value}" for bind in loop.binder.sent]


async def confirm_binds(loop: Loop) -> None:
    sent = [(loop.scheduler.pod_states.get(bind.pod.uid), bind.placement) for bind in loop.binder.sent]
    await loop.see(*(bound(state.pod, at, "") for state, at in sent if state is not None and not state.pod.bound))


async def end(loop: Loop, name: str) -> None:
    """Delete the pod, and confirm the binds that follow."""
    (state,) = (each for each in loop.scheduler.pod_states.values() if each.pod.ref.name == name)
    await loop.forget(state.pod)
    await confirm_binds(loop)


async def test_a_freed_gpu_goes_to_the_highest_priority() -> None:
    """Of the pods that wait for one GPU, the highest priority is bound first; of one second, the first to arrive."""
    async with looping() as loop:
        apply_nodes(loop, gpu_node("node1"))
        loop.scheduler.settings.applied("priority")
        await loop.see(asking("first"))
        await confirm_binds(loop)
        waiting = (("low", "1"), ("high", "9"), ("middle", "5"), ("middle-too", "5"))
        await loop.see(*(asking(name, priority=priority) for name, priority in waiting))
        assert placed(loop) == ["first=node1:0"]

        for name in ("first", "high", "middle", "middle-too"):
            await end(loop, name)

        assert loop.binder.names() == ["first", "high", "middle", "middle-too", "low"]


def created(at: str, given: Pod) -> Pod:
    return replace(given, created=f"2026-11-24T{at}:00Z")


@pytest.mark.promise("steer-5")
async def test_equal_priorities_go_by_creation_whatever_the_order_of_a_list() -> None:
    """A list is in order of name. After a start, a failover and a new list, the pod that was created first is first."""
    async with looping() as loop:
        loop.scheduler.settings.applied("priority")
        young, old = created("12:00", asking("a-young")), created("09:00", asking("z-old"))
        urgent = created("13:00", asking("m-urgent", priority="1"))
        await loop.see(young, urgent, old, young, old)
        apply_nodes(loop, gpu_node("node1"))
        await settle()
        await confirm_binds(loop)
        for name in ("m-urgent", "z-old"):
            await end(loop, name)

        assert loop.binder.names() == ["m-urgent", "z-old", "a-young"]


@pytest.mark.promise("wait-6")
async def test_a_hundred_pods_of_a_tenant_that_are_patched_do_not_delay_another_tenant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each patch of an owner reference is a new attempt at once, but after another namespace's first (S3)."""
    async with looping() as loop:
        apply_nodes(loop, gpu_node("node1"))
        tenant = [replace(asking(f"tenant-{number}", 9), created="2026-11-24T09:00:00Z") for number in range(100)]
        await loop.see(*tenant)
        decided: list[str] = []
        monkeypatch.setattr(loop.scheduler.cache.journal, "decided", lambda ref, _: decided.append(ref.name))
        patched = [replace(each, owner=Owner("StatefulSet", "other")) for each in tenant]
        victim = pod("victim", None, namespace="small", annotations={names.COUNT: "1"}, created="2026-11-24T10:00:00Z")
        await loop.see(*patched, victim)

        assert decided[0] == "victim"
        assert len(decided) == 101
        assert loop.binder.names() == ["victim"]


async def test_spec_priority_goes_before_the_priority_by_strategy() -> None:
    """A pod of a higher PriorityClass is tried first, whatever the strategy, up to the maximum of its namespace."""
    async with looping() as loop:
        loop.scheduler.settings.applied("priority")
        loop.scheduler.limits.applied("boasting: priority=0")
        apply_nodes(loop, gpu_node("node1", 3))
        boasting = pod("boasting", None, namespace="boasting", annotations={names.COUNT: "1"}, priority=10**9)
        await loop.see(boasting, asking("low", priority="9"), replace(asking("high"), priority=1000))

        assert loop.binder.names() == ["high", "low", "boasting"]


async def test_priority_counts_for_nothing_under_another_strategy() -> None:
    """Then the oldest pod is first, unless a pod itself chose `priority`."""
    async with looping() as loop:
        apply_nodes(loop, gpu_node("node1", 4))
        third = asking("third", priority="5", scheduling_strategy="priority")
        await loop.see(asking("first"), asking("second", priority="9"), third)

        assert loop.binder.names() == ["third", "first", "second"]


async def test_another_strategy_applies_from_the_next_decision_on() -> None:
    """Waiting pods are ranked anew and requeued. A pod's own strategy takes precedence over the cluster's."""
    async with looping() as loop:
        apply_nodes(loop, gpu_node("node1", 2), gpu_node("node2", 4))
        await loop.see(asking("spread"), asking("waiting", 5), asking("waiting-too", 5, priority="3"))
        attempts = loop.recorder.attempts.count(AttemptResult.UNSCHEDULABLE)
        loop.scheduler.settings.applied("priority")
        assert loop.scheduler.queue.pop(0) == "uid-of-default/waiting-too"
        await settle()
        assert loop.recorder.attempts.count(AttemptResult.UNSCHEDULABLE) == attempts + 1

        loop.scheduler.settings.applied("best_fit")
        await loop.see(asking("tight"), asking("own", scheduling_strategy="priority"))
        assert placed(loop) == ["spread=node1:0", "tight=node1:1", "own=node2:0"]


async def test_a_strategy_that_changes_leaves_assumed_placements_alone() -> None:
    """The bind is sent again unchanged, whichever strategy applies now."""
    async with looping(Unknown("time-out")) as loop:
        apply_nodes(loop, gpu_node("node1", 2))
        await loop.see(asking("a"))
        loop.scheduler.settings.applied("priority")
        await loop.later(2)

        assert loop.binder.sent == [loop.binder.sent[0]] * 2


async def test_a_pod_waits_until_any_node_fits() -> None:
    """A device that heals, a device that is no longer busy, a new node: each requeues pods that name no node."""
    async with looping() as loop:
        sick, busy = DeviceReading(health=Health.UNHEALTHY), DeviceReading(utilization=95)
        apply_nodes(loop, gpu_node("node1", gpu0=sick), gpu_node("node2", gpu0=busy))
        await loop.see(asking("a"), asking("b"), asking("c"))
        await loop.later(100)
        assert placed(loop) == []
        assert loop.event_recorder.notes("a")[0].startswith("NotEnoughGpus: ")

        apply_nodes(loop, gpu_node("node1"))
        await loop.later(100)
        apply_nodes(loop, gpu_node("node2", gpu0=DeviceReading(utilization=10)))
        await loop.later(100)
        apply_nodes(loop, gpu_node("node3"))
        await loop.later(100)

        assert placed(loop) == ["a=node1:0", "b=node2:0", "c=node3:0"]


async def test_a_monitor_that_does_not_renew_is_noticed_by_time_alone() -> None:
    """Its node gets no pod, and the waiting pod's owner reads why within a second. The next renewal ends that."""
    async with looping() as loop:
        apply_nodes(loop, gpu_node("node1"))
        loop.scheduler.cache.monitors.applied(MonitorLease("node1", None, 45))
        await settle()
        assert loop.scheduler.heartbeat_age == 0
        loop.now[0] += 45.5
        # Only the loop's own timer ends its pause. This clock is not real, so the test does it.
        loop.scheduler._wakeup.set()
        await settle()
        await loop.see(asking("a"))
        assert loop.event_recorder.notes("a")[0].startswith("GpuUnhealthy: ")

        loop.scheduler.cache.monitors.applied(MonitorLease("node1", "2027-05-01T12:00:00Z", 45))
        await settle()

        assert placed(loop) == ["a=node1:0"]


async def test_the_loop_pauses_no_longer_than_a_monitor_lease_lasts() -> None:
    """The heartbeat includes the pause that the loop plans."""
    async with looping() as loop:
        apply_nodes(loop, gpu_node("node1"))
        loop.scheduler.cache.monitors.applied(MonitorLease("node1", None, 45))
        await loop.later(0)
        assert loop.scheduler._heartbeat == 1045

        await loop.later(45)
        assert loop.scheduler._heartbeat == 1105
