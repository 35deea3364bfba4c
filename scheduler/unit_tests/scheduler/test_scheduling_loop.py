"""The scheduling loop with fakes: its guarantees while the API server is slow, unavailable or wrong."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, pairwise
from typing import TYPE_CHECKING

import pytest

from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.filters.volumes import StorageClass, Volume, VolumeClaim
from gpu_scheduler.core.nodes.inventory import Device, Inventory
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import ForeignPod, Pod, ResourceRequest, ScheduledCondition
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import Owner, PodRef
from gpu_scheduler.names import COUNT
from gpu_scheduler.scheduler import scheduling_loop
from gpu_scheduler.scheduler.ports import (
    AttemptResult,
    BindResult,
    Bound,
    Dropped,
    Failed,
    Notice,
    NotSent,
    Ports,
    Unknown,
)
from gpu_scheduler.scheduler.scheduling_loop import Scheduler
from gpu_scheduler.scheduler.timings import Timings
from tests.messages import text_of
from unit_tests.core.build import bound as bound_by_us
from unit_tests.core.build import node, pod
from unit_tests.fakes import FakeAllocator, FakeBinder, FakeClaims, FakeEventRecorder, FakeRecorder
from unit_tests.virtual import settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from gpu_scheduler.core.cluster import Cluster
    from gpu_scheduler.core.decision import Decision
    from gpu_scheduler.core.ledger.ledger import Ledger

ONE_GPU = "0=node1:0\n"
# Another workload's map that names the same GPU.
SAME_GPU = "0=node1:0\n1=node1:1\n"


@dataclass
class Loop:
    """A running scheduler, its fakes, and a clock that only the test moves."""

    scheduler: Scheduler
    binder: FakeBinder
    event_recorder: FakeEventRecorder
    recorder: FakeRecorder
    claims: FakeClaims
    now: list[float]

    async def later(self, seconds: float) -> None:
        """Let time pass, and start the loop's next turn."""
        self.now[0] += seconds
        self.scheduler._wakeup.set()
        await settle()

    async def see(self, *pods: Pod) -> None:
        """Let the watch show these pods at once, and let the loop do what it can."""
        for each in pods:
            self.scheduler.pods.applied(each)
        await settle()

    async def forget(self, *pods: Pod) -> None:
        """Let the watch show that these pods are gone, and let the loop do what it can."""
        for each in pods:
            self.scheduler.pods.forgotten(each)
        await settle()


@asynccontextmanager
async def looping(*results: object, binders: int = 64) -> AsyncIterator[Loop]:
    """Run a scheduling loop with node1 and node2; `results` are the binder's first answers."""
    binder, event_recorder, recorder = FakeBinder(list(results)), FakeEventRecorder(), FakeRecorder()  # type: ignore[arg-type]
    claims, now = FakeClaims(), [1000.0]
    scheduler = Scheduler(
        Policy(),
        Ports(binder, claims, FakeAllocator(), event_recorder, recorder, recorder, recorder),
        timings=Timings(interval=60),
        clock=lambda: now[0],
        binders=binders,
    )
    for name in ("node1", "node2"):
        scheduler.cache.nodes.applied(node(name))
    task = asyncio.create_task(scheduler.run())
    loop = Loop(scheduler, binder, event_recorder, recorder, claims, now)
    await settle()
    try:
        yield loop
    finally:
        await scheduler.drain(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def a_gpu_each(pods: int) -> list[Pod]:
    text = "".join(f"{index}=node1:{index}\n" for index in range(pods))
    return [pod(f"a-{index}", text) for index in range(pods)]


def bound(pending: Pod, node: str = "node1") -> Pod:
    return replace(pending, node=node)


async def test_a_pod_is_bound_and_recorded_once() -> None:
    """One bind, one event, no condition. The watch's confirmation adds nothing."""
    async with looping() as loop:
        first = pod("a-0", ONE_GPU)
        await loop.see(first)
        await loop.see(first, bound(first))
        await loop.later(1000)

        assert loop.binder.names() == ["a-0"]
        ((name, notice),) = loop.event_recorder.recorded
        assert (name, notice.reason, notice.condition) == ("a-0", "Scheduled", None)
        assert loop.recorder.attempts == [AttemptResult.SCHEDULED]
        counts = loop.scheduler.pod_states.counts()
        assert (counts.pending, counts.running, counts.waiting.total(), counts.oldest) == (0, 1, 0, None)


@pytest.mark.promise("text-15")
async def test_waiting_pods_are_counted_by_their_reason() -> None:
    """From the decision until the next placement. Pods that are gone count no more."""
    async with looping() as loop:
        holder, late = bound(pod("a-0", ONE_GPU)), pod("b-0", SAME_GPU)
        lost = pod("c-0", "0=node9:0\n")
        await loop.see(holder, late, lost)
        counts = loop.scheduler.pod_states.counts()
        assert (counts.pending, counts.running, counts.oldest) == (2, 1, 1000.0)
        assert counts.waiting == {Reason.GPU_HELD: 1, Reason.NODE_NOT_FOUND: 1}
        assert sorted(loop.recorder.reasons) == [Reason.GPU_HELD, Reason.NODE_NOT_FOUND]

        loop.binder.hold = asyncio.Event()
        await loop.forget(holder, lost)
        counts = loop.scheduler.pod_states.counts()
        assert (counts.pending, counts.running, counts.waiting.total(), counts.oldest) == (1, 0, 0, None)
        loop.binder.hold.set()


@pytest.mark.promise("hold-1")
async def test_a_gpu_is_held_until_its_bind_is_answered() -> None:
    """Two pods name one GPU and the watch sends nothing. The second waits before and after the first's answer."""
    async with looping() as loop:
        loop.binder.hold = asyncio.Event()
        await loop.see(pod("a-0", ONE_GPU), pod("b-0", SAME_GPU))
        assert loop.binder.names() == ["a-0"]

        loop.binder.hold.set()
        await loop.later(1000)

        assert loop.binder.names() == ["a-0"]
        assert loop.event_recorder.notes("b-0") == ["GpuHeld: GPU 0 of node1 is held by default/a-0"]


async def test_nothing_is_decided_while_a_list_is_applied() -> None:
    """The list may first show that a GPU was freed, and some turns later which pod has it now."""
    async with looping() as loop:
        old, new = (bound(pod(f"{name}-0", ONE_GPU)) for name in ("old", "new"))
        await loop.see(old)
        with loop.scheduler.lists:
            await loop.see(pod("other-0", SAME_GPU))
            await loop.forget(old)
            await loop.see(new)
        await settle()

        assert loop.binder.sent == []
        assert loop.event_recorder.notes("other-0") == ["GpuHeld: GPU 0 of node1 is held by default/new-0"]


@pytest.mark.parametrize("gone", [False, True])
async def test_a_pod_that_changes_while_nodes_are_filtered_for_it_is_decided_as_it_is_then(
    monkeypatch: pytest.MonkeyPatch, *, gone: bool
) -> None:
    """Other tasks run between two nodes. A pod that is deleted meanwhile is not bound."""
    async with looping() as loop:
        loop.scheduler.cache.nodes.applied(node("node1", inventory=Inventory((Device(0),))))
        first = pod("a-0", None, annotations={COUNT: "1"})
        changed = replace(first, priority=1)

        def filtering(pod: Pod, _: Cluster) -> Iterator[None]:
            if pod is first:
                (loop.scheduler.pods.forgotten if gone else loop.scheduler.pods.applied)(changed)
            yield

        monkeypatch.setattr(scheduling_loop, "filtering", filtering)
        await loop.see(first)

        assert [bind.pod for bind in loop.binder.sent] == ([] if gone else [changed.ref])
        assert loop.scheduler.attempts == (0 if gone else 1)
        assert loop.scheduler.queue.active() == 0


@pytest.mark.promise("wait-7")
async def test_an_attempt_that_ends_in_waiting_is_paid_for_before_the_next() -> None:
    """A decision of 0.1 s of processor time is made again after 2 s, whatever changes meanwhile; other pods go on."""
    async with looping() as loop:
        loop.scheduler._processor = partial(next, count(step=0.1))
        holder, late = bound(pod("a-0", ONE_GPU)), pod("b-0", SAME_GPU)
        await loop.see(holder, late)
        await loop.forget(holder)
        for number in range(3):
            await loop.see(replace(late, owner=Owner("StatefulSet", f"owner{number}")))
        assert loop.binder.names() == []
        await loop.see(pod("c-0", "0=node2:0\n"))
        await loop.later(1.9)
        assert loop.binder.names() == ["c-0"]
        assert loop.recorder.attempts.count(AttemptResult.UNSCHEDULABLE) == 1

        await loop.later(0.2)

        assert loop.binder.names() == ["c-0", "b-0"]


@pytest.mark.promise("text-14")
async def test_a_message_is_written_anew_only_for_another_first_holder() -> None:
    """Twenty holders of other GPUs of the line come and go. The waiting pod's text is written once, then once more."""
    async with looping() as loop:
        first, last = pod("a-0", "0=node1:0", owner=None), pod("b-0", "0=node1:1", owner=None)
        await loop.see(bound(first), bound(last), pod("waiting-0", "0=node1:0,1,2", owner=None))
        for number in range(20):
            other = bound(pod(f"other{number}-0", "0=node1:2", owner=None))
            await loop.see(other)
            await loop.later(301)
            loop.scheduler.pods.forgotten(other)
            await loop.later(301)
        assert loop.event_recorder.notes("waiting-0") == [
            "GpuHeld: GPU 0 of node1 is held by default/a-0, GPU 1 by default/b-0"
        ]

        loop.scheduler.pods.forgotten(first)
        await loop.later(1000)

        assert loop.event_recorder.notes("waiting-0")[1:] == ["GpuHeld: GPU 1 of node1 is held by default/b-0"]


@pytest.mark.promise("hold-1")
@pytest.mark.parametrize("outcome", [Unknown("time-out"), RuntimeError("a bug")], ids=["a time-out", "a fault of ours"])
async def test_an_unknown_outcome_keeps_the_gpu_and_repeats_the_bind(outcome: object) -> None:
    """It proves nothing. The same bind is sent again, and no other pod gets the GPU meanwhile."""
    async with looping(outcome, outcome) as loop:
        first, second = pod("a-0", ONE_GPU), pod("b-0", SAME_GPU)
        await loop.see(first)
        await loop.see(second)
        assert loop.binder.names() == ["a-0"]

        await loop.later(2)
        await loop.later(4)

        assert loop.binder.sent == [loop.binder.sent[0]] * 3
        assert loop.event_recorder.notes("b-0") == ["GpuHeld: GPU 0 of node1 is held by default/a-0"]
        assert loop.recorder.attempts.count(AttemptResult.SCHEDULED) == 1


@pytest.mark.parametrize("answer", [Failed("BindFailed: HTTP 429"), NotSent("not leading")])
async def test_the_answer_to_a_second_try_settles_nothing(answer: BindResult) -> None:
    """The first try may be applied after the second was refused. The GPU is held until the watch shows the pod."""
    async with looping(Unknown("time-out"), answer, answer) as loop:
        await loop.see(pod("a-0", ONE_GPU), pod("b-0", SAME_GPU))
        await loop.later(2)
        await loop.later(4)
        assert loop.binder.names() == ["a-0"] * 3

        await loop.see(bound(pod("a-0", ONE_GPU)))
        await loop.later(1000)

        assert loop.binder.names() == ["a-0"] * 3


@pytest.mark.parametrize(
    "answers",
    [
        [Failed("BindFailed: HTTP 429", retry_after=7)],
        [Unknown("HTTP 503", retry_after=7)],
        [Unknown("time-out"), Failed("BindFailed: HTTP 429", retry_after=7)],
    ],
    ids=["a failure", "an unknown outcome", "a failure after an unknown outcome"],
)
async def test_the_next_try_waits_for_retry_after(answers: list[BindResult]) -> None:
    """Retry-After is longer than the back-off, so it counts."""
    async with looping(*answers) as loop:
        await loop.see(pod("a-0", ONE_GPU))
        for _ in answers[1:]:
            await loop.later(2)

        await loop.later(6.9)
        assert len(loop.binder.sent) == len(answers)
        await loop.later(0.2)
        assert len(loop.binder.sent) == len(answers) + 1


async def test_a_bind_that_was_never_sent_holds_nothing() -> None:
    """The replica may lead again. Then it decides anew which pod gets the GPU."""
    async with looping(NotSent("not leading")) as loop:
        await loop.see(pod("a-0", ONE_GPU))

        assert not loop.scheduler.ledger.holds("uid-of-default/a-0")
        assert loop.event_recorder.recorded == []
        await loop.later(2)
        assert loop.binder.names() == ["a-0", "a-0"]


@pytest.mark.promise("place-6")
async def test_the_watch_settles_an_unknown_outcome() -> None:
    """The pod was bound after all. Nothing is sent again, and event and metrics are those of any bind."""
    async with looping(Unknown("time-out")) as loop:
        first = pod("a-0", ONE_GPU)
        await loop.see(first)

        await loop.see(bound(first))
        await loop.later(1000)

        assert loop.binder.names() == ["a-0"]
        assert [(name, notice.reason) for name, notice in loop.event_recorder.recorded] == [("a-0", "Scheduled")]
        assert loop.recorder.attempts == [AttemptResult.ERROR, AttemptResult.SCHEDULED]
        assert await loop.scheduler.drain(0)


async def test_a_definite_failure_frees_the_gpu_and_is_reported() -> None:
    """BindFailed is a SchedulerError. The pod is tried again, and other pods may get its GPU."""
    failed = Failed("BindFailed: cannot bind to node1: HTTP 422: no; trying again by itself")
    async with looping(failed) as loop:
        await loop.see(pod("a-0", ONE_GPU))

        ((_, notice),) = loop.event_recorder.recorded
        assert notice.condition == ScheduledCondition("False", "SchedulerError", failed.message)
        await loop.see(pod("b-0", SAME_GPU))
        assert loop.binder.names() == ["a-0", "b-0"]
        await loop.later(2)
        assert loop.binder.names() == ["a-0", "b-0"]
        assert "GpuHeld" in loop.event_recorder.notes("a-0")[-1]


async def test_a_failure_that_stays_the_same_is_reported_once() -> None:
    """A further try costs one POST, without condition and event, unless the first notice was never written."""
    failed = Failed("BindFailed: cannot bind to node1: HTTP 403: no; trying again by itself")
    async with looping(*[failed] * 4) as loop:
        await loop.see(pod("a-0", ONE_GPU))
        await loop.later(2)
        await loop.later(4)
        assert (len(loop.binder.sent), len(loop.event_recorder.recorded)) == (3, 1)

        loop.event_recorder.unwritten = True
        await loop.later(8)
        assert (len(loop.binder.sent), len(loop.event_recorder.recorded)) == (4, 2)


async def test_a_dropped_bind_is_not_reported() -> None:
    """The pod is gone or the replica leads no more. Nothing is reported, and no device is held."""
    async with looping(Dropped("the pod is gone")) as loop:
        await loop.see(pod("a-0", ONE_GPU))

        assert loop.event_recorder.recorded == []
        assert not loop.scheduler.ledger.holds("uid-of-default/a-0")


@pytest.mark.promise("text-8")
async def test_the_same_reason_is_reported_once() -> None:
    """A further attempt costs the API server nothing until the reason changes."""
    async with looping() as loop:
        first, second = pod("a-0", ONE_GPU), pod("b-0", SAME_GPU)
        await loop.see(bound(first), second)
        for _ in range(5):
            await loop.later(301)

        assert len(loop.event_recorder.recorded) == 1
        assert loop.recorder.attempts.count(AttemptResult.UNSCHEDULABLE) > 1


async def test_a_condition_of_the_last_leader_is_not_reported_again() -> None:
    """The new leader finds the condition on the pod and writes nothing."""
    async with looping() as loop:
        await loop.see(bound(pod("a-0", ONE_GPU)), pod("b-0", SAME_GPU))
        ((_, notice),) = loop.event_recorder.recorded

    async with looping() as loop:
        await loop.see(bound(pod("a-0", ONE_GPU)), replace(pod("b-0", SAME_GPU), scheduled_condition=notice.condition))

        assert loop.event_recorder.recorded == []


async def test_a_notice_that_found_no_room_is_recorded_later() -> None:
    """A full queue loses no condition for good."""
    async with looping() as loop:
        loop.event_recorder.full = True
        await loop.see(bound(pod("a-0", ONE_GPU)), pod("b-0", SAME_GPU))
        loop.event_recorder.full = False
        await loop.later(301)

        assert len(loop.event_recorder.recorded) == 1


async def test_a_gated_pod_is_neither_decided_nor_reported() -> None:
    """The API server writes its condition. When the gate is removed, the pod is placed."""
    async with looping() as loop:
        gated = replace(pod("a-0", ONE_GPU), gated=True)
        await loop.see(gated)
        await loop.later(1000)
        assert (loop.binder.names(), loop.event_recorder.recorded) == ([], [])

        await loop.see(replace(gated, gated=False))

        assert loop.binder.names() == ["a-0"]


async def test_an_untrue_condition_is_withdrawn_before_the_bind() -> None:
    """No write of PodScheduled=False may come after the bind's True."""
    async with looping() as loop:
        await loop.see(pod("a-0", ONE_GPU))

        assert loop.event_recorder.withdrawn == ["a-0"]


async def test_binds_are_bounded_and_do_not_wait_for_each_other() -> None:
    """At most `binders` binds are sent at once. The others follow as those are answered."""
    async with looping(binders=3) as loop:
        loop.binder.hold = asyncio.Event()
        await loop.see(*a_gpu_each(8))
        assert len(loop.binder.sent) == 3

        loop.binder.hold.set()
        await settle()

        assert len(loop.binder.sent) == 8
        assert loop.binder.most_at_once == 3


async def test_the_loop_is_busy_until_the_last_bind_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is busy between two binds too, when a binder is free: the next bind is about to be sent."""
    async with looping(binders=2) as loop:
        loop.binder.hold = asyncio.Event()
        await loop.see(*a_gpu_each(6))
        busy = [loop.scheduler.busy]
        original = loop.event_recorder.record

        def record(ref: PodRef, notice: Notice) -> bool:
            busy.append(loop.scheduler.busy)
            return original(ref, notice)

        monkeypatch.setattr(loop.event_recorder, "record", record)

        loop.binder.hold.set()
        await settle()

        # Each bind is recorded after its answer, when its binder is free. No bind waits behind the last two.
        assert busy[:5] == [True] * 5
        assert not loop.scheduler.busy


@pytest.mark.promise("text-18")
async def test_attempts_are_counted_and_due_for_each_active_pod() -> None:
    """Two of six pods are being bound when a seventh comes."""
    async with looping(binders=2) as loop:
        loop.binder.hold = asyncio.Event()
        *six, seventh = a_gpu_each(7)
        await loop.see(*six)
        due = loop.scheduler.attempts_due
        await loop.see(seventh)
        assert (loop.scheduler.attempts, due, loop.scheduler.attempts_due) == (2, 6, 7)

        loop.binder.hold.set()
        await settle()

        assert loop.scheduler.attempts == loop.scheduler.attempts_due == 7


async def test_stopping_waits_for_binds_and_returns_whether_all_are_settled() -> None:
    """The Lease may only be released when no bind of ours can still be applied."""
    async with looping(Bound(), Unknown("time-out")) as loop:
        await loop.see(pod("a-0", ONE_GPU))
        assert await loop.scheduler.drain(0.1)

    async with looping(Unknown("time-out")) as loop:
        await loop.see(pod("a-0", ONE_GPU))
        assert not await loop.scheduler.drain(0.1)


async def test_nothing_is_decided_after_the_stop() -> None:
    """The next leader decides pods that come during the stop."""
    async with looping() as loop:
        await loop.scheduler.drain(0)
        await loop.see(pod("a-0", ONE_GPU))

        assert loop.binder.sent == []


@pytest.mark.promise("lead-5")
async def test_a_gpu_held_twice_against_the_rules_is_reported_to_both() -> None:
    """Only another writer can cause it. Both pods get one event."""
    async with looping() as loop:
        await loop.see(bound(pod("a-0", ONE_GPU)), bound(pod("b-0", SAME_GPU)))
        for _ in range(3):
            await loop.later(61)

        assert [(name, notice.reason) for name, notice in loop.event_recorder.recorded] == [
            ("a-0", "GpuConflict"),
            ("b-0", "GpuConflict"),
        ]
        assert "held by default/a-0 and by default/b-0 at once" in loop.event_recorder.notes("a-0")[0]


@pytest.mark.promise("hold-10")
async def test_a_pod_whose_gpu_has_moved_gets_one_event_for_each_move() -> None:
    """Its GPU was GPU 0. The node numbers its GPUs anew, then the GPU is lost, and at last it is GPU 0 again."""
    ours, other = (f"GPU-{digit * 8}-0000-0000-0000-000000000000" for digit in "ab")
    orders = [(ours, other), (other, ours), (other, ours), (other,), (ours, other)]
    async with looping() as loop:
        await loop.see(bound_by_us(pod("a-0", ONE_GPU), Placement("node1", ("0",), 0, (ours,))))
        for order in orders:
            devices = tuple(Device(index, uuid) for index, uuid in enumerate(order))
            loop.scheduler.cache.nodes.applied(node("node1", inventory=Inventory(devices)))
            await loop.later(61)

        assert [(name, notice.reason) for name, notice in loop.event_recorder.recorded] == [("a-0", "GpuMoved")] * 2
        assert loop.event_recorder.notes("a-0") == [
            f"GpuMoved: on node1 {text_of('a GPU has moved', gpu=0, uuid=ours, now=now)}, and {other} is GPU 0"
            for now in ("GPU 1 now", "gone")
        ]


async def test_the_heartbeat_age_shows_how_late_the_loop_is() -> None:
    """Leadership steps down by it. A pause of the whole interval is in order, however short the Lease is."""
    async with looping() as loop:
        loop.now[0] += 60
        assert loop.scheduler.heartbeat_age == 0
        loop.now[0] += 7
        assert loop.scheduler.heartbeat_age == 7
        await loop.later(0)
        assert loop.scheduler.heartbeat_age == 0


@pytest.mark.promise("lead-1")
async def test_a_leader_whose_binds_all_hang_stays_alive() -> None:
    """64 binds wait for an API server that does not answer. The loop waits for a free slot, and must not count as dead.

    Its audit still runs. When the binds are given up, the next pod gets the slot.
    """
    clock, binder, recorder = asyncio.get_running_loop().time, FakeBinder(hold=asyncio.Event()), FakeRecorder()
    audits: list[float] = []
    ports = Ports(binder, FakeClaims(), FakeAllocator(), FakeEventRecorder(), recorder, recorder, recorder)
    scheduler = Scheduler(Policy(), ports, timings=Timings(interval=5), clock=clock)
    scheduler.cache.expire_monitors = lambda: audits.append(clock())  # type: ignore[method-assign]
    scheduler.cache.nodes.applied(node("node1"))
    lines = "".join(f"{index}=node1:\n" for index in range(65))
    for index in range(65):
        scheduler.pods.applied(pod(f"a-{index}", lines))
    task = asyncio.create_task(scheduler.run())
    latest = 0.0
    for _ in range(60):
        await asyncio.sleep(1)
        latest = max(latest, scheduler.heartbeat_age)

    assert (len(binder.sent), latest) == (64, 0.0)
    assert max(later - sooner for sooner, later in pairwise(audits[64:])) <= 5

    binder.hold.set()  # type: ignore[union-attr]
    await asyncio.sleep(1)
    assert len(binder.sent) == 65
    await scheduler.drain(1)
    await task


@pytest.mark.promise("hold-9")
async def test_the_audit_rebuilds_a_corrupted_ledger_within_a_period() -> None:
    """An entry without its pod is counted and repaired, and the pod that waited for it is bound."""
    async with looping() as loop:
        ghost = pod("ghost-0", ONE_GPU)
        loop.scheduler.ledger.apply(bound(ghost))
        await loop.see(pod("a-0", SAME_GPU))
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
    "a pod's resources": lambda ledger, uid: ledger.used_resources.drop(uid),
}


@pytest.mark.parametrize("lose", LOST.values(), ids=LOST)
async def test_the_audit_restores_a_lost_entry(lose: Callable[[Ledger, str], object]) -> None:
    """The audit checks every table of the ledger. A pod that is assumed and not confirmed stays assumed."""
    async with looping() as loop:
        first, second = pod("a-0", ONE_GPU), pod("b-1", SAME_GPU)
        await loop.see(bound(first), second)
        whole = loop.scheduler.cache.rebuild_ledger(loop.scheduler.pod_states)
        lose(loop.scheduler.ledger, first.ref.uid)
        assert loop.scheduler.ledger.differences(whole) > 0

        await loop.later(300)

        assert loop.scheduler.ledger.differences(whole) == 0
        assert {str(holder.ref) for holder in loop.scheduler.ledger} == {"default/a-0", "default/b-1"}
        assert loop.binder.names() == ["b-1"]


CLAIM = VolumeClaim("default", "data", storage_class="local")


@pytest.mark.promise("fit-13")
async def test_a_claim_gets_its_node_while_the_pod_waits() -> None:
    """The provisioner makes the volume on the map's node. The watch of claims then requeues the pod."""
    async with looping() as loop:
        cache = loop.scheduler.cache
        cache.classes.applied(StorageClass("local", waits_for_consumer=True))
        cache.claims.applied(CLAIM)
        await loop.see(replace(pod("a-0", ONE_GPU), claims=("data",)))
        assert loop.claims.selected == [("default", "data", "node1")]
        cache.claims.applied(replace(CLAIM, selected_node="node1"))
        await settle()
        assert (loop.binder.names(), len(loop.event_recorder.recorded)) == ([], 1)

        cache.volumes.applied(Volume("pv-1"))
        cache.claims.applied(replace(CLAIM, selected_node="node1", volume="pv-1"))
        await settle()

        assert loop.binder.names() == ["a-0"]
        assert loop.claims.selected == [("default", "data", "node1")]


async def test_a_failed_write_to_a_claim_is_repeated() -> None:
    """The write is repeated after a back-off. The pod waits meanwhile."""
    async with looping() as loop:
        loop.claims.failures = ["HTTP 500"]
        loop.scheduler.cache.classes.applied(StorageClass("local", waits_for_consumer=True))
        loop.scheduler.cache.claims.applied(CLAIM)
        await loop.see(replace(pod("a-0", ONE_GPU), claims=("data",)))
        assert len(loop.claims.selected) == 1

        await loop.later(2)

        assert len(loop.claims.selected) == 2


async def test_an_error_of_our_own_costs_one_pod_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is wrong with one pod, the others are placed. That pod is tried again later."""
    original = decide

    def bug(given: Pod, cluster: Cluster) -> Decision | None:
        if given.ref.name == "a-0":
            raise RuntimeError("a bug")
        return original(given, cluster)

    monkeypatch.setattr(scheduling_loop, "decide", bug)
    async with looping() as loop:
        await loop.see(pod("a-0", ONE_GPU), pod("b-1", SAME_GPU))
        assert loop.binder.names() == ["b-1"]

        monkeypatch.undo()
        await loop.later(1)

        assert loop.binder.names() == ["b-1", "a-0"]


@pytest.mark.promise("fit-10")
async def test_foreign_pods_count_against_a_nodes_resources() -> None:
    """A pod of another scheduler fills the node. When it goes, ours is placed."""
    async with looping() as loop:
        full = ForeignPod(PodRef("other", "web", "uid-web"), "node1", ResourceRequest({"cpu": 8000}))
        loop.scheduler.cache.foreign_pods.applied(full)
        await loop.see(replace(pod("a-0", ONE_GPU), resource_request=ResourceRequest({"cpu": 1000})))
        assert loop.binder.names() == []
        assert loop.event_recorder.notes("a-0")[0].startswith("InsufficientResources: ")

        loop.scheduler.cache.foreign_pods.forgotten(full)
        await settle()

        assert loop.binder.names() == ["a-0"]


async def test_an_index_that_failed_to_bind_stays_claimed() -> None:
    """Its pod is tried again and can use no other index. A pod that takes any index must not take it."""
    async with looping(Failed("BindFailed: HTTP 422")) as loop:
        static, dynamic = (
            pod("web-0", "0=node1:0\n1=node1:1", owner=None),
            pod("web", "0=node1:0\n1=node1:1", owner=None),
        )
        await loop.see(static)
        await loop.see(dynamic)

        assert [(bind.pod.name, bind.placement.index) for bind in loop.binder.sent] == [("web-0", 0), ("web", 1)]


async def test_a_deletion_without_grace_is_not_reported() -> None:
    """Terminating and gone come in one batch. The waiting pod is bound, without a notice in between."""
    async with looping() as loop:
        first, second = pod("a-0", ONE_GPU), pod("b-0", SAME_GPU)
        await loop.see(bound(first), second)

        await loop.see(replace(bound(first), deleting_since="2026-11-20T08:30:00Z"))
        await loop.forget(first)

        assert loop.binder.names() == ["b-0"]
        assert len(loop.event_recorder.notes("b-0")) == 2
