"""One replica's connection to the API server in memory: it has latency, and FaultState decides which requests fail."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from gpu_scheduler.kube.http.client import (
    CALL_TIMEOUT,
    JSON,
    ApiClient,
    ApiResponse,
    Method,
    NoResponseError,
    NotSentError,
)
from gpu_scheduler.kube.http.pool import UNACKNOWLEDGED
from simulator.api_server.server import ApiRequest, refusal
from simulator.api_server.store import ExpiredVersionError, Selector
from simulator.api_server.watch_channel import Channel

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable, Mapping

    from simulator.api_server.server import Server
    from simulator.clock import Host, Timeline
    from simulator.faults import Act, FaultState

_SUBRESOURCES: Final = {"binding": "bind", "status": "status", "events": "event"}


def kind_of(verb: str, path: str, query: Mapping[str, str]) -> str:
    """Give the kind of a request, by which faults choose it."""
    end = path.rpartition("/")[2]
    if "/resourceclaims" in path and verb != "GET":
        return "claim"
    if end in _SUBRESOURCES:
        return _SUBRESOURCES[end]
    if "gpu-scheduler-system/leases" in path:
        return "lease"
    if verb == "GET" and ("/pods/" in path or "/resourceclaims/" in path):
        return "get"
    return "page" if "continue" in query else "list"


class Wire(ApiClient):
    """The API client of one simulated replica."""

    def __init__(self, name: str, timeline: Timeline, host: Host, server: Server, faults: FaultState) -> None:
        """`name` is the replica's; some faults concern one replica."""
        self.name = name
        self._timeline = timeline
        self._process = host
        self._server = server
        self._faults = faults
        self._sent = 0
        self.channels: list[Channel] = []
        """The watches that are open, in the order in which they were opened."""
        self.process_ended = False
        """Whether the process has ended: nothing is sent any more."""

    def poll_watches(self) -> bool:
        """Return False, see ApiClient: no watch pauses between reads here."""
        return False

    async def call(  # noqa: PLR0913 - the parts of an HTTP request
        self,
        method: Method,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,  # noqa: ARG002 - one kind of patch for each path
        timeout: float = CALL_TIMEOUT,  # noqa: ASYNC109 - as its base has it
        guard: Callable[[], bool] | None = None,
        most: int = 0,  # noqa: ARG002 - no object here is large
    ) -> ApiResponse:
        """Send one request, see ApiClient."""
        if guard is not None:
            await self._allowed(guard)
        request = ApiRequest(self.name, method, path, dict(query or {}), body)
        act = self._faults.act(self.name, kind_of(method, path, request.query))
        reply: asyncio.Future[ApiResponse] = self._process.create_future()
        self._send(request, act, reply)
        if act.answered and not act.dropped and act.slow + act.late < timeout:
            return await reply
        giving_up = self._process.call_later(timeout, _fail, reply, f"{method} {path}: timeout")
        try:
            return await reply
        finally:
            giving_up.cancel()

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str],
        limit: float,
        idle_limit: float,
        pause: float = 0.0,  # noqa: ARG002 - packets take their while here anyhow
    ) -> AsyncIterator[tuple[ApiResponse, AsyncIterator[bytes]]]:
        """Open one watch, see ApiClient."""
        act = self._faults.act(self.name, "watch")
        reply: asyncio.Future[ApiResponse] = self._process.create_future()
        collection = self._server.collection(path)
        selector = Selector(query.get("fieldSelector", ""))
        channel = Channel(self._timeline, self._process, self.pause_of, collection, selector)

        def open_it() -> None:
            if act.status is not None:
                answer = refusal(act.status, "injected")
            else:
                try:
                    channel.open(int(query["resourceVersion"] or 0), float(query["timeoutSeconds"]))
                    answer = ApiResponse(200, b"")
                except ExpiredVersionError:
                    answer = refusal(410, "too old resource version")
            self._timeline.after(self.pause_of(), lambda: _give(reply, answer))

        if self.process_ended or act.cut:
            _fail(reply, f"watch {path}: refused")
        elif act.dropped:
            self._repeat(open_it, reply)
        elif act.delivered or act.status is not None:
            self._timeline.after(self.pause_of(), open_it)
        giving_up = self._process.call_later(CALL_TIMEOUT, _fail, reply, f"watch {path}: timeout")
        self.channels.append(channel)
        try:
            answer = await reply
            giving_up.cancel()
            yield answer, channel.chunks(limit, idle_limit)
        finally:
            giving_up.cancel()
            channel.close()
            self.channels.remove(channel)

    async def _allowed(self, guard: Callable[[], bool]) -> None:
        """Ask the guard once the connection is open, after a latency."""
        opened: asyncio.Future[None] = self._process.create_future()
        self._timeline.after(self.pause_of(), lambda: _go_on(opened))
        await opened
        if not guard():
            raise NotSentError("it was not sent")

    def pause_of(self) -> float:
        """Give the latency of the next packet: it varies, and is the same in each run."""
        self._sent += 1
        return 0.0005 + (self._sent * 2654435761 % 65536) / 65536 * 0.008

    def _repeat(self, send: Callable[[], None], reply: asyncio.Future[ApiResponse]) -> None:
        """Resend as the kernel does with packets that are not acknowledged."""
        sent = self._timeline.now

        def again() -> None:
            if self._timeline.now < sent + UNACKNOWLEDGED:
                self._timeline.after(self.pause_of(), send)

        self._faults.cut_off[self.name].append(again)
        self._timeline.after(UNACKNOWLEDGED, lambda: _fail(reply, "nobody acknowledged it"))

    def _send(self, request: ApiRequest, act: Act, reply: asyncio.Future[ApiResponse]) -> None:
        def deliver() -> None:
            answer = self._server.answer(request)
            if act.answered:
                response = answer if act.status is None else refusal(act.status, "injected")
                self._timeline.after(self.pause_of() + act.slow, lambda: _give(reply, response))
            elif act.cut:
                self._timeline.after(self.pause_of(), lambda: _fail(reply, f"{request.verb} {request.path}: cut"))

        if self.process_ended:
            _fail(reply, "the process has ended")
        elif act.dropped:
            self._repeat(deliver, reply)
        elif act.delivered:
            self._timeline.after(self.pause_of() + act.late, deliver)
        elif act.status is not None:
            response = ApiResponse(act.status, refusal(act.status, "injected").body, act.retry_after)
            self._timeline.after(self.pause_of(), lambda: _give(reply, response))
        elif act.cut:
            self._timeline.after(self.pause_of(), lambda: _fail(reply, f"{request.verb} {request.path}: refused"))


def _go_on(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _give(reply: asyncio.Future[ApiResponse], answer: ApiResponse) -> None:
    if not reply.done():
        reply.set_result(answer)


def _fail(reply: asyncio.Future[ApiResponse], why: str) -> None:
    if not reply.done():
        reply.set_exception(NoResponseError(why))
