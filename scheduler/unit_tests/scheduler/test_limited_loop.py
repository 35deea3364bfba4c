"""The scheduling loop with limited namespaces: which pods wait, what requeues them, and in which order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_scheduler.core.refs import Owner
from unit_tests.core.build import pod
from unit_tests.scheduler.test_scheduling_loop import bound, looping
from unit_tests.scheduler.test_strategy_loop import apply_nodes, asking, confirm_binds, end, gpu_node, placed
from unit_tests.virtual import settle

MAP = "0=node1:0\n1=node2:0\n2=node3:0\n"


async def test_the_oldest_pod_gets_the_first_free_device() -> None:
    """The oldest of the pods that wait for quota. No pod exceeds the limit, however many GPUs are free."""
    async with looping() as loop:
        apply_nodes(loop, gpu_node("node1", 4))
        loop.scheduler.limits.applied("default: devices=1")
        for name in ("a", "b", "c"):
            await loop.see(asking(name))
        assert placed(loop) == ["a=node1:0"]
        await confirm_binds(loop)

        await end(loop, "a")

        assert loop.binder.names() == ["a", "b"]
        await end(loop, "b")
        assert loop.binder.names() == ["a", "b", "c"]


@pytest.mark.promise("quota-3")
async def test_a_terminating_pod_frees_nothing_yet() -> None:
    """Its devices count until it is gone."""
    async with looping() as loop:
        loop.scheduler.limits.applied("default: devices=1")
        leaving = replace(bound(pod("train-0", MAP), "node1"), deleting_since="2026-11-21T01:00:00Z")
        await loop.see(leaving, pod("train-1", MAP))
        assert loop.binder.sent == []

        await loop.forget(leaving)
        assert loop.binder.names() == ["train-1"]


async def test_a_freed_device_of_another_namespace_requeues_no_pod() -> None:
    """It does not count against this namespace's limit."""
    async with looping() as loop:
        loop.scheduler.limits.applied("default: devices=0")
        other = bound(pod("train-1", MAP, namespace="team-b"), "node2")
        await loop.see(other, pod("train-0", MAP))
        reported = len(loop.event_recorder.recorded)

        loop.scheduler.pods.forgotten(other)
        assert not loop.scheduler.queue.any_active()
        loop.scheduler.cache.set_limits(loop.scheduler.limits.limits, {"default"})
        assert loop.scheduler.queue.any_active()
        await settle()
        assert len(loop.event_recorder.recorded) == reported


async def test_other_limits_requeue_the_pods_that_wait_for_quota() -> None:
    """Raised or removed limits do. Pods that wait for something else are left alone."""
    async with looping() as loop:
        loop.scheduler.limits.applied("*: devices=0")
        await loop.see(pod("train-0", MAP), pod("lost-0", "0=node9:0", owner=Owner("StatefulSet", "lost")))
        assert loop.binder.sent == []

        loop.scheduler.limits.applied("*: devices=0\ndefault: devices=1")
        await settle()
        assert loop.binder.names() == ["train-0"]


@pytest.mark.promise("quota-4")
async def test_a_lower_limit_ends_no_pod() -> None:
    """Pods that run beyond it continue. Only new pods wait."""
    async with looping() as loop:
        await loop.see(bound(pod("train-0", MAP), "node1"), bound(pod("train-1", MAP), "node2"))
        loop.scheduler.limits.applied("default: devices=1")
        await loop.see(pod("train-2", MAP))

        assert loop.binder.sent == []
        assert loop.scheduler.ledger.devices.usage.used("default") == 2


@pytest.mark.promise("quota-7")
async def test_a_priority_counts_as_the_maximum_from_the_next_placement_on() -> None:
    """A pod that asks for a billion waits behind older pods with the maximum."""
    async with looping() as loop:
        apply_nodes(loop, gpu_node("node1"))
        loop.scheduler.settings.applied("priority")
        await loop.see(asking("first"))
        await confirm_binds(loop)
        await loop.see(asking("modest", priority="10"), asking("greedy", priority="1000000000"))
        loop.scheduler.limits.applied("*: priority=10")
        await end(loop, "first")

        assert loop.binder.names() == ["first", "modest"]
