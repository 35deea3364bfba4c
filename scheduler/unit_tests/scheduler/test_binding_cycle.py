"""Devices that are assumed or reserved for a pod, until the pod itself or a definite answer settles the outcome."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpu_scheduler.core.filters.volumes import StorageClass, Volume, VolumeClaim
from gpu_scheduler.scheduler.audit import LedgerAudit
from gpu_scheduler.scheduler.ports import AttemptResult, Unknown
from tests.messages import says
from unit_tests.core.build import bound, placed, pod
from unit_tests.scheduler.test_scheduling_loop import ONE_GPU, SAME_GPU, Loop, looping
from unit_tests.virtual import settle

if TYPE_CHECKING:
    from gpu_scheduler.core.pods.pod import Pod

DELETING = "2026-11-20T08:30:00Z"
TWO_LINES = "0=node1:0\n1=node1:1"


def deleting(given: Pod) -> Pod:
    return replace(given, deleting_since=DELETING)


async def test_a_deleted_pod_settles_its_own_unknown_bind() -> None:
    """The API server binds no pod that is being deleted. The next pod gets the devices assumed for it."""
    async with looping(Unknown("time-out")) as loop:
        first = pod("a-0", ONE_GPU)
        await loop.see(first, pod("b-0", SAME_GPU))
        assert loop.binder.names() == ["a-0"]

        await loop.see(deleting(first))
        await loop.later(2)

        assert loop.binder.names() == ["a-0", "b-0"]
        assert await loop.scheduler.drain(0)


async def test_the_answer_settles_the_bind_of_a_pod_that_is_deleted_meanwhile() -> None:
    """Whatever the answer is, the scheduler sends nothing again and holds no device."""
    async with looping(Unknown("time-out")) as loop:
        loop.binder.hold = asyncio.Event()
        first = pod("a-0", ONE_GPU)
        await loop.see(first)
        await loop.see(deleting(first))
        loop.binder.hold.set()
        await loop.later(1000)

        assert loop.binder.names() == ["a-0"]
        assert not loop.scheduler.ledger.holds(first.ref.uid)


STORED = bound(pod("a-0", ONE_GPU), placed("node1", "0"), phase="Pending")
LEFT = {
    "nothing, before the Binding was stored": (pod("a-0", ONE_GPU), ["a-0"]),
    "a bound pod that no kubelet has started": (STORED, []),
    "a pod that runs": (replace(STORED, phase="Running"), []),
    "a pod that terminates": (deleting(replace(STORED, phase="Running")), []),
}


@pytest.mark.promise("lead-4")
@pytest.mark.parametrize(("left", "binds"), LEFT.values(), ids=LEFT)
async def test_a_leader_starts_from_what_a_crash_left(left: Pod, binds: list[str]) -> None:
    """The pods alone show which GPUs are held. Nobody has to repair anything, and no GPU is given twice."""
    async with looping() as loop:
        await loop.see(left, pod("b-0", SAME_GPU))
        await loop.later(1000)

        assert loop.binder.names() == binds
        says(loop.event_recorder.notes("b-0")[-1], "GpuHeld", "GPU 0", "node1", "default/a-0")


async def test_a_second_lost_answer_is_reported() -> None:
    """A first lost answer is settled before the owner could read a report. After the second, one report is written."""
    async with looping(*[Unknown("time-out")] * 3) as loop:
        await loop.see(pod("a-0", ONE_GPU))
        assert loop.event_recorder.recorded == []
        await loop.later(2)
        await loop.later(4)

        assert loop.event_recorder.notes("a-0") == [
            "BindFailed: cannot tell whether the pod was bound to node1: time-out"
        ]
        assert loop.recorder.attempts.count(AttemptResult.ERROR) == 3


@pytest.mark.promise("policy-3", "text-7")
async def test_a_refused_pod_is_reported_and_left_alone() -> None:
    """Only a change of the pod requeues it."""
    async with looping() as loop:
        await loop.see(pod("a-0", "nonsense"))

        says(loop.event_recorder.notes("a-0")[0], "MapInvalid")
        assert loop.scheduler.queue.counts() == {"active": 0, "backoff": 0, "unschedulable": 1}


def storing(loop: Loop, *claims: VolumeClaim) -> None:
    """Apply a StorageClass that waits for the first consumer, and these claims."""
    loop.scheduler.cache.classes.applied(StorageClass("local", waits_for_consumer=True))
    for each in claims:
        loop.scheduler.cache.claims.applied(each)


async def test_a_line_is_reserved_while_its_volume_is_provisioned() -> None:
    """A pod that takes any line waits for its volume. The next pod takes another line; each is bound to its own."""
    async with looping() as loop:
        claim = VolumeClaim("default", "data", storage_class="local")
        storing(loop, claim)
        first = replace(pod("train", TWO_LINES, owner=None), claims=("data",))
        await loop.see(first)
        await loop.see(pod("other", TWO_LINES, owner=None))
        assert loop.scheduler.ledger.reserved(first.ref.uid) == 0
        cache = loop.scheduler.cache
        assert loop.scheduler.ledger.differences(cache.rebuild_ledger(loop.scheduler.pod_states)) == 0

        cache.volumes.applied(Volume("pv-1"))
        cache.claims.applied(replace(claim, volume="pv-1", selected_node="node1"))
        await settle()

        bound = [(bind.pod.name, bind.placement.index) for bind in loop.binder.sent]
        assert bound == [("other", 1), ("train", 0)]


async def test_an_audit_that_fails_stops_no_bind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit checks for faults that should never happen. Its own fault must not keep pods from their GPUs."""

    def bug(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(LedgerAudit, "run", bug)
    async with looping() as loop:
        await loop.see(pod("a-0", ONE_GPU))

        assert loop.binder.names() == ["a-0"]
