"""The loop with pods that leave their cards to a strategy: whose turn it is, what wakes them, what a change does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_scheduler import names
from gpu_scheduler.core.nodes.inventory import Device, DeviceReading, Health, Inventory
from gpu_scheduler.core.nodes.monitor_leases import MonitorLease
from gpu_scheduler.scheduler.ports import Result, Unknown
from tests.core.build import bound, node, pod
from tests.scheduler.test_scheduling_loop import looping

if TYPE_CHECKING:
    from gpu_scheduler.core.nodes.nodes import Node
    from gpu_scheduler.core.pods.pod import Pod
    from tests.scheduler.test_scheduling_loop import Loop


def asking(name: str, count: int = 1, **annotations: str) -> Pod:
    """A pod that asks for GPUs by number; keywords are annotations by their last word."""
    said = {f"agentaflow.gpu/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return pod(name, None, annotations={names.COUNT: str(count), **said})


def cards(name: str, count: int = 1, **readings: DeviceReading) -> Node:
    """A node with A100s, and what its monitor read: `gpu0=Reading(…)`."""
    inventory = Inventory(tuple(Device(index, model="A100", memory=40960) for index in range(count)))
    return node(
        name, inventory=inventory, readings={int(key.removeprefix("gpu")): each for key, each in readings.items()}
    )


def rack(loop: Loop, *nodes: Node) -> None:
    """Let the watch show these nodes."""
    for each in nodes:
        loop.scheduler.world.nodes.applied(each)


def placed(loop: Loop) -> list[str]:
    """Who was sent where, in order."""
    return [f"{bind.pod.name}={bind.placement.node}:{bind.placement.value}" for bind in loop.binder.sent]


def land(loop: Loop) -> None:
    """Let the watch show what was bound."""
    for bind in list(loop.binder.sent):
        tracked = loop.scheduler.tracked.get(bind.pod.uid)
        if tracked is not None and not tracked.pod.bound:
            loop.see(bound(tracked.pod, bind.placement, ""))


async def end(loop: Loop, name: str) -> None:
    """The pod is gone; what it held is free."""
    (tracked,) = (each for each in loop.scheduler.tracked.values() if each.pod.ref.name == name)
    loop.scheduler.pods.forgotten(tracked.pod)
    await loop.settle()
    land(loop)
    await loop.settle()


async def test_a_freed_gpu_goes_to_the_highest_priority() -> None:
    """Whoever came first: of pods that wait for one GPU, the highest is bound when it frees; equals by age."""
    async with looping() as loop:
        rack(loop, cards("node1"))
        loop.scheduler.settings.applied("priority")
        loop.see(asking("first"))
        await loop.settle()
        land(loop)
        for name, priority in (("low", "1"), ("high", "9"), ("middle", "5"), ("middle-too", "5")):
            loop.see(asking(name, priority=priority))
        await loop.settle()
        assert placed(loop) == ["first=node1:0"]

        for name in ("first", "high", "middle", "middle-too"):
            await end(loop, name)

        assert loop.binder.names() == ["first", "high", "middle", "middle-too", "low"]


async def test_priority_orders_those_who_come_at_once() -> None:
    """The backlog is taken from the top, whatever the order of arrival; a map pod stands at nought."""
    async with looping() as loop:
        rack(loop, cards("node1", 4))
        loop.scheduler.settings.applied("priority")
        for each in (asking("low", priority="-1"), pod("a-0", "0=node2:0"), asking("high", priority="1")):
            loop.see(each)
        await loop.settle()

        assert loop.binder.names() == ["high", "a-0", "low"]


async def test_priority_counts_for_nothing_under_another_strategy() -> None:
    """Then who came first goes first, unless the pod itself chose `priority`."""
    async with looping() as loop:
        rack(loop, cards("node1", 4))
        for each in (
            asking("first"),
            asking("second", priority="9"),
            asking("third", priority="5", scheduling_strategy="priority"),
        ):
            loop.see(each)
        await loop.settle()

        assert loop.binder.names() == ["third", "first", "second"]


async def test_another_strategy_holds_from_the_next_decision_on() -> None:
    """What waits is ranked anew and has another turn; the pod's own word goes before the cluster's."""
    async with looping() as loop:
        rack(loop, cards("node1", 2), cards("node2", 4))
        loop.see(asking("spread"), asking("waiting", 5), asking("waiting-too", 5, priority="3"))
        await loop.settle()
        attempts = loop.recorder.attempts.count(Result.UNSCHEDULABLE)
        loop.scheduler.settings.applied("priority")
        assert loop.scheduler.queue.pop(0) == "uid-of-default/waiting-too"
        await loop.settle()
        assert loop.recorder.attempts.count(Result.UNSCHEDULABLE) == attempts + 1

        loop.scheduler.settings.applied("best_fit")
        loop.see(asking("tight"), asking("own", scheduling_strategy="priority"))
        await loop.settle()
        assert placed(loop) == ["spread=node1:0", "tight=node1:1", "own=node2:0"]


async def test_a_strategy_that_changes_leaves_binds_in_the_air_alone() -> None:
    """What was promised is sent again as it was, whatever holds now."""
    async with looping(Unknown("time-out")) as loop:
        rack(loop, cards("node1", 2))
        loop.see(asking("a"))
        await loop.settle()
        loop.scheduler.settings.applied("priority")
        await loop.later(2)

        assert loop.binder.sent == [loop.binder.sent[0]] * 2


async def test_a_pod_waits_until_any_node_fits() -> None:
    """A card that heals, a card that is busy no longer, a node that comes: each binds who waits for no node by name."""
    async with looping() as loop:
        sick, busy = DeviceReading(health=Health.UNHEALTHY), DeviceReading(utilization=95)
        rack(loop, cards("node1", gpu0=sick), cards("node2", gpu0=busy))
        loop.see(asking("a"), asking("b"), asking("c"))
        await loop.later(100)
        assert placed(loop) == []
        assert loop.event_recorder.notes("a")[0].startswith("GpuUnhealthy: ")

        rack(loop, cards("node1"))
        await loop.later(100)
        rack(loop, cards("node2", gpu0=DeviceReading(utilization=10)))
        await loop.later(100)
        rack(loop, cards("node3"))
        await loop.later(100)

        assert placed(loop) == ["a=node1:0", "b=node2:0", "c=node3:0"]


async def test_a_silent_monitor_is_noticed_by_time_alone() -> None:
    """Its node gets no pod; who waits is told, within a second; it heals with the next renewal."""
    async with looping() as loop:
        rack(loop, cards("node1"))
        loop.scheduler.world.monitors.applied(MonitorLease("node1", None, 45))
        await loop.settle()
        assert loop.scheduler.heartbeat_age == 0
        loop.now[0] += 45.5
        # Nothing stirs the loop but its own timer: its rest ends by itself where the clock is real.
        loop.scheduler._wakeup.set()
        await loop.settle()
        loop.see(asking("a"))
        await loop.settle()
        assert loop.event_recorder.notes("a")[0].startswith("GpuUnhealthy: ")

        loop.scheduler.world.monitors.applied(MonitorLease("node1", "2027-05-01T12:00:00Z", 45))
        await loop.settle()

        assert placed(loop) == ["a=node1:0"]


async def test_the_loop_rests_no_longer_than_a_monitor_may_be_silent() -> None:
    """The beat tells how long it means to rest."""
    async with looping() as loop:
        rack(loop, cards("node1"))
        loop.scheduler.world.monitors.applied(MonitorLease("node1", None, 45))
        await loop.later(0)
        assert loop.scheduler._heartbeat == 1045

        await loop.later(45)
        assert loop.scheduler._heartbeat == 1105
