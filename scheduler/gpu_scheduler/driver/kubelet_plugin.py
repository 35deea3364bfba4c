"""The driver as the kubelet sees it: two gRPC services, each on a Unix socket below the kubelet's directory.

The kubelet finds the registration socket, asks who serves there, and reports whether it accepts the driver. It then
calls the other socket for each claim of a pod.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Final, Self

import grpc
import grpc.aio

from gpu_scheduler import names
from gpu_scheduler.core.text import sentence
from gpu_scheduler.driver import kubelet_api as api
from gpu_scheduler.driver.preparing import ClaimRef, PrepareError, PrepareFailure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from gpu_scheduler.driver.preparing import Operation, Preparer

GRACE: Final = 5.0
"""Seconds that calls in flight have when the driver ends."""
_CLOSE: Final = 10.0
"""Seconds after which a server that does not end is given up."""
_OPTIONS: Final = (
    # Two processes must never serve one socket.
    ("grpc.so_reuseport", 0),
    # A call names the claims of one pod.
    ("grpc.max_receive_message_length", 2**18),
)
_MOST_CALLS: Final = 64
"""Most calls at once. The kubelet repeats those that are refused."""

log = logging.getLogger(__name__)


class SocketError(Exception):
    """A socket of the kubelet's directory cannot be used; the text says which and why."""


class KubeletPlugin:
    """Both services; `async with` opens and closes them."""

    def __init__(
        self,
        kubelet_dir: Path,
        node: str,
        preparer: Preparer,
        answered: Callable[[Operation, PrepareFailure | None], None],
    ) -> None:
        """`node` is the name of the pool. `answered` is called for each claim, with why it failed if it did."""
        self.socket = plugin_dir(kubelet_dir) / "dra.sock"
        self._registration_socket = kubelet_dir / "plugins_registry" / f"{names.DRA_DRIVER}-reg.sock"
        self._node = node
        self._preparer = preparer
        self._answered = answered
        self._opened = AsyncExitStack()
        self.problem: str | None = "the kubelet has not registered the driver yet"
        """Why the kubelet does not call the driver; None if it has registered the driver."""

    async def __aenter__(self) -> Self:
        """Serve; raise SocketError if a socket cannot be opened. The kubelet looks for the second one."""
        prepare = _handler(self._prepare_all, api.PrepareRequest, api.PrepareResponse)
        unprepare = _handler(self._unprepare_all, api.UnprepareRequest, api.UnprepareResponse)
        info = _handler(self._info, api.InfoRequest, api.PluginInfo)
        notify = _handler(self._notified, api.RegistrationStatus, api.RegistrationStatusResponse)
        async with AsyncExitStack() as opened:
            handlers = {"NodePrepareResources": prepare, "NodeUnprepareResources": unprepare}
            await _serve(opened, self.socket, api.PLUGIN, handlers)
            handlers = {"GetInfo": info, "NotifyRegistrationStatus": notify}
            await _serve(opened, self._registration_socket, api.REGISTRATION, handlers)
            self._opened = opened.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Remove the registration socket first, so that the kubelet sends no new call; then finish those in flight."""
        await self._opened.aclose()

    async def _info(self, _: Any) -> Any:
        return api.PluginInfo(
            type=api.PLUGIN_TYPE,
            name=names.DRA_DRIVER,
            endpoint=str(self.socket),
            supported_versions=[api.PLUGIN_VERSION],
        )

    async def _notified(self, status: Any) -> Any:
        if status.plugin_registered:
            self.problem = None
            log.info("The kubelet has registered the driver")
        else:
            self.problem = sentence("the kubelet does not register the driver", status.error, "")
            log.warning("The kubelet does not register the driver", extra={"error": self.problem})
        return api.RegistrationStatusResponse()

    async def _prepare_all(self, request: Any) -> Any:
        response = api.PrepareResponse()

        async def prepare(claim: ClaimRef) -> None:
            for device in await self._preparer.prepare(claim):
                response.claims[claim.uid].devices.add(
                    request_names=device.requests,
                    pool_name=self._node,
                    device_name=device.name,
                    cdi_device_ids=[device.cdi],
                )
            log.info("Prepared", extra={"claim": str(claim), "uid": claim.uid})

        return await self._for_each("prepare", request, response, prepare)

    async def _unprepare_all(self, request: Any) -> Any:
        response = api.UnprepareResponse()

        async def unprepare(claim: ClaimRef) -> None:
            await self._preparer.unprepare(claim)
            # An entry without an error: the kubelet expects one for each claim.
            response.claims[claim.uid].SetInParent()
            log.info("Unprepared", extra={"claim": str(claim), "uid": claim.uid})

        return await self._for_each("unprepare", request, response, unprepare)

    async def _for_each(
        self, operation: Operation, request: Any, response: Any, act: Callable[[ClaimRef], Awaitable[None]]
    ) -> Any:
        """Act on every claim of the request, all at once. Each failure is an error of its claim alone."""

        async def attempt(claim: ClaimRef) -> None:
            failure: PrepareFailure | None = None
            try:
                await act(claim)
            except PrepareError as error:
                failure = error.failure
                response.claims[claim.uid].error = str(error)
                log.warning("A claim failed", extra={"claim": str(claim), "error": str(error)})
            except Exception:
                failure = PrepareFailure.INTERNAL
                response.claims[claim.uid].error = f"cannot serve claim {claim}: internal error; see the driver's log"
                log.exception("A claim failed with an internal error", extra={"claim": str(claim)})
            self._answered(operation, failure)

        claims = {each.uid: ClaimRef(each.namespace, each.name, each.uid) for each in request.claims}
        await asyncio.gather(*(attempt(claim) for claim in claims.values()))
        return response


def plugin_dir(kubelet_dir: Path) -> Path:
    """Return the driver's own directory below the kubelet's."""
    return kubelet_dir / "plugins" / names.DRA_DRIVER


async def _serve(opened: AsyncExitStack, socket: Path, service: str, handlers: Mapping[str, Any]) -> None:
    """Serve on the socket until `opened` is closed."""
    server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=_MOST_CALLS)
    opened.push_async_callback(_close, server, socket)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    _bind(server, socket)
    await server.start()


def _bind(server: grpc.aio.Server, socket: Path) -> None:
    try:
        # A process that was killed leaves its socket.
        socket.unlink(missing_ok=True)
        server.add_insecure_port(f"unix:{socket}")
    except (OSError, RuntimeError) as error:
        raise SocketError(
            f"cannot open socket {socket}: {error}; its directory must be the kubelet's, and its path must have "
            "at most 107 characters (example: KUBELET_DIR=/var/lib/kubelet)"
        ) from error


async def _close(server: grpc.aio.Server, socket: Path) -> None:
    """Remove the socket, so that no new call comes. Wait for the calls in flight."""
    _remove(socket)
    try:
        async with asyncio.timeout(_CLOSE):
            await server.stop(GRACE)
    except TimeoutError:
        log.warning("A server did not end", extra={"socket": str(socket)})
    _remove(socket)


def _remove(socket: Path) -> None:
    with suppress(OSError):
        socket.unlink()


def _handler(act: Callable[[Any], Awaitable[Any]], request: Any, response: Any) -> Any:
    """Return gRPC's handler of a method with one request and one response."""

    async def handle(asked: Any, _: Any) -> Any:
        return await act(asked)

    return grpc.unary_unary_rpc_method_handler(
        handle, request_deserializer=request.FromString, response_serializer=response.SerializeToString
    )
