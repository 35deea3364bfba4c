"""Keeps the ResourceSlices of the driver's node as its devices are.

LAW: a change of the pool is one generation more. Nothing is written without a change, and no failure ends the loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.driver.objects import read_slice
from gpu_scheduler.driver.ports import CdiError
from gpu_scheduler.driver.resource_slice import slice_object, specs_of
from gpu_scheduler.kube.http.client import NoResponseError, segment, status_message
from gpu_scheduler.kube.objects.decoding import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.driver.devices import OwnDevice, OwnNode
    from gpu_scheduler.driver.node_state import WatchedNode, WatchedPools
    from gpu_scheduler.driver.ports import Cdi
    from gpu_scheduler.driver.resource_slice import ObservedSlice, Spec
    from gpu_scheduler.kube.http.client import ApiClient, ApiResponse, Method

PATH: Final = "/apis/resource.k8s.io/v1/resourceslices"
RESYNC: Final = 5.0
"""Seconds between two checks without an event. A cordon ends by the clock."""
RETRY: Final = 0.5
"""Seconds between two checks while what is to be published is not known."""
PAUSE_FIRST: Final = 1.0
"""Seconds without a write after a write, so that another writer of the same objects costs little."""
PAUSE_LONGEST: Final = 30.0
"""Most seconds between two tries that fail. They double from PAUSE_FIRST on."""
MOST_BYTES: Final = 2**22
"""Most bytes of an answer to a write."""
_NOT_FOUND: Final = 404

log = logging.getLogger(__name__)


class NotKnownError(Exception):
    """What is to be published is not known yet; the text says what is missing."""


class WriteError(Exception):
    """A ResourceSlice could not be written; the text says why."""


class Publisher:
    """Writes the ResourceSlices of one node until it is cancelled."""

    def __init__(  # noqa: PLR0913 - what it reads and writes, and the clock that tests turn
        self,
        api: ApiClient,
        node: WatchedNode,
        pools: WatchedPools,
        cdi: Cdi,
        *,
        changed: asyncio.Event,
        unlisted: Callable[[], str | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`changed` is set after each event of a watch. `unlisted` says what is not listed yet, or returns None."""
        self._api = api
        self._node = node
        self._pools = pools
        self._cdi = cdi
        self._changed = changed
        self._unlisted = unlisted
        self._clock = clock
        self._heartbeat = clock()
        self._generation = 0
        self._devices: tuple[OwnDevice, ...] | None = None
        """The devices that were last written."""
        self._stored: dict[str, tuple[Spec, Spec | None]] = {}
        """By name: a spec that was sent, and what the API server made of it."""
        self._notes: tuple[str, ...] = ()
        self._publishing = False
        self.problem: str | None = "nothing has been published yet"
        """Why the ResourceSlices may be out of date; None if they are current."""

    @property
    def heartbeat_age(self) -> float:
        """Seconds since the last iteration of the loop began."""
        return self._clock() - self._heartbeat

    @property
    def due(self) -> bool:
        """Whether a change waits to be published, or is being published."""
        return self._publishing or self._changed.is_set()

    async def run(self) -> None:
        """Publish after each change, and once per RESYNC; ends only by cancellation."""
        failures = 0
        while True:
            self._heartbeat = self._clock()
            self._changed.clear()
            self._publishing, wrote = True, False
            try:
                wrote = await self.publish_once()
                failures, problem = 0, None
            except NotKnownError as error:
                failures, problem = 0, str(error)
            except (WriteError, CdiError) as error:
                failures, problem = failures + 1, str(error)
            except Exception:
                log.exception("Publishing failed with an internal error")
                failures, problem = failures + 1, "publishing failed with an internal error"
            self._publishing = failures > 0
            self._note_problem(problem)
            if failures:
                await asyncio.sleep(min(PAUSE_LONGEST, PAUSE_FIRST * 2 ** min(failures - 1, 8)))
            else:
                await asyncio.sleep(PAUSE_FIRST if wrote else 0)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), RETRY if problem else RESYNC)

    async def publish_once(self) -> bool:
        """Write what differs, and return whether anything did. NotKnownError, CdiError or WriteError if that fails."""
        missing = self._unlisted()
        if missing:
            raise NotKnownError(missing)
        node, found = self._node.node, self._node.published()
        if node is None:
            raise NotKnownError("this node does not exist in the cluster: NODE_NAME must be its name")
        if found is None:
            raise NotKnownError(f"annotation {names.DEVICES} of the node, which its monitor writes, cannot be read")
        # Claims that have devices already are prepared beside another driver too.
        self._cdi.declare(found.devices)
        if self._pools.has_driver(names.NVIDIA_DRA_DRIVER):
            self._note((f"driver {names.NVIDIA_DRA_DRIVER} publishes the devices of this node",))
            return await self._write(node, ())
        self._note(found.withheld)
        return await self._write(node, found.devices)

    async def _write(self, node: OwnNode, devices: tuple[OwnDevice, ...]) -> bool:
        """Write the pool if it differs from what the API server has."""
        own = self._pools.own()
        # The API server may have lost all ResourceSlices: the last generation is remembered too.
        latest = max([self._generation, *(each.generation for each in own.values())]) or 1
        wanted = specs_of(node.name, devices, latest)
        if self._devices not in {None, devices} or not all(self._is_as(each, wanted) for each in own.values()):
            latest += 1
            wanted = specs_of(node.name, devices, latest)
        self._generation, self._devices = latest, devices
        differing = [name for name in wanted if name not in own or not self._is_as(own[name], wanted)]
        for name in differing:
            await self._put(slice_object(name, node.name, node.uid, wanted[name]), known=name in own)
        surplus = own.keys() - wanted.keys()
        for name in sorted(surplus):
            await self._delete(own[name])
        if differing or surplus:
            log.info("Published", extra={"generation": latest, "devices": len(devices), "resource_slices": len(wanted)})
        return bool(differing or surplus)

    def _is_as(self, observed: ObservedSlice, wanted: dict[str, Spec]) -> bool:
        """Whether the ResourceSlice is as wanted, or as the API server stores what is wanted."""
        spec = wanted.get(observed.name)
        return spec is not None and observed.spec in (spec, *self._stored_as(observed.name, spec))

    def _stored_as(self, name: str, spec: Spec) -> tuple[Spec | None, ...]:
        sent, stored = self._stored.get(name, (None, None))
        return (stored,) if sent == spec else ()

    async def _put(self, body: dict[str, Any], *, known: bool) -> None:
        """Create or replace one ResourceSlice, and take over what the API server answers."""
        name, sent = body["metadata"]["name"], body["spec"]
        answer = (
            await self._ask("PUT", f"{PATH}/{segment(name)}", body) if known else await self._ask("POST", PATH, body)
        )
        if not answer.ok:
            raise WriteError(f"cannot write ResourceSlice {name}: HTTP {answer.status}: {status_message(answer)}")
        try:
            _, stored = read_slice(bytes(answer.body))
        except UNREADABLE as error:
            raise WriteError(f"cannot read ResourceSlice {name} as the API server answered it: {error}") from error
        self._pools.applied(stored)
        self._stored[name] = (sent, stored.spec)
        if stored.spec != sent:
            # Kubernetes drops taints where its feature DRADeviceTaints is off.
            log.warning("The API server stores less than was sent", extra={"resource_slice": name})

    async def _delete(self, surplus: ObservedSlice) -> None:
        answer = await self._ask("DELETE", f"{PATH}/{segment(surplus.name)}", {"preconditions": {"uid": surplus.uid}})
        if not answer.ok and answer.status != _NOT_FOUND:
            raise WriteError(
                f"cannot delete ResourceSlice {surplus.name}: HTTP {answer.status}: {status_message(answer)}"
            )
        self._pools.forgotten(surplus)

    async def _ask(self, method: Method, path: str, body: dict[str, Any]) -> ApiResponse:
        try:
            return await self._api.call(method, path, body=msgspec.json.encode(body), most=MOST_BYTES)
        except NoResponseError as error:
            raise WriteError(str(error)) from error

    def _note(self, notes: tuple[str, ...]) -> None:
        """Log why devices are not published, when that changes."""
        if notes != self._notes and notes:
            log.warning("Not all devices are published", extra={"why": "; ".join(notes[:8])})
        self._notes = notes

    def _note_problem(self, problem: str | None) -> None:
        """Keep the problem. Log it only when it begins, changes or ends."""
        if problem != self.problem:
            if problem is not None:
                log.warning("The ResourceSlices may be out of date", extra={"error": problem})
            else:
                log.info("The ResourceSlices are current", extra={"generation": self._generation})
        self.problem = problem
