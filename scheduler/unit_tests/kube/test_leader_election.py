import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any

import pytest

from gpu_scheduler.kube.elapsed import elapsed_clock
from gpu_scheduler.kube.events import Event, ObjectRef
from gpu_scheduler.kube.http.client import NoResponseError
from gpu_scheduler.kube.leader_election import LeaderElector, LeaseLock, LeaseLostError, LeaseTimings, NoLeaderElection
from gpu_scheduler.kube.objects.leases import MAX_KEPT, Lease, LeaseMeta, LeaseSpec
from tests.objects import Object
from unit_tests.kube.server import Reply, connected, until
from unit_tests.virtual import settle

PATH = "/apis/coordination.k8s.io/v1/namespaces/system/leases/gpu-scheduler"
QUICK = LeaseTimings(duration=0.6, renew_deadline=0.3, retry_period=0.05)


class FakeLeases:
    """A Lease in memory with compare-and-set, whose calls can fail and hang."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.broken: Exception | None = None
        self.hangs = False
        self.reads = 0
        self.writes = 0
        self._version = 0

    async def read(self) -> Lease | None:
        self.reads += 1
        await self._fail_if_set()
        return deepcopy(self.lease)

    async def write(self, lease: Lease) -> Lease:
        """Store the Lease if its version is current."""
        await self._fail_if_set()
        present = self.lease.metadata.resource_version if self.lease else None
        if lease.metadata.resource_version != present:
            raise NoResponseError("somebody else was first")
        self._version += 1
        self.writes += 1
        self.lease = deepcopy(lease)
        self.lease.metadata.resource_version = str(self._version)
        return deepcopy(self.lease)

    def held_by(self, holder: str) -> None:
        self._version += 1
        meta = LeaseMeta("gpu-scheduler", "system", str(self._version))
        self.lease = Lease(meta, LeaseSpec(holder, 1, "then", f"then-{self._version}", 1))

    def delete(self) -> None:
        self.lease = None

    def empty(self) -> None:
        self._version += 1
        self.lease = Lease(LeaseMeta("gpu-scheduler", "system", str(self._version)), LeaseSpec())

    @property
    def holder(self) -> str | None:
        return self.lease.spec.holder_identity if self.lease else None

    async def _fail_if_set(self) -> None:
        if self.hangs:
            await asyncio.sleep(60)
        if self.broken:
            raise self.broken


def candidate(
    leases: FakeLeases | LeaseLock,
    identity: str = "me",
    heartbeat_age: Callable[[], float] = lambda: 0.0,
    timing: LeaseTimings = QUICK,
    clock: Callable[[], float] | None = None,
    **others: Any,
) -> LeaderElector:
    """Return a replica that competes for the Lease. Its clock is that of the event loop, unless the test has one."""
    return LeaderElector(
        leases,
        name="gpu-scheduler",
        namespace="system",
        identity=identity,
        timing=timing,
        heartbeat_age=heartbeat_age,
        clock=clock or asyncio.get_running_loop().time,
        **others,
    )


@asynccontextmanager
async def running(*candidates: LeaderElector) -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.create_task(each.run()) for each in candidates]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def leading(
    leases: FakeLeases | None = None, **others: Any
) -> AsyncIterator[tuple[FakeLeases, LeaderElector, asyncio.Task[None]]]:
    """Run a candidate; when it leads, yield its Lease, itself and its task."""
    leases = leases or FakeLeases()
    me = candidate(leases, **others)
    async with running(me) as (task,):
        await asyncio.wait_for(me.elected.wait(), 1)
        yield leases, me, task


class FakeEvents:
    """Keeps the events; creating one takes `seconds`."""

    def __init__(self, seconds: float = 0) -> None:
        self.seconds = seconds
        self.notes: list[tuple[str, str, str]] = []

    async def create(self, regarding: ObjectRef, event: Event) -> None:
        await asyncio.sleep(self.seconds)
        self.notes.append((f"{regarding.kind} {regarding.namespace}/{regarding.name}", event.reason, event.note))


@pytest.mark.promise("lead-9")
async def test_each_change_of_the_leader_has_an_event() -> None:
    """In kube-scheduler's words. An API server that is slow to store it delays neither election nor renewal."""
    leases, events = FakeLeases(), FakeEvents(seconds=5)
    me = candidate(leases, events=events)
    async with running(me):
        await until(lambda: leases.writes >= 3)
        assert me.leading
        events.seconds = 0
        await me.release()

    lease = "Lease system/gpu-scheduler"
    assert events.notes == [(lease, "LeaderElection", "me stopped leading")]

    events = FakeEvents()
    async with running(candidate(FakeLeases(), events=events)):
        await until(lambda: events.notes)
    assert events.notes == [(lease, "LeaderElection", "me became leader")]


async def test_a_single_replica_becomes_and_stays_leader() -> None:
    """The missing Lease is created and then renewed, and binds stay allowed."""
    assert not candidate(FakeLeases()).may_write()
    async with leading() as (leases, me, _):
        await asyncio.sleep(0.5)

        assert me.may_write()
        assert leases.holder == "me"
        assert leases.writes > 5


async def test_elected_is_set_before_tried() -> None:
    """Code that runs after a successful first try runs as the leader."""
    me, resumed = candidate(FakeLeases()), []

    async def wait_for(name: str, event: asyncio.Event) -> None:
        await event.wait()
        resumed.append(name)

    # In the order in which they wait, `tried` would come first.
    waiting = [asyncio.create_task(wait_for(name, event)) for name, event in (("tried", me.tried), ("led", me.elected))]
    await settle()
    async with running(me):
        await asyncio.wait_for(asyncio.gather(*waiting), 1)

    assert resumed == ["led", "tried"]


async def test_a_failed_try_sets_tried() -> None:
    """A standby does not wait for the election before it lists the cluster."""
    leases = FakeLeases()
    leases.broken = OSError("down")
    me = candidate(leases)
    async with running(me):
        await asyncio.wait_for(me.tried.wait(), 1)

        assert not me.elected.is_set()


@pytest.mark.promise("lead-1")
async def test_only_one_of_two_replicas_leads() -> None:
    """The other waits, however long it takes."""
    leases = FakeLeases()
    one, other = candidate(leases, "one"), candidate(leases, "other")
    async with running(one, other):
        await asyncio.sleep(0.9)

        assert sorted((one.may_write(), other.may_write())) == [False, True]


@pytest.mark.promise("lead-1")
async def test_a_standby_tries_when_the_lease_expires() -> None:
    """Even if its next retry would be much later: no standby waits longer than the lease."""
    leases = FakeLeases()
    leases.held_by("the dead")
    me = candidate(leases, timing=LeaseTimings(duration=0.8, renew_deadline=0.5, retry_period=60))
    async with running(me):
        await asyncio.sleep(0.6)
        assert not me.leading

        await asyncio.wait_for(me.elected.wait(), 1)
        assert leases.reads == 2
        assert leases.lease is not None
        assert leases.lease.spec.lease_transitions == 2


async def test_a_standby_that_fails_to_take_an_expired_lease_keeps_its_retry_period() -> None:
    """It tries once when the lease expires, and then no more often than before."""
    leases = FakeLeases()
    leases.held_by("the dead")
    me = candidate(leases)
    async with running(me):
        await asyncio.sleep(0.1)
        leases.broken = ConnectionRefusedError("refused")
        before = leases.reads
        await asyncio.sleep(1)

        assert leases.reads - before <= 1 / (QUICK.retry_period / 4) + 2


FAULTS = {"it is deleted": FakeLeases.delete, "its fields are null": FakeLeases.empty}
"""Writes of other clients to a Lease that is held."""


@pytest.mark.promise("lead-1")
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_a_standby_waits_for_a_lease_that_lost_its_holder(fault: Callable[[FakeLeases], None]) -> None:
    """Its last holder may still lead: the standby waits a whole lease before it takes a Lease without holder."""
    leases = FakeLeases()
    leases.held_by("the living")
    me = candidate(leases)
    async with running(me):
        await asyncio.sleep(0.1)
        fault(leases)
        await asyncio.sleep(0.5)
        assert not me.elected.is_set()

        await asyncio.wait_for(me.elected.wait(), 1)
        assert leases.holder == "me"


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_a_leader_takes_back_a_lease_without_holder(fault: Callable[[FakeLeases], None]) -> None:
    """Before its deadline no other replica can have taken it: the leader stays, and the standby keeps waiting."""
    async with leading() as (leases, _, task):
        other = candidate(leases, "other")
        async with running(other):
            await asyncio.sleep(0.1)
            fault(leases)
            await asyncio.sleep(0.8)

            assert leases.holder == "me"
            assert not task.done()
            assert not other.elected.is_set()


async def test_a_lease_with_the_most_transitions_is_taken() -> None:
    """The API server refuses a count beyond the field's type: the count stays at its maximum."""
    leases = FakeLeases()
    spec = LeaseSpec("", 1, lease_transitions=2**31 - 1)
    leases.lease = Lease(LeaseMeta("gpu-scheduler", "system", "0"), spec)
    async with leading(leases):
        assert leases.lease.spec.lease_transitions == 2**31 - 1


async def test_a_renewal_in_progress_does_not_keep_the_lease() -> None:
    """The replica stops while a renewal is sent. The API server stores the renewal, and the lease is still released."""
    async with leading() as (leases, me, _):
        pass
    assert leases.lease is not None
    await leases.write(leases.lease)

    await me.release()

    assert leases.holder == ""


@pytest.mark.promise("lead-1")
async def test_a_released_lease_is_taken_at_once() -> None:
    """Without a holder there is nothing to wait for."""
    async with leading(identity="one") as (leases, one, task):
        other = candidate(leases, "other")
        async with running(other):
            await asyncio.sleep(0.1)
            task.cancel()
            await one.release()

            assert not one.may_write()
            await asyncio.wait_for(other.elected.wait(), 0.3)


@pytest.mark.parametrize("fault", ["refused", "hangs"])
async def test_a_leader_that_cannot_renew_ends_at_its_deadline(fault: str) -> None:
    """Binds are forbidden before another replica may lead, and the process ends."""
    async with leading() as (leases, me, task):
        leases.hangs = fault == "hangs"
        leases.broken = ConnectionRefusedError("refused")

        with pytest.raises(LeaseLostError, match="could not be renewed"):
            await asyncio.wait_for(task, QUICK.duration)
        assert not me.may_write()


async def test_a_leader_survives_one_failed_renewal() -> None:
    """Any exception is a failed renewal, and a failed renewal is repeated."""
    async with leading() as (leases, me, task):
        leases.broken = ValueError("odd")
        await asyncio.sleep(0.1)
        leases.broken = None
        await asyncio.sleep(0.4)

        assert me.may_write()
        assert not task.done()


async def test_a_leader_that_finds_another_holder_ends() -> None:
    """It may have been stopped for long: the new holder is right."""
    async with leading() as (leases, _, task):
        leases.held_by("the successor")

        with pytest.raises(LeaseLostError, match="another replica"):
            await asyncio.wait_for(task, 1)
        assert leases.holder == "the successor"


@pytest.mark.promise("lead-1")
async def test_a_leader_with_a_dead_scheduling_loop_steps_down() -> None:
    """Renewals without a loop would stop all placement. The lease expires unreleased: a bind may be in progress."""
    age = [0.0]
    async with leading(heartbeat_age=lambda: age[0]) as (leases, me, task):
        age[0] = QUICK.renew_deadline + 1

        with pytest.raises(LeaseLostError, match="has not run for"):
            await asyncio.wait_for(task, 1)
        assert not me.may_write()
        assert leases.holder == "me"


async def test_a_leader_resumed_too_late_writes_nothing() -> None:
    """A renewal after the deadline would make the successor wait a whole lease for a process that ends."""
    now = [0.0]
    async with leading(clock=lambda: now[0]) as (leases, _, task):
        written = leases.writes
        now[0] = QUICK.renew_deadline

        with pytest.raises(LeaseLostError, match="could not be renewed"):
            await asyncio.wait_for(task, 1)
        assert leases.writes == written


@pytest.mark.promise("lead-2")
async def test_a_leader_writes_nothing_after_a_suspend() -> None:
    """The monotonic clock stands still during a suspend, while another replica takes the Lease."""
    monotonic, boot = [0.0], [0.0]
    async with leading(clock=elapsed_clock(lambda: monotonic[0], lambda: boot[0])) as (_, me, _task):
        assert me.may_write()

        boot[0] += 60

        assert not me.may_write()


async def test_the_lease_says_a_duration_that_is_not_shorter_than_ours() -> None:
    """It counts whole seconds, and a replica with a shorter duration waits for what it says."""
    timing = LeaseTimings(duration=2.4, renew_deadline=0.3, retry_period=0.05)
    async with leading(timing=timing) as (leases, _, _task):
        assert leases.lease is not None
        assert leases.lease.spec.lease_duration_seconds == 3


@pytest.mark.promise("lead-2")
async def test_the_deadline_counts_from_the_start_of_the_renewal() -> None:
    """A slow response leaves less time: the standby, too, counts from the request."""
    now = [0.0]

    class SlowLeases(FakeLeases):
        async def write(self, lease: Lease) -> Lease:
            now[0] = 4.0
            return await super().write(lease)

    timing = LeaseTimings(duration=15, renew_deadline=10, retry_period=2)
    async with leading(SlowLeases(), timing=timing, clock=lambda: now[0]) as (_, me, _task):
        now[0] = 9.9
        assert me.may_write()

        now[0] = 10.0
        assert not me.may_write()


async def test_a_lease_lock_creates_and_replaces_the_lease() -> None:
    """A missing Lease is created. An update needs the current resourceVersion, and a conflict is reported."""
    async with connected() as (server, api):
        leases = LeaseLock(api, namespace="system", name="gpu-scheduler")
        made = {"metadata": {"name": "gpu-scheduler", "namespace": "system", "resourceVersion": "5"}, "spec": {}}
        server.on("GET", PATH, Reply(404))
        server.on("POST", PATH.removesuffix("/gpu-scheduler"), Reply(201, made))
        server.on("PUT", PATH, Reply(409, {"message": "changed"}))

        assert await leases.read() is None
        spec = LeaseSpec("me", 15)
        lease = await leases.write(Lease(LeaseMeta("gpu-scheduler", "system"), spec))
        assert lease.metadata.resource_version == "5"
        sent = server.asked("POST")[0].body
        assert sent["spec"] == {"holderIdentity": "me", "leaseDurationSeconds": 15}
        with pytest.raises(NoResponseError, match="another client"):
            await leases.write(lease)
        assert server.asked("PUT")[0].body["metadata"]["resourceVersion"] == "5"
        await until(lambda: len(server.requests) == 3)


FOREIGN: Object = {
    "metadata": {
        "uid": "u-1",
        "labels": {"team": "a"},
        "annotations": {"note": "n"},
        "finalizers": ["example.com/keep"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "system", "uid": "u-2"}],
        "managedFields": [{"manager": "someone"}],
        "unknown": {"of": ["a", "newer", "version"]},
    },
    "spec": {"strategy": "OldestEmulationVersion", "preferredHolder": "other", "unknown": 1},
}


def lease_json(version: str, holder: str = "", **metadata: object) -> Object:
    """Return the Lease with fields of others, as the API server has it."""
    name = {"name": "gpu-scheduler", "namespace": "system", "resourceVersion": version}
    return {
        "metadata": {**FOREIGN["metadata"], **name, **metadata},
        "spec": {**FOREIGN["spec"], "holderIdentity": holder, "leaseDurationSeconds": 1},
    }


async def test_a_replica_keeps_what_others_wrote_into_the_lease() -> None:
    """Each PUT replaces the whole Lease: when it is taken, renewed and released, fields of others stay as they are."""
    async with connected() as (server, api):
        # It reads the Lease once more if the end of the test interrupts the second renewal.
        server.on("GET", PATH, Reply(200, lease_json("5")), Reply(200, lease_json("7", "me", labels={"team": "b"})))
        server.on("PUT", PATH, *(Reply(200, lease_json(version, "me", labels={"team": "b"})) for version in "678"))
        me = candidate(LeaseLock(api, namespace="system", name="gpu-scheduler"), timing=LeaseTimings(15, 10, 1))
        async with running(me):
            await until(lambda: len(server.asked("PUT")) == 2)
        await me.release()
        taken, renewed, released = (each.body for each in server.asked("PUT"))

    for sent, version, team in ((taken, "5", "a"), (renewed, "6", "b"), (released, "7", "b")):
        assert sent["metadata"] == lease_json(version, labels={"team": team})["metadata"]
        assert FOREIGN["spec"].items() <= sent["spec"].items()
    assert (taken["spec"]["holderIdentity"], released["spec"]["leaseDurationSeconds"]) == ("me", 1)


async def test_a_lease_of_unusual_size_is_written_without_the_fields_of_others() -> None:
    """They would be sent again at every renewal. The Lease itself still works."""
    async with connected() as (server, api):
        leases = LeaseLock(api, namespace="system", name="gpu-scheduler")
        server.on("GET", PATH, Reply(200, lease_json("5", annotations={"note": "n" * MAX_KEPT})))
        server.on("PUT", PATH, Reply(200, lease_json("6")))

        lease = await leases.read()
        assert lease is not None
        await leases.write(lease)

        assert set(server.asked("PUT")[0].body["metadata"]) == {"name", "namespace", "resourceVersion", "uid"}


async def test_without_an_election_it_leads_from_its_start() -> None:
    """It may write at any time, and a release changes nothing."""
    alone = NoLeaderElection("me")
    leading = [alone.leading]

    task = asyncio.create_task(alone.run())
    await alone.elected.wait()

    assert alone.tried.is_set()
    await alone.release()
    leading.append(alone.leading)
    assert (leading, alone.may_write(), task.done()) == ([False, True], True, False)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
