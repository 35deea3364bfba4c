"""Pods with ResourceClaims in the loop: claims first, then a look for others, then the Binding."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from gpu_scheduler.core.filters.environment import BY_FIELD
from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim
from gpu_scheduler.core.nodes.device_pools import DeviceSlice, PublishedDevice
from gpu_scheduler.core.nodes.inventory import Device, Inventory
from gpu_scheduler.core.pods.container_env import ContainerClaims
from gpu_scheduler.core.pods.device_selector import DeviceSelector
from gpu_scheduler.core.pods.own_claim import ClaimRequest, OwnClaim
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.names import START
from gpu_scheduler.scheduler.pod_states import ClaimState
from gpu_scheduler.scheduler.ports import AllocationOutcome, Failed, NotSent, Ports
from gpu_scheduler.scheduler.scheduling_loop import Scheduler
from gpu_scheduler.scheduler.timings import Timings
from unit_tests.core.build import container, device_id, isolated, node, pod
from unit_tests.fakes import FakeAllocator, FakeBinder, FakeClaims, FakeEventRecorder, FakeRecorder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gpu_scheduler.core.decision import Bind
    from gpu_scheduler.core.pods.pod import Pod

A, B = (f"GPU-{digit * 8}-0000-0000-0000-000000000000" for digit in "ab")
GPU_A, GPU_B = device_id("node1", A), device_id("node1", B)
SLICE = DeviceSlice(
    "s1",
    "node1",
    GPU_A.driver,
    "node1",
    1,
    1,
    tuple(PublishedDevice(device_id("node1", uuid), uuid) for uuid in (A, B)),
)
POD = isolated("train-0", "0=node1:0\n")
(CLAIM,) = POD.resource_claims
OTHERS = AllocatedClaim("team", "training", "uid-of-training", (GPU_A,))


LEFT = AllocatedClaim("default", CLAIM, "uid-of-left", (GPU_A,), (POD.ref.uid,))


@dataclass
class Loop:
    """A scheduling loop on the virtual clock, with node1 and its GPUs A and B."""

    scheduler: Scheduler
    binder: FakeBinder
    allocator: FakeAllocator
    event_recorder: FakeEventRecorder
    recorder: FakeRecorder

    def show(self, bind: Bind) -> None:
        """Let the watch show what the bind's claims are allocated."""
        for claim in bind.claims:
            shown = AllocatedClaim(
                bind.pod.namespace, claim.name, f"uid-of-{claim.name}", claim.devices, (bind.pod.uid,)
            )
            self.scheduler.cache.device_claims.applied(shown)


@asynccontextmanager
async def looping(policy: Policy | None = None, *, binders: int = 64) -> AsyncIterator[Loop]:
    binder, allocator, recorder, events = FakeBinder(), FakeAllocator(), FakeRecorder(), FakeEventRecorder()
    ports = Ports(binder, FakeClaims(), allocator, events, recorder, recorder, recorder)
    clock = asyncio.get_running_loop().time
    scheduler = Scheduler(policy or Policy(), ports, timings=Timings(interval=5), clock=clock, binders=binders)
    loop = Loop(scheduler, binder, allocator, events, recorder)
    allocator.shows = loop.show
    scheduler.cache.nodes.applied(node("node1", inventory=Inventory((Device(0, A), Device(1, B)))))
    scheduler.cache.device_slices.applied(SLICE)
    task = asyncio.create_task(scheduler.run())
    try:
        yield loop
    finally:
        await scheduler.drain(1)
        await task


@pytest.mark.promise("isolate-2", "isolate-17")
async def test_claims_are_allocated_before_the_binding() -> None:
    """To exactly the devices of the placement."""
    async with looping() as loop:
        loop.scheduler.pods.applied(POD)
        await asyncio.sleep(1)

        (bind,) = loop.binder.sent
        assert loop.allocator.allocated == [bind]
        assert [(each.name, each.devices) for each in bind.claims] == [(CLAIM, (GPU_A,))]
        assert loop.recorder.allocations == [AllocationOutcome.ALLOCATED]
        assert loop.scheduler.cache.count_claims(loop.scheduler.pod_states) == {ClaimState.WAITING: 1}
        loop.scheduler.pods.applied(replace(POD, node="node1"))
        loop.scheduler.cache.device_claims.applied(OTHERS)
        assert loop.scheduler.cache.count_claims(loop.scheduler.pod_states) == {
            ClaimState.BOUND: 1,
            ClaimState.OTHER: 1,
        }


async def test_a_bind_that_waits_for_others_keeps_no_slot() -> None:
    """The claims of the next pod are written meanwhile. With one slot, there is still only one write at once."""
    async with looping(binders=1) as loop:
        for name in ("train-0", "other-0"):
            loop.scheduler.pods.applied(isolated(name, f"0=node1:{0 if name == 'train-0' else 1}\n"))
        await asyncio.sleep(0.2)
        assert (len(loop.allocator.allocated), loop.binder.sent) == (2, [])

        await asyncio.sleep(0.2)
        assert sorted(loop.binder.names()) == ["other-0", "train-0"]


@pytest.mark.promise("isolate-4", "isolate-17")
async def test_a_claim_that_came_first_withdraws_ours() -> None:
    """Another scheduler allocated the device between our decision and our write. The pod is not bound.

    What was allocated for it is released, and it is bound when the other claim is gone.
    """
    async with looping() as loop:

        def show_both(bind: Bind) -> None:
            loop.scheduler.cache.device_claims.applied(OTHERS)
            loop.show(bind)

        loop.allocator.shows = show_both
        loop.scheduler.pods.applied(POD)
        await asyncio.sleep(3)

        assert loop.binder.sent == []
        notes = loop.event_recorder.notes("train-0")
        assert notes
        assert all(note.startswith("GpuHeld: ") and "held by ResourceClaim team/training" in note for note in notes)
        assert loop.recorder.reasons[0] is Reason.GPU_HELD
        assert set(loop.recorder.allocations) == {AllocationOutcome.WITHDRAWN}
        assert loop.allocator.released == [("train-0", [CLAIM])]

        loop.allocator.shows = loop.show
        loop.scheduler.cache.device_claims.forgotten(OTHERS)
        await asyncio.sleep(1)
        assert loop.binder.names() == ["train-0"]


@pytest.mark.promise("isolate-4")
@pytest.mark.parametrize(("pending", "seconds"), [(False, 0.2), (True, 0.9)], ids=["without a claim", "for its claim"])
@pytest.mark.parametrize("late", [False, True], ids=["it takes another GPU", "it takes ours"])
async def test_another_scheduler_has_time_to_write_its_decision(*, late: bool, pending: bool, seconds: float) -> None:
    """It may have decided before ours, and write a moment later. While a claim is not allocated yet, it has longer."""
    async with looping() as loop:
        if pending:
            loop.scheduler.cache.device_claims.applied(replace(OTHERS, devices=(), awaits_others=True))
        loop.scheduler.pods.applied(POD)
        await asyncio.sleep(seconds)
        assert loop.binder.sent == []

        loop.scheduler.cache.device_claims.applied(OTHERS if late else replace(OTHERS, devices=(GPU_B,)))
        await asyncio.sleep(0.2)
        assert loop.binder.names() == ([] if late else ["train-0"])
        assert any(note.startswith("GpuHeld: ") for note in loop.event_recorder.notes("train-0")) is late


@pytest.mark.promise("isolate-4")
async def test_a_claim_that_gets_no_gpu_slows_no_bind() -> None:
    """A claim of a network card may stay without an allocation for ever. It does not count as one with GPUs."""
    async with looping() as loop:
        nic = replace(OTHERS, devices=(), awaits_others=True, classes=frozenset({"nic"}), unread="its class")
        loop.allocator.without_gpus = {"nic"}
        loop.scheduler.cache.device_claims.applied(nic)
        loop.scheduler.pods.applied(POD)
        await asyncio.sleep(0.3)

        assert loop.binder.names() == ["train-0"]
        assert loop.scheduler.cache.count_claims(loop.scheduler.pod_states) == {ClaimState.WAITING: 1}


@pytest.mark.promise("isolate-4", "isolate-17")
async def test_no_pod_is_bound_before_the_watch_has_shown_its_claims() -> None:
    """Until then nobody knows what else was allocated. After 3 s the pod is tried again."""
    async with looping() as loop:
        loop.allocator.shows = lambda _: None
        loop.scheduler.pods.applied(POD)
        await asyncio.sleep(2.9)
        assert loop.event_recorder.recorded == []
        await asyncio.sleep(0.2)

        assert loop.event_recorder.notes("train-0") == [
            "BindFailed: cannot see the pod's ResourceClaims: the watch has not shown their allocation"
        ]
        assert loop.binder.sent == []
        assert loop.recorder.allocations == [AllocationOutcome.UNSEEN]

        loop.allocator.shows = loop.show
        await asyncio.sleep(5)
        assert loop.binder.names() == ["train-0"]


@pytest.mark.promise("isolate-4")
async def test_an_older_allocation_of_the_claim_is_not_taken_for_this_one() -> None:
    """The watch is late: it shows an allocation that was given back, and not yet the claim that has the GPU since."""
    async with looping() as loop:
        left = AllocatedClaim("default", CLAIM, f"uid-of-{CLAIM}", (GPU_A,), (POD.ref.uid,), version="7")
        loop.scheduler.cache.device_claims.applied(left)
        loop.allocator.shows = lambda _: None
        loop.allocator.versions = {CLAIM: "10"}
        loop.scheduler.pods.applied(POD)
        await asyncio.sleep(1)
        for shown in (replace(left, devices=(), pods=(), version="8"), OTHERS, replace(left, version="10")):
            loop.scheduler.cache.device_claims.applied(shown)
        await asyncio.sleep(1)

        assert loop.binder.sent == []
        assert any(note.startswith("GpuHeld: ") for note in loop.event_recorder.notes("train-0"))


FAILURES = {
    "refused": (Failed("BindFailed: no"), [Reason.BIND_FAILED]),
    "refused by a quota": (Failed("QuotaExceeded: no", reason=Reason.QUOTA_EXCEEDED), [Reason.QUOTA_EXCEEDED]),
    "not sent": (NotSent("no Lease"), []),
}


@pytest.mark.promise("isolate-17")
@pytest.mark.parametrize(("failure", "reasons"), FAILURES.values(), ids=FAILURES)
async def test_a_claim_that_is_not_allocated_costs_one_attempt(
    failure: Failed | NotSent, reasons: list[Reason]
) -> None:
    """The pod has its reason, and is bound by the next attempt."""
    async with looping() as loop:
        loop.allocator.results = [failure]
        loop.scheduler.pods.applied(POD)
        await asyncio.sleep(3)

        assert loop.recorder.reasons == reasons
        assert loop.recorder.allocations == [AllocationOutcome.FAILED, AllocationOutcome.ALLOCATED]
        assert loop.binder.names() == ["train-0"]


@pytest.mark.promise("isolate-7")
async def test_claims_of_a_pod_that_waits_are_released() -> None:
    """An earlier leader allocated them and was killed before the Binding. Now the node is cordoned."""
    async with looping() as loop:
        loop.allocator.failures = ["HTTP 500: not now"]
        loop.scheduler.cache.device_claims.applied(LEFT)
        loop.scheduler.cache.nodes.applied(node("node1", unschedulable=True))
        loop.scheduler.pods.applied(POD)
        await asyncio.sleep(0.5)
        assert loop.allocator.released == [("train-0", [CLAIM])]

        await asyncio.sleep(2)
        assert loop.allocator.released == [("train-0", [CLAIM])] * 2

        loop.scheduler.cache.device_claims.applied(replace(LEFT, devices=(), pods=()))
        await asyncio.sleep(20)
        assert loop.allocator.released == [("train-0", [CLAIM])] * 2
        assert loop.binder.sent == []


async def test_pods_that_start_together_follow_one_whose_claim_was_in_their_way() -> None:
    """The claim is of an earlier attempt of the other pod, which uses it now. So nothing becomes free."""
    async with looping() as loop:
        first, second = (
            isolated(f"train-{index}", "0=node1:0\n1=node1:1\n", annotations={START: "together"}) for index in (0, 1)
        )
        left = AllocatedClaim("default", first.resource_claims[0], "uid-of-left", (GPU_A,), (first.ref.uid,))
        loop.scheduler.cache.device_claims.applied(left)
        loop.scheduler.pods.applied(second)
        await asyncio.sleep(1)
        assert loop.binder.names() == []

        loop.allocator.shows = lambda bind: loop.show(bind) if bind.pod == second.ref else None
        loop.scheduler.pods.applied(first)
        await asyncio.sleep(1)
        assert loop.binder.names() == ["train-0", "train-1"]


@pytest.mark.promise("isolate-7")
async def test_claims_that_are_reserved_late_are_released() -> None:
    """The write of an attempt that had no answer comes when the pod waits already."""
    async with looping() as loop:
        loop.scheduler.cache.nodes.applied(node("node1", unschedulable=True))
        loop.scheduler.pods.applied(POD)
        await asyncio.sleep(1)
        late = AllocatedClaim("default", CLAIM, "uid-of-late", (GPU_A,), (POD.ref.uid,))
        loop.scheduler.cache.device_claims.applied(late)
        await asyncio.sleep(1)

        assert loop.allocator.released == [("train-0", [CLAIM])]


@pytest.mark.promise("isolate-2")
async def test_no_bind_uses_claims_that_are_being_released() -> None:
    """The node can be used again while the withdrawal is in flight: the bind would lose its claims."""
    async with looping() as loop:
        loop.allocator.seconds = 1.5
        loop.scheduler.cache.device_claims.applied(LEFT)
        loop.scheduler.cache.nodes.applied(node("node1", unschedulable=True))
        loop.scheduler.pods.applied(POD)
        await asyncio.sleep(0.1)
        loop.scheduler.cache.nodes.applied(node("node1"))
        await asyncio.sleep(1.3)
        assert loop.allocator.allocated == []

        await asyncio.sleep(5)
        assert loop.allocator.released == [("train-0", [CLAIM])]
        assert loop.binder.names() == ["train-0"]


async def test_a_claim_of_an_earlier_leader_is_used() -> None:
    """The pod is bound to the devices that its claim has already."""
    async with looping() as loop:
        left = AllocatedClaim("default", CLAIM, f"uid-of-{CLAIM}", (GPU_A,), (POD.ref.uid,))
        loop.scheduler.cache.device_claims.applied(left)
        loop.scheduler.pods.applied(POD)
        await asyncio.sleep(1)

        assert loop.binder.names() == ["train-0"]
        assert loop.allocator.released == []


OWN = AllocatedClaim(
    "default",
    "mine",
    "uid-of-mine",
    request=ClaimRequest("gpus", GPU_A.driver, 1, DeviceSelector(GPU_A.driver, uuid=B)),
)


def with_own_claim(name: str = "mine") -> Pod:
    """Return a pod with the claim `mine`, or with one that is not made from its template yet."""
    used = container(BY_FIELD, claims=ContainerClaims(("gpu",), has_resources=True))
    made = pod("train-0", None, containers=(used,), own_claim=OwnClaim("gpu", name))
    return replace(made, resource_claims=tuple(filter(None, (name,))))


@pytest.mark.promise("isolate-15")
@pytest.mark.parametrize("template", [False, True], ids=["its claim", "its claim, made from a template"])
async def test_a_pod_is_bound_when_its_own_claim_comes(*, template: bool) -> None:
    """It waits for nothing but that."""
    async with looping(Policy(reads_claims=True)) as loop:
        loop.scheduler.pods.applied(with_own_claim("" if template else "mine"))
        await asyncio.sleep(0.1)
        assert loop.binder.sent == []
        assert loop.recorder.reasons == [Reason.GPU_NOT_FOUND]

        loop.scheduler.cache.device_claims.applied(OWN)
        if template:
            loop.scheduler.pods.applied(with_own_claim())
        await asyncio.sleep(1.1)
        (bind,) = loop.binder.sent
        assert bind.placement.devices == (B,)


@pytest.mark.promise("isolate-15")
async def test_a_claim_that_is_made_anew_requeues_its_pod() -> None:
    """What was not read of the first is not in the second."""
    async with looping(Policy(reads_claims=True)) as loop:
        unread = replace(OWN, request=None, unread="spec.devices.config is not read")
        loop.scheduler.cache.device_claims.applied(unread)
        loop.scheduler.pods.applied(with_own_claim())
        await asyncio.sleep(0.1)
        assert loop.recorder.reasons == [Reason.UNSUPPORTED]

        loop.scheduler.cache.device_claims.forgotten(unread)
        loop.scheduler.cache.device_claims.applied(replace(OWN, uid="uid-of-another"))
        await asyncio.sleep(2)
        assert loop.binder.names() == ["train-0"]


@pytest.mark.promise("isolate-7")
async def test_an_own_claim_is_given_back_and_allocated_again() -> None:
    """An earlier leader was killed before the Binding: its pod waits for the GPU that its claim has."""
    async with looping(Policy(reads_claims=True)) as loop:
        left = replace(OWN, devices=(GPU_B,), pods=(POD.ref.uid,))
        loop.scheduler.cache.device_claims.applied(left)
        loop.scheduler.pods.applied(with_own_claim())
        await asyncio.sleep(0.5)
        assert loop.allocator.released == [("train-0", ["mine"])]
        assert loop.binder.sent == []

        loop.scheduler.cache.device_claims.applied(OWN)
        await asyncio.sleep(2)
        assert loop.binder.names() == ["train-0"]
