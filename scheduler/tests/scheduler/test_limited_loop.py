"""The loop with namespaces that have limits: who waits, what wakes them, and in which order."""

from __future__ import annotations

from dataclasses import replace

from gpu_scheduler.core.refs import Owner
from tests.core.build import pod
from tests.scheduler.test_scheduling_loop import bound, looping
from tests.scheduler.test_strategy_loop import asking, cards, end, land, placed, rack

MAP = "0=node1:0\n1=node2:0\n2=node3:0\n"


async def test_who_came_first_gets_the_first_device_that_is_free() -> None:
    """Of those who wait for quota; nobody goes beyond the limit, whatever GPUs are free."""
    async with looping() as loop:
        rack(loop, cards("node1", 4))
        loop.scheduler.limits.applied("default: devices=1")
        for name in ("a", "b", "c"):
            loop.see(asking(name))
            await loop.settle()
        assert placed(loop) == ["a=node1:0"]
        land(loop)

        await end(loop, "a")

        assert loop.binder.names() == ["a", "b"]
        await end(loop, "b")
        assert loop.binder.names() == ["a", "b", "c"]


async def test_a_terminating_pod_frees_nothing_yet() -> None:
    """Its devices count until it is gone."""
    async with looping() as loop:
        loop.scheduler.limits.applied("default: devices=1")
        leaving = replace(bound(pod("train-0", MAP), "node1"), deleting_since="2026-11-21T01:00:00Z")
        loop.see(leaving)
        loop.see(pod("train-1", MAP))
        await loop.settle()
        assert loop.binder.sent == []

        loop.scheduler.pods.forgotten(leaving)
        await loop.settle()
        assert loop.binder.names() == ["train-1"]


async def test_another_namespace_does_not_wake_them() -> None:
    """A device of theirs is none of ours."""
    async with looping() as loop:
        loop.scheduler.limits.applied("default: devices=0")
        other = bound(pod("train-1", MAP, namespace="team-b"), "node2")
        loop.see(other)
        loop.see(pod("train-0", MAP))
        await loop.settle()
        told = len(loop.event_recorder.told)

        loop.scheduler.pods.forgotten(other)
        assert not loop.scheduler.queue.any_active()
        loop.scheduler.world.set_limits(loop.scheduler.limits.limits, {"default"})
        assert loop.scheduler.queue.any_active()
        await loop.settle()
        assert len(loop.event_recorder.told) == told


async def test_other_limits_wake_who_waits_for_quota() -> None:
    """Raised or taken away: who waits for something else is left alone."""
    async with looping() as loop:
        loop.scheduler.limits.applied("*: devices=0")
        loop.see(pod("train-0", MAP))
        loop.see(pod("lost-0", "0=node9:0", owner=Owner("StatefulSet", "lost")))
        await loop.settle()
        assert loop.binder.sent == []

        loop.scheduler.limits.applied("*: devices=0\ndefault: devices=1")
        await loop.settle()
        assert loop.binder.names() == ["train-0"]


async def test_a_lower_limit_ends_no_pod() -> None:
    """What runs beyond it goes on; only who is new waits."""
    async with looping() as loop:
        for number, node in ((0, "node1"), (1, "node2")):
            loop.see(bound(pod(f"train-{number}", MAP), node))
        loop.scheduler.limits.applied("default: devices=1")
        loop.see(pod("train-2", MAP))
        await loop.settle()

        assert loop.binder.sent == []
        assert loop.scheduler.ledger.devices.usage.used("default") == 2


async def test_a_priority_counts_as_the_maximum_from_the_next_placement_on() -> None:
    """A pod that asks for a billion waits behind who came before it with the maximum."""
    async with looping() as loop:
        rack(loop, cards("node1"))
        loop.scheduler.settings.applied("priority")
        loop.see(asking("first"))
        await loop.settle()
        land(loop)
        for name, priority in (("modest", "10"), ("greedy", "1000000000")):
            loop.see(asking(name, priority=priority))
        await loop.settle()
        loop.scheduler.limits.applied("*: priority=10")
        await end(loop, "first")

        assert loop.binder.names() == ["first", "modest"]
