"""What a pod was promised, or is kept for it, until the pod itself or a definite answer settles it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_scheduler.core.filters.volumes import StorageClass, Volume, VolumeClaim
from gpu_scheduler.scheduler.audit import LedgerAudit
from gpu_scheduler.scheduler.ports import Result, Unknown
from tests.core.build import pod
from tests.scheduler.test_scheduling_loop import ONE_GPU, SAME_GPU, Loop, looping

if TYPE_CHECKING:
    import pytest

    from gpu_scheduler.core.pods.pod import Pod

DELETING = "2026-11-20T08:30:00Z"
TWO_LINES = "0=node1:0\n1=node1:1"


def deleting(given: Pod) -> Pod:
    """The pod as the watch shows it when somebody has deleted it."""
    return replace(given, deleting_since=DELETING)


async def test_a_deleted_pod_settles_its_own_unknown_bind() -> None:
    """The API server binds no pod that is being deleted: what it was promised goes to the next."""
    async with looping(Unknown("time-out")) as loop:
        first = pod("a-0", ONE_GPU)
        loop.see(first, pod("b-0", SAME_GPU))
        await loop.settle()
        assert loop.binder.names() == ["a-0"]

        loop.see(deleting(first))
        await loop.later(2)

        assert loop.binder.names() == ["a-0", "b-0"]
        assert await loop.scheduler.drain(0)


async def test_a_pod_that_is_deleted_while_its_bind_flies_is_settled_by_the_answer() -> None:
    """Whatever the answer: nothing is sent again, and nothing stays held."""
    async with looping(Unknown("time-out")) as loop:
        loop.binder.hold = asyncio.Event()
        first = pod("a-0", ONE_GPU)
        loop.see(first)
        await loop.settle()
        loop.see(deleting(first))
        await loop.settle()
        loop.binder.hold.set()
        await loop.later(1000)

        assert loop.binder.names() == ["a-0"]
        assert not loop.scheduler.ledger.holds(first.ref.uid)


async def test_a_second_lost_answer_is_told() -> None:
    """One settles itself before anybody could read of it; after that the owner hears why nothing happens, once."""
    async with looping(*[Unknown("time-out")] * 3) as loop:
        loop.see(pod("a-0", ONE_GPU))
        await loop.settle()
        assert loop.event_recorder.told == []
        await loop.later(2)
        await loop.later(4)

        assert loop.event_recorder.notes("a-0") == [
            "BindFailed: cannot tell whether the pod was bound to node1: time-out"
        ]
        assert loop.recorder.attempts.count(Result.ERROR) == 3


async def test_a_refused_pod_is_told_and_left_alone() -> None:
    """Nothing but a change of the pod cures it."""
    async with looping() as loop:
        loop.see(pod("a-0", "nonsense"))
        await loop.settle()

        assert loop.event_recorder.notes("a-0")[0].startswith("MapInvalid: ")
        assert loop.scheduler.queue.counts() == {"active": 0, "backoff": 0, "unschedulable": 1}


def storing(loop: Loop, *claims: VolumeClaim) -> None:
    """A class whose volumes are made where the first pod runs, and these claims."""
    loop.scheduler.world.classes.applied(StorageClass("local", waits_for_consumer=True))
    for each in claims:
        loop.scheduler.world.claims.applied(each)


async def test_a_line_is_kept_while_its_volume_is_made() -> None:
    """A pod that takes any line waits for its volume; the next takes another line, and each is bound to its own."""
    async with looping() as loop:
        claim = VolumeClaim("default", "data", storage_class="local")
        storing(loop, claim)
        first = replace(pod("train", TWO_LINES, owner=None), claims=("data",))
        loop.see(first)
        await loop.settle()
        loop.see(pod("other", TWO_LINES, owner=None))
        await loop.settle()
        assert loop.scheduler.ledger.reserved(first.ref.uid) == 0
        world = loop.scheduler.world
        assert loop.scheduler.ledger.differences(world.rebuild_ledger(loop.scheduler.tracked)) == 0

        world.volumes.applied(Volume("pv-1"))
        world.claims.applied(replace(claim, volume="pv-1", selected_node="node1"))
        await loop.settle()

        bound = [(bind.pod.name, bind.placement.index) for bind in loop.binder.sent]
        assert bound == [("other", 1), ("train", 0)]


async def test_a_pod_that_is_gone_gives_up_the_line_that_was_kept() -> None:
    """The next pod has it."""
    async with looping() as loop:
        storing(loop, VolumeClaim("default", "data", storage_class="local"))
        first = replace(pod("train", TWO_LINES, owner=None), claims=("data",))
        loop.see(first)
        await loop.settle()
        loop.scheduler.pods.forgotten(first)
        loop.see(pod("other", TWO_LINES, owner=None))
        await loop.settle()

        assert [bind.placement.index for bind in loop.binder.sent] == [0]


async def test_an_audit_that_fails_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks after what should never happen; its own fault must not keep pods from their GPUs."""

    def bug(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(LedgerAudit, "run", bug)
    async with looping() as loop:
        loop.see(pod("a-0", ONE_GPU))
        await loop.settle()

        assert loop.binder.names() == ["a-0"]
