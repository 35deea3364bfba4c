"""Leader election among the replicas by a Lease.

It is our own code, because the Kubernetes client's elector trusts the wall clock and can hang. Here only elapsed time
counts, suspends included. Any exception is a failed renewal. A leader that cannot renew in time ends its process.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.kube.elapsed import read_elapsed
from gpu_scheduler.kube.events import NORMAL, Event, ObjectRef
from gpu_scheduler.kube.http.client import NoResponseError, segment
from gpu_scheduler.kube.objects.leases import Lease, LeaseMeta, LeaseSpec, merge_lease, read_lease
from gpu_scheduler.kube.timestamps import micro_time_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.kube.events import Events
    from gpu_scheduler.kube.http.client import ApiClient

NOT_FOUND = 404
CONFLICT = 409
# Seconds that Kubernetes' own electors write as the duration of a Lease that they release, with no holder.
RELEASED_DURATION = 1
# The API's type is a 32-bit integer. A corrupted Lease may already have the maximum.
MOST_TRANSITIONS = 2**31 - 1
# Reason and action of the events.
_REASON = "LeaderElection"

log = logging.getLogger(__name__)


class LeaseLostError(Exception):
    """This replica led and may lead no longer. The process must end; its successor starts from a new list."""


class LeaseStore(Protocol):
    """Storage of the Lease. Both methods raise an exception unless they succeed."""

    async def read(self) -> Lease | None:
        """Return the Lease; None if it does not exist."""

    async def write(self, lease: Lease) -> Lease:
        """Create or replace the Lease, only if no other client wrote it since it was read."""


@immutable
class LeaseTimings:
    """Seconds: how long a Lease lasts, when its holder stops trying to renew, and how often replicas try."""

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0


class LeaderElector:
    """Competes for the Lease until it is stopped. Callers ask `may_write` right before every write of a placement."""

    def __init__(  # noqa: PLR0913 - the two clocks and the heartbeat are what tests turn
        self,
        leases: LeaseStore,
        *,
        name: str,
        namespace: str,
        identity: str,
        timing: LeaseTimings,
        heartbeat_age: Callable[[], float],
        clock: Callable[[], float] = read_elapsed,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        events: Events | None = None,
    ) -> None:
        """`heartbeat_age` returns the seconds by which the scheduling loop's heartbeat is late.

        `events` gets an event of each change, as kube-scheduler writes them; None if none may be written.
        """
        self._events = events
        self._uid = ""
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
        self.transitions = 0
        """How often the Lease has had another holder, as it said when it was last read or written."""
        self._seen: tuple[object, ...] | None = None
        self._seen_at = clock()
        self._ends = self._seen_at
        self.elected = asyncio.Event()
        self.tried = asyncio.Event()
        """Set after the first try, whether it succeeded or not. If it succeeded, `elected` is set first."""

    def may_write(self) -> bool:
        """Return True while no other replica can lead: up to the renew deadline after the start of the last renewal."""
        return self._renewed is not None and self._clock() < self._renewed + self._timing.renew_deadline

    def _window_left(self) -> float:
        return max(0.0, (self._renewed or 0.0) + self._timing.renew_deadline - self._clock())

    @property
    def leading(self) -> bool:
        """True from election to release or loss."""
        return self._renewed is not None

    async def run(self) -> None:
        """Acquire the Lease, then renew it for ever; LeaseLostError if the deadline passes or the heartbeat stops."""
        await self._acquire()
        self.elected.set()
        self.tried.set()
        log.info("Leading", extra={"identity": self.identity})
        event = asyncio.create_task(self._announce("became leader"))
        try:
            while True:
                await asyncio.sleep(self._timing.retry_period)
                await self._renew()
        finally:
            event.cancel()

    async def release(self) -> None:
        """Clear the holder so that the other replica need not wait. Call it only when no bind of ours is unsettled."""
        if not self.may_write():
            return
        self._renewed = None
        for last in (False, True):
            try:
                await self._clear()
            except Exception as error:  # noqa: BLE001 - stopping goes on, the lease then ends by itself
                # A renewal that was in progress at the stop may have changed the Lease: try once more.
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
        # As Kubernetes' own electors do: one second and no holder, so that any replica may take over at once.
        lease.spec.holder_identity = ""
        lease.spec.lease_duration_seconds = RELEASED_DURATION
        lease.spec.renew_time = self._timestamp()
        await self._leases.write(lease)
        log.info("Released the lease", extra={"identity": self.identity})
        await self._announce("stopped leading")

    async def _announce(self, what: str) -> None:
        """Write an event in kube-scheduler's words."""
        if self._events is not None:
            regarding = ObjectRef("coordination.k8s.io/v1", "Lease", self._namespace, self._name, self._uid)
            await self._events.create(regarding, Event(NORMAL, _REASON, _REASON, f"{self.identity} {what}"))

    async def _acquire(self) -> None:
        while True:
            started = self._clock()
            try:
                if await self._try_acquire(started):
                    return
            except Exception as error:  # noqa: BLE001 - any fault is a failed try
                log.warning("Trying for the lease failed", extra={"error": str(error)})
            self.tried.set()
            await asyncio.sleep(self._pause())

    def _pause(self) -> float:
        """Return the seconds until the next try: a quarter of a retry period, or less if the Lease expires earlier.

        A quarter, to notice a release soon. If the Lease has expired and the try still failed, an immediate retry
        would not help.
        """
        usual = self._timing.retry_period / 4 * random.uniform(1.0, 1.2)  # noqa: S311 - spreads load
        left = self._ends - self._clock()
        return min(usual, left) if left > 0 else usual

    async def _renew(self) -> None:
        """Renew within the rest of the window, with retries; raise LeaseLostError after it."""
        while True:
            if self._heartbeat_age() > self._timing.renew_deadline:
                # Do not release the Lease, let it expire: a bind of the stopped loop may still be in progress.
                self._renewed = None
                raise LeaseLostError(f"the scheduling loop has not run for {self._heartbeat_age():.1f} s")
            if not self.may_write():
                # This process ends: a renewal so late would only make its successor wait longer.
                self._renewed = None
                raise LeaseLostError(f"the lease could not be renewed for {self._timing.renew_deadline:g} s")
            started = self._clock()
            try:
                async with asyncio.timeout(self._window_left()):
                    if await self._try_acquire(started):
                        return
            except Exception as error:  # noqa: BLE001 - any fault is a failed renewal
                log.warning("Renewing the lease failed", extra={"error": str(error)})
            else:
                self._renewed = None
                raise LeaseLostError("another replica holds the lease")
            await asyncio.sleep(min(self._timing.retry_period / 4, self._window_left()))

    async def _try_acquire(self, started: float) -> bool:
        """Read the Lease and, if allowed, write it. Return True if this replica holds it from `started` on.

        A holder does not read: it overwrites its last write, and the resourceVersion detects a write by another client.
        """
        lease, self._held = self._held, None
        if lease is None:
            lease = await self._leases.read()
        if not self._may_take(None if lease is None else lease.spec):
            return False
        if lease is None:
            lease = Lease(LeaseMeta(self._name, self._namespace), LeaseSpec())
        spec = lease.spec
        if spec.holder_identity != self.identity:
            spec.holder_identity = self.identity
            spec.acquire_time = self._timestamp()
            spec.lease_transitions = min((spec.lease_transitions or 0) + 1, MOST_TRANSITIONS)
        # Rounded up: a replica with a shorter duration waits for what the Lease says.
        spec.lease_duration_seconds = math.ceil(self._timing.duration)
        spec.renew_time = self._timestamp()
        self._held = await self._leases.write(lease)
        self.transitions = spec.lease_transitions or 0
        self._uid = self._held.metadata.uid or ""
        self._renewed = started
        return True

    def _may_take(self, spec: LeaseSpec | None) -> bool:
        """Return whether we may take the Lease: it is ours, released, or unchanged for its whole duration.

        Our own clock measures the duration, never the Lease's timestamps. If the Lease was deleted, or lost its holder
        without a release, its last holder may still lead: its duration must pass too.
        """
        if spec is None:
            if self._seen is None or self.may_write():
                return True
            spec = LeaseSpec()
        if spec.holder_identity == self.identity or (not spec.holder_identity and self.may_write()):
            return True
        record = (spec.holder_identity, spec.renew_time, spec.acquire_time, spec.lease_transitions)
        if record != self._seen:
            self._seen, self._seen_at = record, self._clock()
        if not spec.holder_identity and spec.lease_duration_seconds == RELEASED_DURATION:
            return True
        lasts = max(self._timing.duration, float(spec.lease_duration_seconds or 0))
        self._ends = self._seen_at + lasts
        return self._clock() >= self._seen_at + lasts

    def _timestamp(self) -> str:
        return micro_time_of(self._wall())


class NoLeaderElection:
    """Always leads, without a Lease, for an operator who runs one scheduler only: it has a LeaderElector's methods."""

    def __init__(self, identity: str) -> None:
        """`identity` is the name of this process in the Bindings that it writes."""
        self.identity = identity
        self.transitions = 0
        self.elected = asyncio.Event()
        self.tried = asyncio.Event()

    def may_write(self) -> bool:
        """Return True: nobody else leads."""
        return True

    @property
    def leading(self) -> bool:
        """True from the start on."""
        return self.elected.is_set()

    async def run(self) -> None:
        """Lead until cancelled."""
        self.elected.set()
        self.tried.set()
        log.warning(
            "Leading without an election: another scheduler of the same pods would give GPUs twice",
            extra={"identity": self.identity},
        )
        await asyncio.Event().wait()

    async def release(self) -> None:
        """Do nothing: there is no Lease."""


class LeaseLock:
    """The Lease in the API server; compare-and-set by resourceVersion."""

    def __init__(self, api: ApiClient, *, namespace: str, name: str) -> None:
        """Use the Lease `name` of `namespace`."""
        self._api = api
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{segment(namespace)}/leases"
        self._path = f"{self._collection}/{segment(name)}"
        self._last = b""
        """The Lease's JSON when it was last read or written."""

    async def read(self) -> Lease | None:
        """See LeaseStore; NoResponseError if refused."""
        answer = await self._api.call("GET", self._path)
        if answer.status == NOT_FOUND:
            return None
        return self._decode(answer.status, bytes(answer.body))

    async def write(self, lease: Lease) -> Lease:
        """See LeaseStore; NoResponseError if refused, and for a 409: another client wrote first."""
        body = merge_lease(lease, self._last)
        if lease.metadata.resource_version is None:
            answer = await self._api.call("POST", self._collection, body=body)
        else:
            answer = await self._api.call("PUT", self._path, body=body)
        return self._decode(answer.status, bytes(answer.body))

    def _decode(self, status: int, body: bytes) -> Lease:
        if status == CONFLICT:
            raise NoResponseError("another client wrote the Lease first")
        if not 200 <= status < 300:  # noqa: PLR2004 - the HTTP standard's own numbers
            raise NoResponseError(f"HTTP {status}: {body[:200].decode(errors='replace')}")
        lease = read_lease(body)
        self._last = body
        return lease


class Fence(Protocol):
    """Tells whether this replica may write a placement now."""

    def may_write(self) -> bool:
        """Return whether the caller may write; called right before each write."""
