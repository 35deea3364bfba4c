"""Prepares a claim: which of the node's devices it has, whether they are free, and their CDI names.

LAW: between the check that no other claim has a device and the write of the checkpoint nothing else of this process
runs: there is no await. Calls for one claim wait for each other.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from weakref import WeakValueDictionary

from gpu_scheduler import names
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.text import sentence
from gpu_scheduler.driver.checkpoint import CheckpointError, PreparedClaim, PreparedDevice
from gpu_scheduler.driver.objects import read_claim
from gpu_scheduler.driver.ports import CdiError
from gpu_scheduler.kube.http.client import NoResponseError, segment, status_message
from gpu_scheduler.kube.objects.decoding import UNREADABLE
from gpu_scheduler.kube.timestamps import time_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from gpu_scheduler.driver.checkpoint import Checkpoint
    from gpu_scheduler.driver.devices import PublishedDevices
    from gpu_scheduler.driver.objects import AllocatedDevice
    from gpu_scheduler.driver.ports import Cdi
    from gpu_scheduler.kube.http.client import ApiClient

MOST_BYTES: Final = 2**21
"""Most bytes of a claim that is read."""
CALL_LIMIT: Final = 30.0
"""Seconds after which a call for a claim is given up. The kubelet waits for 45."""


Operation: TypeAlias = Literal["prepare", "unprepare"]
"""What the kubelet asks to do with a claim."""


class PrepareFailure(StrEnum):
    """Why a claim could not be prepared or unprepared."""

    CLAIM = "claim"
    """It could not be read, or it has no device here."""
    DEVICE = "device"
    """It has a device that the node does not have."""
    HELD = "held"
    """Another claim has one of its devices."""
    CDI = "cdi"
    """The container runtime does not know one of its devices."""
    CHECKPOINT = "checkpoint"
    """The checkpoint could not be written."""
    INTERNAL = "internal"
    """An error of the driver's."""


class PrepareError(Exception):
    """A claim could not be prepared or unprepared; the text is the sentence that the kubelet shows on the pod."""

    def __init__(
        self, failure: PrepareFailure, claim: ClaimRef, why: str, remedy: str = "", *, verb: Operation = "prepare"
    ) -> None:
        """`verb` is what could not be done with the claim."""
        super().__init__(sentence(f"cannot {verb} claim {claim}", why, remedy))
        self.failure = failure


@immutable
class ClaimRef:
    """A claim as the kubelet names it."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        """Return NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"


@immutable
class HandedDevice:
    """A prepared device as the kubelet needs it."""

    name: str
    requests: tuple[str, ...]
    cdi: str


def _now() -> str:
    return time_of(datetime.now(UTC))


class Preparer:
    """Prepares and unprepares claims. Both may be repeated at any time."""

    def __init__(  # noqa: PLR0913 - what it reads, and the clock that tests turn
        self,
        api: ApiClient,
        node: str,
        published: Callable[[], PublishedDevices | None],
        cdi: Cdi,
        checkpoint: Checkpoint,
        *,
        wall: Callable[[], str] = _now,
    ) -> None:
        """`published` returns the node's devices, or None while they are not known. `wall` returns the time."""
        self._api = api
        self._node = node
        self._published = published
        self._cdi = cdi
        self._checkpoint = checkpoint
        self._wall = wall
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def prepare(self, claim: ClaimRef) -> tuple[HandedDevice, ...]:
        """Prepare the claim and return its devices. PrepareError if that fails."""
        async with self._alone(claim):
            return self._record(claim, await self._allocated(claim))

    async def unprepare(self, claim: ClaimRef) -> None:
        """Give the claim's devices up. A claim that is not prepared is no failure. PrepareError if that fails."""
        async with self._alone(claim, "unprepare"):
            if self._checkpoint.get(claim.uid) is not None:
                try:
                    self._checkpoint.remove(claim.uid)
                except CheckpointError as error:
                    raise PrepareError(PrepareFailure.CHECKPOINT, claim, str(error), verb="unprepare") from error

    @asynccontextmanager
    async def _alone(self, claim: ClaimRef, verb: Operation = "prepare") -> AsyncIterator[None]:
        """Wait until no other call for the claim runs. PrepareError if this one takes too long."""
        lock = self._locks.setdefault(claim.uid, asyncio.Lock())
        try:
            async with asyncio.timeout(CALL_LIMIT), lock:
                yield
        except TimeoutError as error:
            why = f"it took longer than {CALL_LIMIT:g} s"
            raise PrepareError(PrepareFailure.CLAIM, claim, why, verb=verb) from error

    async def _allocated(self, claim: ClaimRef) -> tuple[AllocatedDevice, ...]:
        """Read the claim, and return its devices of this node."""
        path = f"/apis/resource.k8s.io/v1/namespaces/{segment(claim.namespace)}/resourceclaims/{segment(claim.name)}"
        try:
            answer = await self._api.call("GET", path, most=MOST_BYTES)
            if not answer.ok:
                raise PrepareError(
                    PrepareFailure.CLAIM, claim, f"it cannot be read: HTTP {answer.status}: {status_message(answer)}"
                )
            found = read_claim(answer.body, self._node)
        except (NoResponseError, *UNREADABLE) as error:
            raise PrepareError(PrepareFailure.CLAIM, claim, f"it cannot be read: {error}") from error
        if found.uid != claim.uid:
            raise PrepareError(
                PrepareFailure.CLAIM,
                claim,
                f"its uid is {found.uid} and not {claim.uid}: another claim has its name now",
                "delete the pod",
            )
        if not found.devices:
            raise PrepareError(
                PrepareFailure.CLAIM,
                claim,
                f"it has no allocated device of driver {names.DRA_DRIVER} in pool {self._node}",
            )
        return found.devices

    def _record(self, claim: ClaimRef, allocated: tuple[AllocatedDevice, ...]) -> tuple[HandedDevice, ...]:
        """Check the devices and write the checkpoint; without an await, see the law of this module."""
        handed = tuple(self._handed(claim, device) for device in allocated)
        devices = tuple(PreparedDevice(device.name, device.requests, device.admin) for device in allocated)
        before = self._checkpoint.get(claim.uid)
        if before is None or before.devices != devices:
            since = self._wall() if before is None else before.since
            try:
                self._checkpoint.put(PreparedClaim(claim.uid, claim.namespace, claim.name, since, devices))
            except CheckpointError as error:
                raise PrepareError(PrepareFailure.CHECKPOINT, claim, str(error)) from error
        return handed

    def _handed(self, claim: ClaimRef, device: AllocatedDevice) -> HandedDevice:
        published = self._published()
        if published is None:
            raise PrepareError(PrepareFailure.DEVICE, claim, f"the devices of node {self._node} are not known yet")
        own = published.find(device.name)
        if own is None:
            raise PrepareError(PrepareFailure.DEVICE, claim, f"node {self._node} has no device {device.name}")
        holder = None if device.admin else self._checkpoint.holder_of(device.name, but=claim.uid)
        if holder is not None:
            raise PrepareError(
                PrepareFailure.HELD,
                claim,
                f"claim {holder} has GPU {own.index} ({own.uuid}) of node {self._node} since {holder.since}",
                "delete the pods of one of the two claims",
            )
        try:
            return HandedDevice(device.name, device.requests, self._cdi.name_of(own))
        except CdiError as error:
            raise PrepareError(PrepareFailure.CDI, claim, str(error)) from error
