"""How long a standby waits for a Lease whose holder renews it no longer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

from gpu_scheduler.kube.leader_election import LeaseTimings
from gpu_scheduler.kube.objects.leases import Lease, LeaseMeta, LeaseSpec
from unit_tests.kube.test_leader_election import FakeLeases, candidate, running

if TYPE_CHECKING:
    from typing import Any

pytestmark = pytest.mark.clock("virtual")
SHIPPED: Final = LeaseTimings()
HELD: Final = LeaseSpec("the living", 15, "acquired", "renewed", 1)


def write(leases: FakeLeases, spec: LeaseSpec, version: str) -> None:
    leases.lease = Lease(LeaseMeta("gpu-scheduler", "system", version), spec)


async def elected_after(leases: FakeLeases, changed: LeaseSpec | None = None, at: float = 0) -> float:
    """Return the seconds until a standby leads. The Lease changes once on the way, if `changed` is given."""
    now = asyncio.get_running_loop().time
    started = now()
    me = candidate(leases, timing=SHIPPED)
    async with running(me):
        if changed is not None:
            await asyncio.sleep(at)
            write(leases, changed, "2")
        await asyncio.wait_for(me.elected.wait(), 100)
        return now() - started


@pytest.mark.promise("lead-1", "lead-2")
@pytest.mark.parametrize(("says", "waits"), [(40, 40), (15, 15), (5, 15), (None, 15)])
async def test_a_standby_waits_for_the_longer_of_its_own_duration_and_the_leases(
    says: int | None, waits: float
) -> None:
    """Its holder may have been started with another duration, and may still send a Binding until its own has passed."""
    leases = FakeLeases()
    write(leases, replace(HELD, lease_duration_seconds=says), "1")

    assert await elected_after(leases) == pytest.approx(waits)


@pytest.mark.promise("lead-1")
@pytest.mark.parametrize(
    "change",
    [{"holder_identity": "the next"}, {"renew_time": "later"}, {"acquire_time": "later"}, {"lease_transitions": 2}],
    ids=str,
)
async def test_any_change_of_the_lease_shows_that_its_holder_lives(change: dict[str, Any]) -> None:
    """The wait begins again, when the standby sees the change."""
    leases = FakeLeases()
    write(leases, HELD, "1")

    seconds = await elected_after(leases, replace(HELD, **change), at=14)

    assert 14 + SHIPPED.duration <= seconds <= 14 + SHIPPED.duration + SHIPPED.retry_period
