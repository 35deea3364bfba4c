"""The loop with fakes around it: what it promises while the API is slow, silent or wrong."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.filters.volumes import StorageClass, Volume, VolumeClaim
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.pods.pod import ForeignPod, Pod, ResourceRequest, ScheduledCondition
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.scheduler import scheduling_loop
from gpu_scheduler.scheduler.ports import BindResult, Bound, Dropped, Failed, Notice, NotSent, Ports, Result, Unknown
from gpu_scheduler.scheduler.scheduling_loop import Scheduler
from gpu_scheduler.scheduler.timings import Timings
from tests.core.build import node, pod
from tests.fakes import FakeBinder, FakeClaims, FakeEventRecorder, FakeRecorder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from gpu_scheduler.core.decide import Cluster
    from gpu_scheduler.core.decision import Decision

ONE_GPU = "0=node1:0\n"
# Another workload's map that names the same GPU.
SAME_GPU = "0=node1:0\n1=node1:1\n"


@dataclass
class Loop:
    """A scheduler that runs, with the fakes around it and a clock of its own."""

    scheduler: Scheduler
    binder: FakeBinder
    event_recorder: FakeEventRecorder
    recorder: FakeRecorder
    claims: FakeClaims
    now: list[float]

    async def settle(self) -> None:
        """Let everything happen that can happen now."""
        for _ in range(60):
            await asyncio.sleep(0)

    async def later(self, seconds: float) -> None:
        """Let time pass; the loop looks up when something stirs."""
        self.now[0] += seconds
        self.scheduler._wakeup.set()
        await self.settle()

    def see(self, *pods: Pod) -> None:
        """Let the watch show these pods."""
        for each in pods:
            self.scheduler.pods.applied(each)


@asynccontextmanager
async def looping(*results: object, binders: int = 64) -> AsyncIterator[Loop]:
    """A loop that decides, with node1 and node2 there."""
    binder, event_recorder, recorder = FakeBinder(list(results)), FakeEventRecorder(), FakeRecorder()  # type: ignore[arg-type]
    claims, now = FakeClaims(), [1000.0]
    scheduler = Scheduler(
        Policy(),
        Ports(binder, claims, event_recorder, recorder, recorder),
        timings=Timings(interval=60),
        clock=lambda: now[0],
        binders=binders,
    )
    for name in ("node1", "node2"):
        scheduler.world.nodes.applied(node(name))
    task = asyncio.create_task(scheduler.run())
    loop = Loop(scheduler, binder, event_recorder, recorder, claims, now)
    await loop.settle()
    try:
        yield loop
    finally:
        await scheduler.drain(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def bound(pending: Pod, node: str = "node1") -> Pod:
    """The pod as the watch shows it after its bind."""
    return replace(pending, node=node)


async def test_a_pod_is_bound_and_announced_once() -> None:
    """One bind, one event, no condition: and the watch's confirmation adds nothing."""
    async with looping() as loop:
        first = pod("a-0", ONE_GPU)
        loop.see(first)
        await loop.settle()
        loop.see(first, bound(first))
        await loop.later(1000)

        assert loop.binder.names() == ["a-0"]
        ((name, notice),) = loop.event_recorder.told
        assert (name, notice.reason, notice.condition) == ("a-0", "Scheduled", None)
        assert loop.recorder.attempts == [Result.SCHEDULED]
        assert (loop.scheduler.tracked.pending(), loop.scheduler.tracked.running()) == (0, 1)


async def test_a_gpu_is_held_while_its_bind_is_in_the_air() -> None:
    """Two pods name one GPU and the watch is frozen: the second waits for the first's answer, and after it too."""
    async with looping() as loop:
        loop.binder.hold = asyncio.Event()
        loop.see(pod("a-0", ONE_GPU), pod("b-0", SAME_GPU))
        await loop.settle()
        assert loop.binder.names() == ["a-0"]

        loop.binder.hold.set()
        await loop.later(1000)

        assert loop.binder.names() == ["a-0"]
        assert loop.event_recorder.notes("b-0") == ["GpuHeld: GPU 0 of node1 is held by default/a-0"]


async def test_without_assume_the_gpu_would_be_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counter-proof: with assume made a no-op the promise above breaks, so the test above can fail."""
    monkeypatch.setattr(Ledger, "assume", lambda *_: None)
    async with looping() as loop:
        loop.binder.hold = asyncio.Event()
        loop.see(pod("a-0", ONE_GPU), pod("b-0", SAME_GPU))
        await loop.settle()
        loop.binder.hold.set()

        assert loop.binder.names() == ["a-0", "b-0"]


async def test_a_freed_gpu_wakes_who_waits_for_it() -> None:
    """Nobody polls: the deletion of the holder is what binds the next pod, at once when it had waited long."""
    async with looping() as loop:
        first, second = pod("a-0", ONE_GPU), pod("b-0", SAME_GPU)
        loop.see(bound(first), second)
        await loop.settle()
        await loop.later(100)
        assert loop.binder.names() == []

        loop.scheduler.pods.forgotten(first)
        await loop.settle()

        assert loop.binder.names() == ["b-0"]


async def test_a_terminating_pod_still_holds() -> None:
    """Its containers may still compute; the message tells since when it is going."""
    async with looping() as loop:
        first, second = pod("a-0", ONE_GPU), pod("b-0", SAME_GPU)
        loop.see(bound(first), second)
        await loop.settle()

        loop.see(replace(bound(first), deleting_since="2026-11-20T08:30:00Z"))
        await loop.settle()
        assert len(loop.event_recorder.told) == 1
        await loop.later(1)

        assert loop.binder.names() == []
        assert "terminating since 2026-11-20T08:30:00Z" in loop.event_recorder.notes("b-0")[-1]


async def test_an_unknown_outcome_keeps_the_gpu_and_asks_again() -> None:
    """A time-out proves nothing: the same bind is sent again, and nobody else gets the GPU meanwhile."""
    async with looping(Unknown("time-out"), Unknown("time-out")) as loop:
        first, second = pod("a-0", ONE_GPU), pod("b-0", SAME_GPU)
        loop.see(first)
        await loop.settle()
        loop.see(second)
        await loop.settle()
        assert loop.binder.names() == ["a-0"]

        await loop.later(2)
        await loop.later(4)

        assert loop.binder.sent == [loop.binder.sent[0]] * 3
        assert loop.event_recorder.notes("b-0") == ["GpuHeld: GPU 0 of node1 is held by default/a-0"]
        assert loop.recorder.attempts.count(Result.SCHEDULED) == 1


@pytest.mark.parametrize("answer", [Failed("BindFailed: HTTP 429"), NotSent("not leading")])
async def test_what_the_second_try_hears_settles_nothing(answer: BindResult) -> None:
    """The first try may still land after the second was refused: the GPU stays held until the pod itself tells."""
    async with looping(Unknown("time-out"), answer, answer) as loop:
        loop.see(pod("a-0", ONE_GPU), pod("b-0", SAME_GPU))
        await loop.settle()
        await loop.later(2)
        await loop.later(4)
        assert loop.binder.names() == ["a-0"] * 3

        loop.see(bound(pod("a-0", ONE_GPU)))
        await loop.later(1000)

        assert loop.binder.names() == ["a-0"] * 3


@pytest.mark.parametrize(
    "answers",
    [
        [Failed("BindFailed: HTTP 429", patience=7)],
        [Unknown("HTTP 503", patience=7)],
        [Unknown("time-out"), Failed("BindFailed: HTTP 429", patience=7)],
    ],
    ids=["a failure", "an open outcome", "a failure after an open outcome"],
)
async def test_the_next_try_is_as_late_as_it_was_asked_to_be(answers: list[BindResult]) -> None:
    """Retry-After is longer than the back-off: it is what counts."""
    async with looping(*answers) as loop:
        loop.see(pod("a-0", ONE_GPU))
        await loop.settle()
        for _ in answers[1:]:
            await loop.later(2)

        await loop.later(6.9)
        assert len(loop.binder.sent) == len(answers)
        await loop.later(0.2)
        assert len(loop.binder.sent) == len(answers) + 1


async def test_a_bind_that_was_never_sent_holds_nothing() -> None:
    """The lead may come back: the pod is decided anew, and so is who gets the GPU."""
    async with looping(NotSent("not leading")) as loop:
        loop.see(pod("a-0", ONE_GPU))
        await loop.settle()

        assert not loop.scheduler.ledger.holds("uid-of-default/a-0")
        assert loop.event_recorder.told == []
        await loop.later(2)
        assert loop.binder.names() == ["a-0", "a-0"]


async def test_the_watch_settles_an_unknown_outcome() -> None:
    """It was bound after all: nothing is sent again, and its owner and the metrics hear of it as of any other."""
    async with looping(Unknown("time-out")) as loop:
        first = pod("a-0", ONE_GPU)
        loop.see(first)
        await loop.settle()

        loop.see(bound(first))
        await loop.later(1000)

        assert loop.binder.names() == ["a-0"]
        assert [(told, notice.reason) for told, notice in loop.event_recorder.told] == [("a-0", "Scheduled")]
        assert loop.recorder.attempts == [Result.ERROR, Result.SCHEDULED]
        assert await loop.scheduler.drain(0)


async def test_an_unknown_outcome_is_settled_by_the_pods_end() -> None:
    """A deleted pod can't be bound any more: its GPU goes to the next."""
    async with looping(Unknown("time-out"), Unknown("time-out")) as loop:
        first = pod("a-0", ONE_GPU)
        loop.see(first, pod("b-0", SAME_GPU))
        await loop.settle()
        await loop.later(100)
        assert loop.binder.names() == ["a-0", "a-0"]

        loop.scheduler.pods.forgotten(first)
        await loop.settle()

        assert loop.binder.names()[-1] == "b-0"


async def test_an_unexpected_error_counts_as_unknown() -> None:
    """A fault of our own must not free a GPU either."""
    async with looping(RuntimeError("a bug")) as loop:
        loop.see(pod("a-0", ONE_GPU))
        await loop.settle()
        loop.see(pod("b-0", SAME_GPU))
        await loop.settle()

        assert loop.binder.names() == ["a-0"]
        await loop.later(2)
        assert loop.binder.names() == ["a-0", "a-0"]


async def test_a_definite_failure_frees_the_gpu_and_tells_the_owner() -> None:
    """BindFailed is our own kind of fault: SchedulerError; the pod is tried again, and others may have its GPU."""
    failed = Failed("BindFailed: cannot bind to node1: HTTP 422: no; trying again by itself")
    async with looping(failed) as loop:
        loop.see(pod("a-0", ONE_GPU))
        await loop.settle()

        ((_, notice),) = loop.event_recorder.told
        assert notice.condition == ScheduledCondition("False", "SchedulerError", failed.message)
        loop.see(pod("b-0", SAME_GPU))
        await loop.settle()
        assert loop.binder.names() == ["a-0", "b-0"]
        await loop.later(2)
        assert loop.binder.names() == ["a-0", "b-0"]
        assert "GpuHeld" in loop.event_recorder.notes("a-0")[-1]


async def test_a_failure_that_stays_the_same_is_told_once() -> None:
    """Every try costs the API one POST, not a condition and an event too; unless what was told was never written."""
    failed = Failed("BindFailed: cannot bind to node1: HTTP 403: no; trying again by itself")
    async with looping(*[failed] * 4) as loop:
        loop.see(pod("a-0", ONE_GPU))
        await loop.settle()
        await loop.later(2)
        await loop.later(4)
        assert (len(loop.binder.sent), len(loop.event_recorder.told)) == (3, 1)

        loop.event_recorder.unwritten = True
        await loop.later(8)
        assert (len(loop.binder.sent), len(loop.event_recorder.told)) == (4, 2)


async def test_a_dropped_bind_is_no_news() -> None:
    """The pod is gone or the lead is lost: nothing to tell, nothing held."""
    async with looping(Dropped("the pod is gone")) as loop:
        loop.see(pod("a-0", ONE_GPU))
        await loop.settle()

        assert loop.event_recorder.told == []
        assert not loop.scheduler.ledger.holds("uid-of-default/a-0")


async def test_a_pod_that_others_bound_keeps_what_the_watch_showed() -> None:
    """The ledger follows the API, not our own disappointed bind."""
    async with looping(Dropped("bound elsewhere")) as loop:
        loop.binder.hold = asyncio.Event()
        first = pod("a-0", ONE_GPU)
        loop.see(first)
        await loop.settle()

        loop.see(bound(first, "node2"))
        loop.binder.hold.set()
        await loop.settle()

        (holder,) = loop.scheduler.ledger
        assert (holder.node, holder.assumed) == ("node2", False)


async def test_the_same_words_are_told_once() -> None:
    """Looking again costs the API nothing until the reason changes."""
    async with looping() as loop:
        first, second = pod("a-0", ONE_GPU), pod("b-0", SAME_GPU)
        loop.see(bound(first), second)
        await loop.settle()
        for _ in range(5):
            await loop.later(301)

        assert len(loop.event_recorder.told) == 1
        assert loop.recorder.attempts.count(Result.UNSCHEDULABLE) > 1


async def test_what_the_last_leader_told_is_not_told_again() -> None:
    """A restart finds the condition on the pod and stays quiet."""
    async with looping() as loop:
        loop.see(bound(pod("a-0", ONE_GPU)), pod("b-0", SAME_GPU))
        await loop.settle()
        ((_, notice),) = loop.event_recorder.told

    async with looping() as loop:
        loop.see(bound(pod("a-0", ONE_GPU)))
        loop.see(replace(pod("b-0", SAME_GPU), scheduled_condition=notice.condition))
        await loop.settle()

        assert loop.event_recorder.told == []


async def test_what_found_no_room_is_told_later() -> None:
    """A full queue loses no condition for good."""
    async with looping() as loop:
        loop.event_recorder.full = True
        loop.see(bound(pod("a-0", ONE_GPU)), pod("b-0", SAME_GPU))
        await loop.settle()
        loop.event_recorder.full = False
        await loop.later(301)

        assert len(loop.event_recorder.told) == 1


async def test_a_gated_pod_is_neither_decided_nor_told() -> None:
    """Its condition is the API server's; when the gate opens, the pod is placed."""
    async with looping() as loop:
        gated = replace(pod("a-0", ONE_GPU), gated=True)
        loop.see(gated)
        await loop.later(1000)
        assert (loop.binder.names(), loop.event_recorder.told) == ([], [])

        loop.see(replace(gated, gated=False))
        await loop.settle()

        assert loop.binder.names() == ["a-0"]


async def test_an_untrue_condition_is_withdrawn_before_the_bind() -> None:
    """No write of PodScheduled=False may come after the bind's True."""
    async with looping() as loop:
        loop.see(pod("a-0", ONE_GPU))
        await loop.settle()

        assert loop.event_recorder.withdrawn == ["a-0"]


async def test_binds_are_bounded_and_do_not_wait_for_each_other() -> None:
    """So many at once and no more; the others follow as places come free."""
    async with looping(binders=3) as loop:
        loop.binder.hold = asyncio.Event()
        text = "".join(f"{index}=node1:{index}\n" for index in range(8))
        loop.see(*(pod(f"a-{index}", text) for index in range(8)))
        await loop.settle()
        assert len(loop.binder.sent) == 3

        loop.binder.hold.set()
        await loop.settle()

        assert len(loop.binder.sent) == 8
        assert loop.binder.most_at_once == 3


async def test_it_is_busy_until_the_last_of_a_backlog_flies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the moment between two binds, in which there is room for another one: the next is about to leave."""
    async with looping(binders=2) as loop:
        loop.binder.hold = asyncio.Event()
        text = "".join(f"{index}=node1:{index}\n" for index in range(6))
        loop.see(*(pod(f"a-{index}", text) for index in range(6)))
        await loop.settle()
        busy = [loop.scheduler.busy]
        tell = loop.event_recorder.record

        def record(ref: PodRef, notice: Notice) -> bool:
            busy.append(loop.scheduler.busy)
            return tell(ref, notice)

        monkeypatch.setattr(loop.event_recorder, "record", record)

        loop.binder.hold.set()
        await loop.settle()

        # Each is announced when it has landed and its place is free; behind the last two there is nobody.
        assert busy[:5] == [True] * 5
        assert not loop.scheduler.busy


async def test_stopping_waits_for_binds_and_tells_whether_all_are_settled() -> None:
    """The lease may only be given up when no bind of ours can still land."""
    async with looping(Bound(), Unknown("time-out")) as loop:
        loop.see(pod("a-0", ONE_GPU))
        await loop.settle()
        assert await loop.scheduler.drain(0.1)

    async with looping(Unknown("time-out")) as loop:
        loop.see(pod("a-0", ONE_GPU))
        await loop.settle()
        assert not await loop.scheduler.drain(0.1)


async def test_nothing_is_decided_after_the_stop() -> None:
    """What comes in while stopping is the successor's."""
    async with looping() as loop:
        await loop.scheduler.drain(0)
        loop.see(pod("a-0", ONE_GPU))
        await loop.settle()

        assert loop.binder.sent == []


async def test_a_recreated_pod_is_a_pod_of_its_own() -> None:
    """Same name, new uid: the old one's bind says nothing about the new one."""
    async with looping() as loop:
        loop.binder.hold = asyncio.Event()
        old = pod("a-0", ONE_GPU)
        loop.see(old)
        await loop.settle()
        loop.scheduler.pods.forgotten(old)
        loop.see(replace(old, ref=replace(old.ref, uid="another")))
        await loop.settle()
        loop.binder.hold.set()
        await loop.settle()

        assert [bind.pod.uid for bind in loop.binder.sent] == [old.ref.uid, "another"]
        assert loop.scheduler.ledger.holds("another")


async def test_a_gpu_held_twice_against_the_rules_is_told_to_both() -> None:
    """It can only come from outside; both owners hear of it once."""
    async with looping() as loop:
        loop.see(bound(pod("a-0", ONE_GPU)), bound(pod("b-0", SAME_GPU)))
        for _ in range(3):
            await loop.later(61)

        assert [(name, notice.reason) for name, notice in loop.event_recorder.told] == [
            ("a-0", "GpuConflict"),
            ("b-0", "GpuConflict"),
        ]
        assert "held by default/a-0 and by default/b-0 at once" in loop.event_recorder.notes("a-0")[0]


async def test_the_pulse_tells_how_late_the_loop_is() -> None:
    """Leadership steps down by it: a rest of the whole interval is in order, whatever the lease lasts."""
    async with looping() as loop:
        loop.now[0] += 60
        assert loop.scheduler.heartbeat_age == 0
        loop.now[0] += 7
        assert loop.scheduler.heartbeat_age == 7
        await loop.later(0)
        assert loop.scheduler.heartbeat_age == 0


async def test_a_corrupted_ledger_is_made_anew_within_a_period() -> None:
    """An entry that the objects do not bear out is counted and repaired, and who it kept waiting is bound."""
    async with looping() as loop:
        ghost = pod("ghost-0", ONE_GPU)
        loop.scheduler.ledger.apply(bound(ghost))
        loop.see(pod("a-0", SAME_GPU))
        await loop.later(299)
        assert loop.binder.names() == []

        await loop.later(1)

        assert loop.binder.names() == ["a-0"]
        assert len(loop.recorder.repairs) == 1
        assert loop.recorder.repairs[0] > 0
        await loop.later(300)
        assert len(loop.recorder.repairs) == 1


LOST = {
    "a pod's hold": lambda ledger, uid: ledger.forget(uid),
    "a pod's GPU": lambda ledger, _: ledger.devices.drop(next(iter(ledger))),
    "a pod's index": lambda ledger, uid: ledger.indices.release(next(iter(ledger)).workload, 0, uid),
    "a pod's room": lambda ledger, uid: ledger.occupancy.drop(uid),
}


@pytest.mark.parametrize("lose", LOST.values(), ids=LOST)
async def test_a_lost_entry_is_found_again(lose: Callable[[Ledger, str], object]) -> None:
    """Every table of the ledger is looked after, and what was promised and is not confirmed stays promised."""
    async with looping() as loop:
        first, second = pod("a-0", ONE_GPU), pod("b-1", SAME_GPU)
        loop.see(bound(first), second)
        await loop.settle()
        whole = loop.scheduler.world.rebuild_ledger(loop.scheduler.tracked)
        lose(loop.scheduler.ledger, first.ref.uid)
        assert loop.scheduler.ledger.differences(whole) > 0

        await loop.later(300)

        assert loop.scheduler.ledger.differences(whole) == 0
        assert {str(holder.ref) for holder in loop.scheduler.ledger} == {"default/a-0", "default/b-1"}
        assert loop.binder.names() == ["b-1"]


async def test_a_sound_ledger_is_left_alone() -> None:
    """The audit of a busy cluster repairs nothing: binds in the air and unconfirmed ones are no corruption."""
    async with looping(Bound(), Unknown("time-out")) as loop:
        loop.see(
            pod("a-0", ONE_GPU), pod("b-1", SAME_GPU), pod("c-0", ONE_GPU), bound(pod("d-3", "3=node2:0"), "node2")
        )
        for _ in range(3):
            await loop.later(300)

        assert loop.recorder.repairs == []


CLAIM = VolumeClaim("default", "data", storage_class="local")


async def test_a_claim_is_told_its_node_while_the_pod_waits() -> None:
    """The provisioner makes the volume where the map says; the watch of claims brings the pod its turn."""
    async with looping() as loop:
        world = loop.scheduler.world
        world.classes.applied(StorageClass("local", waits_for_consumer=True))
        world.claims.applied(CLAIM)
        loop.see(replace(pod("a-0", ONE_GPU), claims=("data",)))
        await loop.settle()
        assert loop.claims.selected == [("default", "data", "node1")]
        world.claims.applied(replace(CLAIM, selected_node="node1"))
        await loop.settle()
        assert (loop.binder.names(), len(loop.event_recorder.told)) == ([], 1)

        world.volumes.applied(Volume("pv-1"))
        world.claims.applied(replace(CLAIM, selected_node="node1", volume="pv-1"))
        await loop.settle()

        assert loop.binder.names() == ["a-0"]
        assert loop.claims.selected == [("default", "data", "node1")]


async def test_a_claim_that_could_not_be_told_is_told_again() -> None:
    """After a back-off; the pod waits meanwhile."""
    async with looping() as loop:
        loop.claims.failures = ["HTTP 500"]
        loop.scheduler.world.classes.applied(StorageClass("local", waits_for_consumer=True))
        loop.scheduler.world.claims.applied(CLAIM)
        loop.see(replace(pod("a-0", ONE_GPU), claims=("data",)))
        await loop.settle()
        assert len(loop.claims.selected) == 1

        await loop.later(2)

        assert len(loop.claims.selected) == 2


async def test_an_error_of_our_own_costs_one_pod_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is wrong with one pod, the others are placed; it is looked at again later."""
    sound = decide

    def bug(given: Pod, cluster: Cluster) -> Decision | None:
        if given.ref.name == "a-0":
            raise RuntimeError("a bug")
        return sound(given, cluster)

    monkeypatch.setattr(scheduling_loop, "decide", bug)
    async with looping() as loop:
        loop.see(pod("a-0", ONE_GPU), pod("b-1", SAME_GPU))
        await loop.settle()
        assert loop.binder.names() == ["b-1"]

        monkeypatch.undo()
        await loop.later(1)

        assert loop.binder.names() == ["b-1", "a-0"]


async def test_what_others_take_of_a_node_counts() -> None:
    """A pod of another scheduler fills the node; when it goes, ours is placed."""
    async with looping() as loop:
        full = ForeignPod(PodRef("other", "web", "uid-web"), "node1", ResourceRequest({"cpu": 8000}))
        loop.scheduler.world.foreign_pods.applied(full)
        loop.see(replace(pod("a-0", ONE_GPU), resource_request=ResourceRequest({"cpu": 1000})))
        await loop.settle()
        assert loop.binder.names() == []
        assert loop.event_recorder.notes("a-0")[0].startswith("InsufficientResources: ")

        loop.scheduler.world.foreign_pods.forgotten(full)
        await loop.settle()

        assert loop.binder.names() == ["a-0"]


async def test_numbers_that_change_are_not_told_again() -> None:
    """The reason is the same; rewriting its numbers would cost two writes for each pod that comes or goes."""
    async with looping() as loop:
        loop.see(replace(pod("a-0", ONE_GPU), resource_request=ResourceRequest({"cpu": 9000})))
        for number in range(3):
            other = ForeignPod(
                PodRef("other", f"web-{number}", f"uid-{number}"), "node1", ResourceRequest({"cpu": 100 * number})
            )
            loop.scheduler.world.foreign_pods.applied(other)
            await loop.later(301)

        assert loop.recorder.attempts.count(Result.UNSCHEDULABLE) > 1
        assert len(loop.event_recorder.told) == 1


async def test_an_index_that_failed_to_bind_stays_claimed() -> None:
    """Its pod will be tried again, and it can use no other index: a pod that takes any must leave it alone."""
    async with looping(Failed("BindFailed: HTTP 422")) as loop:
        static, dynamic = (
            pod("web-0", "0=node1:0\n1=node1:1", owner=None),
            pod("web", "0=node1:0\n1=node1:1", owner=None),
        )
        loop.see(static)
        await loop.settle()
        loop.see(dynamic)
        await loop.settle()

        assert [(bind.pod.name, bind.placement.index) for bind in loop.binder.sent] == [("web-0", 0), ("web", 1)]


async def test_a_deletion_without_grace_is_told_to_nobody() -> None:
    """Terminating and gone come in one breath: who waits is bound, and hears of nothing in between."""
    async with looping() as loop:
        first, second = pod("a-0", ONE_GPU), pod("b-0", SAME_GPU)
        loop.see(bound(first), second)
        await loop.settle()

        loop.see(replace(bound(first), deleting_since="2026-11-20T08:30:00Z"))
        await loop.settle()
        loop.scheduler.pods.forgotten(first)
        await loop.settle()

        assert loop.binder.names() == ["b-0"]
        assert len(loop.event_recorder.notes("b-0")) == 2
