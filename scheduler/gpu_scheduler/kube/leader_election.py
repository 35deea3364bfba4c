"""One leader among the replicas, by a Lease; own code, as the client's elector trusts the wall clock and can hang.

Only the monotonic clock counts. Any exception is a failed renewal; a leader that cannot renew in time ends its process.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

import msgspec

from gpu_scheduler.kube.http.client import NoResponseError, segment
from gpu_scheduler.kube.objects.leases import Lease, LeaseMeta, LeaseSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.kube.http.client import ApiClient

NOT_FOUND = 404
CONFLICT = 409
# What Kubernetes' own electors write as the duration of a lease that they give up, with no holder.
GIVEN_UP = 1
# The API's own type ends there; a Lease that was spoilt may say so already.
MOST_TRANSITIONS = 2**31 - 1

log = logging.getLogger(__name__)


class LeaseLostError(Exception):
    """This replica led and no longer may: the process has to end, its successor starts from a fresh list."""


class LeaseStore(Protocol):
    """Where the Lease is kept. Both raise on anything but success."""

    async def read(self) -> Lease | None:
        """The Lease as it is; None when there is none yet."""

    async def write(self, lease: Lease) -> Lease:
        """Create or replace, only if nobody else wrote since it was read."""


@dataclass(frozen=True, slots=True)
class LeaseTimings:
    """Seconds: how long a lease lasts, when its holder gives up renewing, and how often everybody looks."""

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0


class LeaderElector:
    """Competes for the Lease until told to stop; `may_bind` is asked right before every write that places a pod."""

    def __init__(  # noqa: PLR0913 - the two clocks and the heartbeat are what tests turn
        self,
        leases: LeaseStore,
        *,
        name: str,
        namespace: str,
        identity: str,
        timing: LeaseTimings,
        heartbeat_age: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`heartbeat_age` gives the seconds by which the decider is late to show a sign of life."""
        self._leases = leases
        self._name = name
        self._namespace = namespace
        self.identity = identity
        self._timing = timing
        self._heartbeat_age = heartbeat_age
        self._clock = clock
        self._wall = wall
        self._renewed: float | None = None
        self._held: Lease | None = None
        self._seen: tuple[object, ...] | None = None
        self._seen_at = clock()
        self._ends = self._seen_at
        self.elected = asyncio.Event()
        self.tried = asyncio.Event()
        """Set after the first try, however it ended; who waits for the election hears of that before."""

    def may_bind(self) -> bool:
        """True while nobody else can have become leader: inside our own window, counted from a renewal's start."""
        return self._renewed is not None and self._clock() < self._renewed + self._timing.renew_deadline

    def _window_left(self) -> float:
        return max(0.0, (self._renewed or 0.0) + self._timing.renew_deadline - self._clock())

    @property
    def leading(self) -> bool:
        """True from election to release or loss."""
        return self._renewed is not None

    async def run(self) -> None:
        """Acquire, then renew for ever; LeaseLostError when the deadline passes or the decider's heartbeat stops."""
        await self._acquire()
        self.elected.set()
        self.tried.set()
        log.info("Leading", extra={"identity": self.identity})
        while True:
            await asyncio.sleep(self._timing.retry_period)
            await self._renew()

    async def release(self) -> None:
        """Clear the holder so that the other replica need not wait; only when no bind of ours is unsettled."""
        if not self.may_bind():
            return
        self._renewed = None
        for last in (False, True):
            try:
                await self._clear()
            except Exception as error:  # noqa: BLE001 - stopping goes on, the lease then ends by itself
                # A renewal that was under way when the process was told to stop may have come in between.
                if last:
                    log.warning("The lease could not be released and will expire", extra={"error": str(error)})
            else:
                return

    async def _clear(self) -> None:
        lease, self._held = self._held, None
        if lease is None:
            lease = await self._leases.read()
        if lease is None or lease.spec.holder_identity != self.identity:
            return
        # Kubernetes' own electors write one second and no holder, so that anybody may take over at once.
        lease.spec.holder_identity = ""
        lease.spec.lease_duration_seconds = GIVEN_UP
        lease.spec.renew_time = self._timestamp()
        await self._leases.write(lease)
        log.info("Released the lease", extra={"identity": self.identity})

    async def _acquire(self) -> None:
        while True:
            started = self._clock()
            try:
                if await self._try(started):
                    return
            except Exception as error:  # noqa: BLE001 - any fault is a failed try
                log.warning("Trying for the lease failed", extra={"error": str(error)})
            self.tried.set()
            await asyncio.sleep(self._pause())

    def _pause(self) -> float:
        """Until the next try for the lease: a quarter of a period, to see soon that it was given up, and at its end.

        Where it has ended and could not be taken all the same, trying at once would not help.
        """
        usual = self._timing.retry_period / 4 * random.uniform(1.0, 1.2)  # noqa: S311 - spreads load
        left = self._ends - self._clock()
        return min(usual, left) if left > 0 else usual

    async def _renew(self) -> None:
        """Renew within what is left of the window, trying again and again; past it, leadership is lost."""
        while True:
            if self._heartbeat_age() > self._timing.renew_deadline:
                # Not released but left to expire: a bind of the dead decider may still be in the air.
                self._renewed = None
                raise LeaseLostError(f"the decider has shown no sign of life for {self._heartbeat_age():.1f} s")
            if not self.may_bind():
                # A renewal so late would only make the successor wait anew for one who ends.
                self._renewed = None
                raise LeaseLostError(f"the lease could not be renewed for {self._timing.renew_deadline:g} s")
            started = self._clock()
            try:
                async with asyncio.timeout(self._window_left()):
                    if await self._try(started):
                        return
            except Exception as error:  # noqa: BLE001 - any fault is a failed renewal
                log.warning("Renewing the lease failed", extra={"error": str(error)})
            else:
                self._renewed = None
                raise LeaseLostError("another replica holds the lease")
            await asyncio.sleep(min(self._timing.retry_period / 4, self._window_left()))

    async def _try(self, started: float) -> bool:
        """One look and, where allowed, one write: True when the Lease is ours from `started` on.

        A holder writes over what it wrote last without looking: the resourceVersion tells whether that still stands.
        """
        lease, self._held = self._held, None
        if lease is None:
            lease = await self._leases.read()
        if not self._free(None if lease is None else lease.spec):
            return False
        if lease is None:
            lease = Lease(LeaseMeta(self._name, self._namespace), LeaseSpec())
        spec = lease.spec
        if spec.holder_identity != self.identity:
            spec.holder_identity = self.identity
            spec.acquire_time = self._timestamp()
            spec.lease_transitions = min((spec.lease_transitions or 0) + 1, MOST_TRANSITIONS)
        spec.lease_duration_seconds = max(1, round(self._timing.duration))
        spec.renew_time = self._timestamp()
        self._held = await self._leases.write(lease)
        self._renewed = started
        return True

    def _free(self, spec: LeaseSpec | None) -> bool:
        """May we take it: ours, given up, or unchanged for its whole duration by our own clock, never by its stamps.

        One that is gone, or that has no holder though none gave it up, was taken from somebody who may still lead.
        """
        if spec is None:
            if self._seen is None or self.may_bind():
                return True
            spec = LeaseSpec()
        if spec.holder_identity == self.identity or (not spec.holder_identity and self.may_bind()):
            return True
        record = (spec.holder_identity, spec.renew_time, spec.acquire_time, spec.lease_transitions)
        if record != self._seen:
            self._seen, self._seen_at = record, self._clock()
        if not spec.holder_identity and spec.lease_duration_seconds == GIVEN_UP:
            return True
        lasts = max(self._timing.duration, float(spec.lease_duration_seconds or 0))
        self._ends = self._seen_at + lasts
        return self._clock() >= self._seen_at + lasts

    def _timestamp(self) -> str:
        return self._wall().strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class LeaseLock:
    """The Lease in the API server; compare-and-set by resourceVersion."""

    def __init__(self, api: ApiClient, *, namespace: str, name: str) -> None:
        """One Lease of one namespace."""
        self._api = api
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{segment(namespace)}/leases"
        self._path = f"{self._collection}/{segment(name)}"

    async def read(self) -> Lease | None:
        """See Leases; NoResponseError when refused."""
        answer = await self._api.call("GET", self._path)
        if answer.status == NOT_FOUND:
            return None
        return self._decode(answer.status, bytes(answer.body))

    async def write(self, lease: Lease) -> Lease:
        """See Leases; a 409 means that somebody else was first."""
        body = msgspec.json.encode(lease)
        if lease.metadata.resource_version is None:
            answer = await self._api.call("POST", self._collection, body=body)
        else:
            answer = await self._api.call("PUT", self._path, body=body)
        return self._decode(answer.status, bytes(answer.body))

    def _decode(self, status: int, body: bytes) -> Lease:
        if status == CONFLICT:
            raise NoResponseError("somebody else wrote the lease first")
        if not 200 <= status < 300:  # noqa: PLR2004 - the HTTP standard's own numbers
            raise NoResponseError(f"HTTP {status}: {body[:200].decode(errors='replace')}")
        return msgspec.json.decode(body, type=Lease)


class Fence(Protocol):
    """Whether this replica may write a placement at this moment."""

    def may_bind(self) -> bool:
        """Asked right before each write."""
