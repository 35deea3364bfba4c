"""A stand-in for a kubelet: it answers the API server's `exec` with the environments that a test gave it."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Final

from aiohttp import web

from tests.ports import free_port

if TYPE_CHECKING:
    import ssl

    from tests.objects import Object

PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
SUCCESS: Final[Object] = {"metadata": {}, "status": "Success"}
NO_CAT: Final[Object] = {
    "status": "Failure",
    "reason": "InternalError",
    "message": "Internal error occurred: error executing command in container: failed to exec in container: failed to "
    'start exec "6f1d": OCI runtime exec failed: exec failed: unable to start container process: exec: "cat": '
    "executable file not found in $PATH",
}
"""What containerd's kubelet says of a container without this program."""


class Kubelet:
    """Serves `exec` on a port of 127.0.0.1, for each container as it is in `answers`."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        """Start to listen."""
        self.port = free_port()
        self.answers: dict[tuple[str, str], bytes | Object] = {}
        """By pod and container: the output of a command that succeeds, or the status of one that fails."""
        self.asked: list[tuple[str, str, list[str]]] = []
        """Pod, container and command of each request."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._runner = asyncio.run_coroutine_threadsafe(self._serve(tls), self._loop).result()

    @property
    def node_status(self) -> Object:
        """The status of a node whose kubelet this is; from it the API server knows where to call."""
        return {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
            # To others the API server speaks SPDY.
            "declaredFeatures": ["ExtendWebSocketsToKubelet"],
        }

    def close(self) -> None:
        """Stop the server."""
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _serve(self, tls: ssl.SSLContext) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/exec/{namespace}/{pod}/{container}", self._exec)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port, ssl_context=tls).start()
        return runner

    async def _exec(self, request: web.Request) -> web.WebSocketResponse:
        pod, container = request.match_info["pod"], request.match_info["container"]
        self.asked.append((pod, container, request.query.getall("command")))
        answer = self.answers[pod, container]
        socket = web.WebSocketResponse(protocols=PROTOCOLS)
        await socket.prepare(request)
        if isinstance(answer, bytes):
            await socket.send_bytes(b"\x01" + answer)
            answer = SUCCESS
        await socket.send_bytes(b"\x03" + json.dumps(answer).encode())
        await socket.close()
        return socket
