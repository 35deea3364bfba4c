"""Records the requests that our scheduler would write, for the contenders that measure the limit.

The real loop, binder and event recorder run against a fake API server that keeps each write and answers with success.
So the limit sends exactly the bytes that our scheduler sends.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import msgspec

from bench.contenders.prepared_requests import PreparedPod, Request
from gpu_scheduler import names
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.kube.http.client import ApiClient, ApiResponse
from gpu_scheduler.kube.leader_election import Fence
from gpu_scheduler.kube.objects.nodes import read_node
from gpu_scheduler.kube.objects.pods import read_pod
from gpu_scheduler.process.metrics import new_registry
from gpu_scheduler.scheduler.binder import ApiBinder, ApiVolumeBinder
from gpu_scheduler.scheduler.claim_allocator import ApiClaimAllocator, DeviceClasses
from gpu_scheduler.scheduler.event_recorder import ApiEventRecorder
from gpu_scheduler.scheduler.metrics import SchedulerMetrics
from gpu_scheduler.scheduler.ports import Ports
from gpu_scheduler.scheduler.scheduling_loop import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_IDENTITY: Final = "benchmark_0"
_TIMEOUT: Final = 300.0


class _Regarding(msgspec.Struct):
    name: str


class _Event(msgspec.Struct):
    regarding: _Regarding


class _RecordingClient(ApiClient):
    """Keeps each write."""

    def __init__(self) -> None:
        self.binds: dict[str, Request] = {}
        self.events: dict[str, Request] = {}

    async def call(  # noqa: PLR0913 - as in its base class
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "",
        timeout: float = 0.0,  # noqa: ASYNC109 - as in its base class
        guard: Callable[[], bool] | None = None,
        most: int = 0,
    ) -> ApiResponse:
        """Keep the request, and answer 201."""
        del query, content_type, timeout, guard, most
        if method != "POST" or body is None:
            raise ValueError(f"cannot keep {method} {path}: a pod that can be placed at once needs two POSTs")
        text = body.decode()
        if path.endswith("/binding"):
            self.binds[path.split("/")[-2]] = Request(path, text)
        else:
            self.events[_pod_of(text)] = Request(path, text)
        return ApiResponse(201, b"{}")


class _AlwaysMayWrite(Fence):
    def may_write(self) -> bool:
        return True


def workloads(nodes: Iterable[bytes], pods: Iterable[bytes], *, events: bool) -> list[PreparedPod]:
    """Decide on these pods, given as JSON, and return the requests for each, with `events` or binds alone."""
    return asyncio.run(_decided(nodes, list(pods), events=events))


def scheduler_of(api: ApiClient) -> tuple[Scheduler, ApiEventRecorder]:
    """Return our scheduling loop, which may always bind, and its event recorder."""
    event_recorder = ApiEventRecorder(api, controller=names.SCHEDULER_NAME, instance=_IDENTITY)
    metrics = SchedulerMetrics(new_registry("0", ""), names.SCHEDULER_NAME, time.time)
    ports = Ports(
        ApiBinder(api, _AlwaysMayWrite(), _IDENTITY),
        ApiVolumeBinder(api, _AlwaysMayWrite()),
        ApiClaimAllocator(api, _AlwaysMayWrite(), DeviceClasses()),
        event_recorder,
        metrics,
        metrics,
        metrics,
    )
    return Scheduler(Policy(), ports), event_recorder


async def _decided(nodes: Iterable[bytes], pods: list[bytes], *, events: bool) -> list[PreparedPod]:
    api = _RecordingClient()
    scheduler, event_recorder = scheduler_of(api)
    for raw in nodes:
        scheduler.cache.nodes.applied(read_node(raw)[1])
    for raw in pods:
        scheduler.pods.applied(read_pod(raw)[1])
    tasks = [asyncio.create_task(part) for part in (scheduler.run(), event_recorder.run())]
    try:
        async with asyncio.timeout(_TIMEOUT):
            while len(api.events) < len(pods):  # noqa: ASYNC110 - the loop has no event for its end
                await asyncio.sleep(0.05)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [PreparedPod(bind, api.events[name] if events else None) for name, bind in api.binds.items()]


def _pod_of(event: str) -> str:
    """Return the name of an event's pod; names are unique in a benchmark."""
    return msgspec.json.decode(event, type=_Event).regarding.name
