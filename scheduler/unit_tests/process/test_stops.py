"""A stop takes five seconds of virtual time at most, although nothing is answered any more."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpu_scheduler.controller.run import ControllerProcess
from gpu_scheduler.kube.http.client import CALL_TIMEOUT, ApiResponse, NoResponseError
from gpu_scheduler.monitor.run import MonitorProcess
from gpu_scheduler.process.lifecycle import Clocks
from gpu_scheduler.scheduler.run import SchedulerProcess
from gpu_scheduler.settings import WebhookSettings
from gpu_scheduler.webhook.run import LAST_REQUESTS
from tests import objects
from unit_tests.controller.test_run import WORKLOAD
from unit_tests.controller.test_run import leading as leading_controller
from unit_tests.controller.test_run import settings as controller_settings
from unit_tests.monitor.test_run import inventory  # noqa: F401 - a fixture
from unit_tests.monitor.test_run import settings as monitor_settings
from unit_tests.programs import stored
from unit_tests.scheduler.test_run import leading as leading_scheduler
from unit_tests.scheduler.test_run import settings as scheduler_settings
from unit_tests.virtual import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from tests.objects import Object

LONGEST = 5.0
FREE = stored(objects.pod("train-0", "0=node1:0", objects.literal("0")), "uid-1")
NODE = objects.node("node1")


class SilentApi:
    """An API server that answers lists and the Lease, until the program sends `last`; then it answers nothing."""

    def __init__(self, last: str, **items: Object) -> None:
        """`items` are the objects that are listed or read, by the last part of the path."""
        self.asked = asyncio.Event()
        """Set when the program has sent `last`."""
        self._last = last
        self._items = items

    def poll_watches(self) -> bool:
        return False

    async def call(self, method: str, path: str, *, body: bytes | None = None, **_: object) -> ApiResponse:
        """See ApiClient. A request that is not answered is given up after its time-out."""
        if self._last in f"{method} {path}":
            self.asked.set()
        if self.asked.is_set():
            await asyncio.sleep(CALL_TIMEOUT)
            raise NoResponseError(f"{method} {path}: no answer")
        if method != "GET":
            return ApiResponse(200, (body or b"{}").replace(b'"metadata":{', b'"metadata":{"resourceVersion":"1",', 1))
        if "/leases/" in path:
            return ApiResponse(404, b"{}")
        name = path.rpartition("/")[2]
        found = self._items.get(name)
        if name != "train":
            found = {"metadata": {"resourceVersion": "1"}, "items": [found] if found else []}
        return ApiResponse(200, json.dumps(found).encode())

    @asynccontextmanager
    async def stream(self, *_: object, **__: object) -> AsyncIterator[tuple[ApiResponse, AsyncIterator[bytes]]]:
        """See ApiClient: a watch without events."""
        yield ApiResponse(200, b""), _nothing()


async def _nothing() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


def seconds_to_stop(
    make: Callable[[Any], Callable[[asyncio.Event], Coroutine[Any, Any, None]]], last: str, **items: Object
) -> float:
    """Stop the program that `make` makes when it has sent `last`. Return the virtual seconds until it ends."""

    async def stopped() -> float:
        api, stop = SilentApi(last, **items), asyncio.Event()
        task = asyncio.create_task(make(api)(stop))
        asked = asyncio.create_task(api.asked.wait())
        await asyncio.wait((task, asked), timeout=60, return_when=asyncio.FIRST_COMPLETED)
        assert api.asked.is_set(), task
        began = asyncio.get_running_loop().time()
        stop.set()
        await task
        return asyncio.get_running_loop().time() - began

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(stopped())


def scheduler(api: Any) -> Callable[[asyncio.Event], Coroutine[Any, Any, None]]:
    """Return what runs a replica, without its HTTP port."""
    clocks = Clocks(elapsed=asyncio.get_running_loop().time)
    return SchedulerProcess(scheduler_settings(), api, clocks=clocks).live


def test_a_scheduler_with_a_bind_in_flight() -> None:
    """It waits for the bind, and for nothing else that is not answered."""
    took = seconds_to_stop(scheduler, "/pods/train-0/binding", pods=FREE, nodes=NODE)

    assert 1 < took <= LONGEST


def test_a_scheduler_that_cannot_release_its_lease() -> None:
    """No write is in flight; the release is not answered."""
    took = seconds_to_stop(scheduler, "PUT", pods=FREE)

    assert took <= LONGEST


@pytest.mark.promise("order-8")
def test_a_controller_with_a_write_in_flight() -> None:
    """It waits for the create of a pod, and for nothing else that is not answered."""
    took = seconds_to_stop(
        lambda api: ControllerProcess(controller_settings(), api).serve,
        "POST /api/v1/namespaces/default/pods",
        gpuworkloads=WORKLOAD,
        train=WORKLOAD,
    )

    assert 1 < took <= LONGEST


@pytest.mark.promise("monitor-5")
def test_a_monitor_that_writes(inventory: Path) -> None:  # noqa: F811 - the fixture
    """It waits for no answer."""
    took = seconds_to_stop(
        lambda api: MonitorProcess(monitor_settings(inventory), api).serve, "PATCH /api/v1/nodes/node1"
    )

    assert took <= LONGEST


LEADERS: dict[str, tuple[Callable[[Any], Any], Any, str]] = {
    "a scheduler and its binds": (leading_scheduler, scheduler_settings, "scheduler"),
    "a controller and its writes": (leading_controller, controller_settings, "loop"),
}
leaders = pytest.mark.parametrize(("leading", "settings", "loop"), LEADERS.values(), ids=LEADERS)


@pytest.mark.promise("order-8")
@leaders
async def test_a_write_in_progress_keeps_the_lease(
    monkeypatch: pytest.MonkeyPatch, leading: Any, settings: Any, loop: str
) -> None:
    """No other replica may lead while a write of ours can still be applied. The Lease is left to expire."""

    async def unfinished(_seconds: float) -> bool:
        return False

    released = []
    async with leading(settings()) as (replica, *_):
        monkeypatch.setattr(getattr(replica, loop), "drain", unfinished)
        monkeypatch.setattr(replica.leadership, "release", lambda: released.append("released"))

    assert released == []


@leaders
async def test_a_hanging_release_does_not_delay_the_stop(
    monkeypatch: pytest.MonkeyPatch, leading: Any, settings: Any, loop: str
) -> None:
    """The Lease then expires by itself."""
    async with leading(settings()) as (replica, *_):
        monkeypatch.setattr(replica.leadership, "release", asyncio.Event().wait)


def test_a_webhook_with_unfinished_requests() -> None:
    """It drains first; then aiohttp waits twice for the requests that are left."""
    assert WebhookSettings(certificate_dir=Path("/")).drain_period + 2 * LAST_REQUESTS < LONGEST
