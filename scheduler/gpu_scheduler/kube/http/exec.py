"""Runs commands in containers: the API server's `exec`, over WebSockets.

aiohttp speaks WebSocket. Its import takes 0.2 s, so only a verb that runs commands imports this module.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import ClientError, ClientSession, ClientWSTimeout, WSMsgType

from gpu_scheduler.kube.http.client import ApiResponse, segment, status_message
from gpu_scheduler.kube.objects.decoding import UNREADABLE
from gpu_scheduler.kube.objects.meta import Status

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from aiohttp import ClientResponse, ClientWebSocketResponse

    from gpu_scheduler.core.refs import PodRef
    from gpu_scheduler.kube.http.client import ApiClient

PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""The first byte of a message is its channel. Without standard input both are the same; old servers have only the
second."""
_OUTPUT, _ERRORS, _STATUS = 1, 2, 3
_SWITCHING_PROTOCOLS: Final = 101
_FORBIDDEN: Final = 403
_MAX_REFUSAL: Final = 2**16
"""Most bytes of a refusal that are read."""
_MAX_ERRORS: Final = 500
"""Most bytes of what a failed command printed that are reported."""
_CLOSING: Final = 1.0
"""Seconds that the server may take to close a connection in order."""


class ExecError(Exception):
    """The command was not run, or failed; the text says why. `forbidden`: the API server answered 403."""

    def __init__(self, why: str, *, forbidden: bool = False) -> None:
        super().__init__(why)
        self.forbidden = forbidden


class ExecStatus(Status, kw_only=True):
    """How a command ended: the last message of its connection."""

    status: str | None = None


_statuses = msgspec.json.Decoder(ExecStatus)


class Executor:
    """Runs commands in containers of one cluster, as `api`'s user. Use it as a context manager."""

    def __init__(self, api: ApiClient) -> None:
        """Open no connection yet."""
        self._api = api
        # The library would drop the API server's message, which says what right is missing.
        self._session = ClientSession(raise_for_status=_refuse)

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        await self._session.close()

    async def run(self, pod: PodRef, container: str, command: Sequence[str], *, seconds: float, most: int) -> bytes:
        """Run `command` without standard input and return what it prints on standard output.

        Raise ExecError if it is not run, fails, takes longer than `seconds`, or prints more than `most` bytes.
        """
        route = self._api.route
        path = f"/api/v1/namespaces/{segment(pod.namespace)}/pods/{segment(pod.name)}/exec"
        words = (("command", word) for word in command)
        try:
            async with (
                asyncio.timeout(seconds),
                self._session.ws_connect(
                    f"{route.host.rstrip('/')}{path}",
                    params=[("container", container), *words, ("stdout", "true"), ("stderr", "true")],
                    protocols=PROTOCOLS,
                    headers=await self._api.identity(),
                    ssl=self._api.tls,
                    server_hostname=route.server_name,
                    proxy=route.proxy,
                    timeout=ClientWSTimeout(ws_close=_CLOSING),
                    max_msg_size=most + 1,
                ) as socket,
            ):
                return await _output_of(socket, most)
        except TimeoutError as error:
            raise ExecError(f"it does not answer within {seconds:g} s") from error
        except (ClientError, OSError) as error:
            raise ExecError(str(error) or type(error).__name__) from error


async def _refuse(response: ClientResponse) -> None:
    """Raise ExecError with the API server's message if it opens no WebSocket."""
    if response.status == _SWITCHING_PROTOCOLS:
        return
    body = await response.content.read(_MAX_REFUSAL)
    response.close()
    message = status_message(ApiResponse(response.status, body))
    raise ExecError(f"HTTP {response.status}: {message}", forbidden=response.status == _FORBIDDEN)


async def _output_of(socket: ClientWebSocketResponse, most: int) -> bytes:
    """Return what the command prints, when its status says that it succeeded."""
    if socket.protocol not in PROTOCOLS:
        raise ExecError(f"the API server speaks none of {', '.join(PROTOCOLS)}")
    printed = {_OUTPUT: bytearray(), _ERRORS: bytearray()}
    async for message in socket:
        if message.type is not WSMsgType.BINARY:
            raise ExecError(f"its output cannot be read: {message.data}")
        channel, data = message.data[:1], message.data[1:]
        if channel == bytes((_STATUS,)) and data:
            _check(data, printed[_OUTPUT] + printed[_ERRORS])
            return bytes(printed[_OUTPUT])
        if channel and channel[0] in printed:
            printed[channel[0]] += data
        if sum(map(len, printed.values())) > most:
            raise ExecError(f"it prints more than {most} bytes")
    raise ExecError("the connection ended before the command")


def _check(data: bytes, printed: bytearray) -> None:
    """Raise ExecError if the status says that the command failed."""
    try:
        status = _statuses.decode(data)
    except UNREADABLE as error:
        raise ExecError(f"its status cannot be read: {error}") from error
    if status.status != "Success":
        reason = printed[:_MAX_ERRORS].decode(errors="replace").strip()
        raise ExecError(": ".join(filter(None, (status.message or status.reason or "it failed", reason))))
