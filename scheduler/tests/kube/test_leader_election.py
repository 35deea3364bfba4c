import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy

import pytest

from gpu_scheduler.kube.http.client import NoResponseError
from gpu_scheduler.kube.leader_election import LeaderElector, LeaseLock, LeaseLostError, LeaseTimings
from gpu_scheduler.kube.objects.leases import Lease, LeaseMeta, LeaseSpec
from tests.kube.server import Reply, connected, until

pytestmark = pytest.mark.clock("virtual")
QUICK = LeaseTimings(duration=0.6, renew_deadline=0.3, retry_period=0.05)


class FakeLeases:
    """A Lease in memory with compare-and-set, which can refuse and fall silent."""

    def __init__(self) -> None:
        """No Lease yet."""
        self.lease: Lease | None = None
        self.broken: Exception | None = None
        self.silent = False
        self.reads = 0
        self.writes = 0
        self._version = 0

    async def read(self) -> Lease | None:
        """See Leases."""
        self.reads += 1
        await self._trouble()
        return deepcopy(self.lease)

    async def write(self, lease: Lease) -> Lease:
        """See Leases."""
        await self._trouble()
        present = self.lease.metadata.resource_version if self.lease else None
        if lease.metadata.resource_version != present:
            raise NoResponseError("somebody else was first")
        self._version += 1
        self.writes += 1
        self.lease = deepcopy(lease)
        self.lease.metadata.resource_version = str(self._version)
        return deepcopy(self.lease)

    def held_by(self, holder: str) -> None:
        """Let somebody else write it."""
        self._version += 1
        meta = LeaseMeta("gpu-scheduler", "system", str(self._version))
        self.lease = Lease(meta, LeaseSpec(holder, 1, "then", f"then-{self._version}", 1))

    def delete(self) -> None:
        """Let somebody take it away."""
        self.lease = None

    def empty(self) -> None:
        """Let somebody write nothing into it."""
        self._version += 1
        self.lease = Lease(LeaseMeta("gpu-scheduler", "system", str(self._version)), LeaseSpec())

    @property
    def holder(self) -> str | None:
        """Who holds it now."""
        return self.lease.spec.holder_identity if self.lease else None

    async def _trouble(self) -> None:
        if self.silent:
            await asyncio.sleep(60)
        if self.broken:
            raise self.broken


def candidate(
    leases: FakeLeases,
    identity: str = "me",
    heartbeat_age: Callable[[], float] = lambda: 0.0,
    timing: LeaseTimings = QUICK,
) -> LeaderElector:
    """A replica that competes."""
    clock = asyncio.get_running_loop().time
    return LeaderElector(
        leases,
        name="gpu-scheduler",
        namespace="system",
        identity=identity,
        timing=timing,
        heartbeat_age=heartbeat_age,
        clock=clock,
    )


@asynccontextmanager
async def running(*candidates: LeaderElector) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Let them compete."""
    tasks = [asyncio.create_task(each.run()) for each in candidates]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_first_to_come_leads_and_goes_on_leading() -> None:
    """No Lease yet: it is made, renewed, and the window for binds stays open."""
    leases = FakeLeases()
    me = candidate(leases)
    assert not me.may_bind()
    async with running(me):
        await asyncio.wait_for(me.elected.wait(), 1)
        await asyncio.sleep(0.5)

        assert me.may_bind()
        assert leases.holder == "me"
        assert leases.writes > 5


async def test_whoever_waits_for_the_first_try_hears_of_the_election_before() -> None:
    """What is done after a try that succeeded is done as the leader."""
    me, heard = candidate(FakeLeases()), []

    async def listen(word: str, event: asyncio.Event) -> None:
        await event.wait()
        heard.append(word)

    # In the order in which they wait it would be the other way round.
    listening = [asyncio.create_task(listen(word, event)) for word, event in (("tried", me.tried), ("led", me.elected))]
    await asyncio.sleep(0)
    async with running(me):
        await asyncio.wait_for(asyncio.gather(*listening), 1)

    assert heard == ["led", "tried"]


async def test_a_try_that_fails_was_one() -> None:
    """A standby does not wait for the election to look at the cluster."""
    leases = FakeLeases()
    leases.broken = OSError("down")
    me = candidate(leases)
    async with running(me):
        await asyncio.wait_for(me.tried.wait(), 1)

        assert not me.elected.is_set()


async def test_of_two_only_one_leads() -> None:
    """The other waits, however long."""
    leases = FakeLeases()
    one, other = candidate(leases, "one"), candidate(leases, "other")
    async with running(one, other):
        await asyncio.sleep(0.9)

        assert sorted((one.may_bind(), other.may_bind())) == [False, True]


async def test_a_dead_holder_is_waited_out_by_our_own_clock() -> None:
    """Not by the time stamps in the Lease, which may be of a clock that is wrong."""
    leases = FakeLeases()
    leases.held_by("the dead")
    me = candidate(leases)
    async with running(me):
        await asyncio.sleep(0.4)
        assert not me.leading

        await asyncio.wait_for(me.elected.wait(), 1)
        assert leases.lease is not None
        assert leases.lease.spec.lease_transitions == 2


async def test_a_standby_tries_at_the_moment_that_the_lease_ends() -> None:
    """However far off its next look would be: nobody waits longer than the lease."""
    leases = FakeLeases()
    leases.held_by("the dead")
    me = candidate(leases, timing=LeaseTimings(duration=0.8, renew_deadline=0.5, retry_period=60))
    async with running(me):
        await asyncio.sleep(0.6)
        assert not me.leading

        await asyncio.wait_for(me.elected.wait(), 1)
        assert leases.reads == 2


async def test_a_standby_that_cannot_take_an_ended_lease_does_not_hammer() -> None:
    """At its end it tries at once, and after that no more often than before."""
    leases = FakeLeases()
    leases.held_by("the dead")
    me = candidate(leases)
    async with running(me):
        await asyncio.sleep(0.1)
        leases.broken = ConnectionRefusedError("refused")
        before = leases.reads
        await asyncio.sleep(1)

        assert leases.reads - before <= 1 / (QUICK.retry_period / 4) + 2


MISHAPS = {"it is deleted": FakeLeases.delete, "its fields are null": FakeLeases.empty}
"""What others do to a Lease that somebody holds."""


@pytest.mark.parametrize("mishap", MISHAPS.values(), ids=MISHAPS)
async def test_a_lease_that_nobody_gave_up_is_waited_out(mishap: Callable[[FakeLeases], None]) -> None:
    """Its last holder may still lead: a whole lease passes before the standby takes what has no holder."""
    leases = FakeLeases()
    leases.held_by("the living")
    me = candidate(leases)
    async with running(me):
        await asyncio.sleep(0.1)
        mishap(leases)
        await asyncio.sleep(0.5)
        assert not me.elected.is_set()

        await asyncio.wait_for(me.elected.wait(), 1)
        assert leases.holder == "me"


@pytest.mark.parametrize("mishap", MISHAPS.values(), ids=MISHAPS)
async def test_a_leader_takes_back_the_lease_that_nobody_holds(mishap: Callable[[FakeLeases], None]) -> None:
    """Inside its own window nobody else can have taken it: it leads on, and the standby goes on waiting."""
    leases = FakeLeases()
    me, other = candidate(leases), candidate(leases, "other")
    async with running(me) as (task,):
        await me.elected.wait()
        async with running(other):
            await asyncio.sleep(0.1)
            mishap(leases)
            await asyncio.sleep(0.8)

            assert leases.holder == "me"
            assert not task.done()
            assert not other.elected.is_set()


async def test_a_lease_that_was_given_from_hand_to_hand_too_often_is_taken() -> None:
    """The API server refuses a count beyond its type: one that stands at its end stays there."""
    leases = FakeLeases()
    spec = LeaseSpec("", 1, lease_transitions=2**31 - 1)
    leases.lease = Lease(LeaseMeta("gpu-scheduler", "system", "0"), spec)
    me = candidate(leases)
    async with running(me):
        await asyncio.wait_for(me.elected.wait(), 1)

        assert leases.lease.spec.lease_transitions == 2**31 - 1


async def test_a_holder_that_still_renews_is_never_robbed() -> None:
    """Each renewal starts the wait anew."""
    leases = FakeLeases()
    me = candidate(leases)
    async with running(me):
        for _ in range(10):
            leases.held_by("the living")
            await asyncio.sleep(0.1)

        assert not me.elected.is_set()


async def test_a_renewal_under_way_does_not_keep_the_lease() -> None:
    """Told to stop while a renewal was on its way to the API server, which then lands: the lease is released."""
    leases = FakeLeases()
    me = candidate(leases)
    async with running(me) as (task,):
        await asyncio.wait_for(me.elected.wait(), 1)
        task.cancel()
    assert leases.lease is not None
    await leases.write(leases.lease)

    await me.release()

    assert leases.holder == ""


async def test_a_released_lease_is_taken_at_once() -> None:
    """No holder means nobody to wait for."""
    leases = FakeLeases()
    one, other = candidate(leases, "one"), candidate(leases, "other")
    async with running(one) as (task,):
        await one.elected.wait()
        async with running(other):
            await asyncio.sleep(0.1)
            task.cancel()
            await one.release()

            assert not one.may_bind()
            await asyncio.wait_for(other.elected.wait(), 0.3)


@pytest.mark.parametrize("trouble", ["refused", "silent"])
async def test_a_leader_that_cannot_renew_ends_at_its_deadline(trouble: str) -> None:
    """The window closes before anybody else may take over, and the process is told to end."""
    leases = FakeLeases()
    me = candidate(leases)
    async with running(me) as (task,):
        await me.elected.wait()
        leases.silent = trouble == "silent"
        leases.broken = ConnectionRefusedError("refused")

        with pytest.raises(LeaseLostError, match="could not be renewed"):
            await asyncio.wait_for(task, QUICK.duration)
        assert not me.may_bind()


async def test_a_renewal_that_fails_once_costs_nothing() -> None:
    """Any exception is a failed renewal, and a failed renewal is tried again."""
    leases = FakeLeases()
    me = candidate(leases)
    async with running(me) as (task,):
        await me.elected.wait()
        leases.broken = ValueError("odd")
        await asyncio.sleep(0.1)
        leases.broken = None
        await asyncio.sleep(0.4)

        assert me.may_bind()
        assert not task.done()


async def test_a_leader_that_finds_another_holder_ends() -> None:
    """It may have been frozen for long: the successor is right."""
    leases = FakeLeases()
    me = candidate(leases)
    async with running(me) as (task,):
        await me.elected.wait()
        leases.held_by("the successor")

        with pytest.raises(LeaseLostError, match="another replica"):
            await asyncio.wait_for(task, 1)
        assert leases.holder == "the successor"


async def test_a_leader_whose_decider_died_steps_down() -> None:
    """A lease renewed beside a dead decider would stop all placement: it expires, as a bind may still be in the air."""
    leases = FakeLeases()
    pulse = [0.0]
    me = candidate(leases, heartbeat_age=lambda: pulse[0])
    async with running(me) as (task,):
        await me.elected.wait()
        pulse[0] = QUICK.renew_deadline + 1

        with pytest.raises(LeaseLostError, match="no sign of life"):
            await asyncio.wait_for(task, 1)
        assert not me.may_bind()
        assert leases.holder == "me"


async def test_a_leader_that_wakes_up_too_late_writes_nothing() -> None:
    """A renewal past the window would make the successor wait a whole lease for a process that ends."""
    now = [0.0]
    leases = FakeLeases()
    me = LeaderElector(
        leases,
        name="gpu-scheduler",
        namespace="system",
        identity="me",
        timing=QUICK,
        heartbeat_age=lambda: 0.0,
        clock=lambda: now[0],
    )
    async with running(me) as (task,):
        await me.elected.wait()
        written = leases.writes
        now[0] = QUICK.renew_deadline

        with pytest.raises(LeaseLostError, match="could not be renewed"):
            await asyncio.wait_for(task, 1)
        assert leases.writes == written


async def test_the_window_counts_from_the_start_of_the_renewal() -> None:
    """An answer that took long is worth less: the other side counts from when it was asked, too."""
    now = [0.0]

    class SlowLeases(FakeLeases):
        async def write(self, lease: Lease) -> Lease:
            now[0] = 4.0
            return await super().write(lease)

    leases = SlowLeases()
    timing = LeaseTimings(duration=15, renew_deadline=10, retry_period=2)
    me = LeaderElector(
        leases,
        name="gpu-scheduler",
        namespace="system",
        identity="me",
        timing=timing,
        heartbeat_age=lambda: 0.0,
        clock=lambda: now[0],
    )
    async with running(me):
        await me.elected.wait()
        now[0] = 9.9
        assert me.may_bind()

        now[0] = 10.0
        assert not me.may_bind()


@pytest.mark.clock("real")
async def test_the_lease_in_the_api_server() -> None:
    """Made when missing, replaced by resourceVersion, and a conflict is told."""
    path = "/apis/coordination.k8s.io/v1/namespaces/system/leases"
    async with connected() as (server, api):
        leases = LeaseLock(api, namespace="system", name="gpu-scheduler")
        made = {"metadata": {"name": "gpu-scheduler", "namespace": "system", "resourceVersion": "5"}, "spec": {}}
        server.on("GET", f"{path}/gpu-scheduler", Reply(404))
        server.on("POST", path, Reply(201, made))
        server.on("PUT", f"{path}/gpu-scheduler", Reply(409, {"message": "changed"}))

        assert await leases.read() is None
        spec = LeaseSpec("me", 15)
        lease = await leases.write(Lease(LeaseMeta("gpu-scheduler", "system"), spec))
        assert lease.metadata.resource_version == "5"
        sent = server.asked("POST")[0].body
        assert sent["spec"] == {"holderIdentity": "me", "leaseDurationSeconds": 15}
        with pytest.raises(NoResponseError, match="somebody else"):
            await leases.write(lease)
        assert server.asked("PUT")[0].body["metadata"]["resourceVersion"] == "5"
        await until(lambda: len(server.requests) == 3)
