"""A process that creates pods at a steady rate, so that no other work slows it down.

With `lives` it also deletes each pod after that time, so that pods are deleted at the rate of their creation. Requests
that follow a creation are sent as soon as the one before is answered. The argument is a file: a `Pace`, then
`Arrival`s. It prints `ready`, waits for a line, and ends with one line of JSON.
"""

from __future__ import annotations

import asyncio
import http.client
import ssl
import sys
import time
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
from yarl import URL

from bench.contenders.prepared_requests import Header, Request, headers, wait_for_go
from bench.pacing import paced

_CONNECTIONS: Final = 256
"""More connections than are busy while the API server keeps up; with more busy ones the stream is late, and reports
it."""


class Pace(msgspec.Struct):
    """The first line of the file: server, pods a second, and seconds from creation to deletion (None: never)."""

    to: Header
    rate: float
    lives: float | None = None


class Arrival(msgspec.Struct):
    """Each other line: the request that creates a pod, and the pod's `namespace/name`."""

    key: str
    request: Request
    then: tuple[Request, ...] = ()
    """Requests that follow, one after the other."""


class Streamed(msgspec.Struct):
    """The result; times are of the monotonic clock, which all processes of a machine share."""

    answered: dict[str, float] = {}
    """When the API server answered the creation of a pod."""
    took: list[float] = []
    """For each created pod, the seconds from the request to the answer."""
    left: dict[str, Any] = {}
    """The deleted pods by name, as they were at their deletion; only the node and our own annotations."""
    late: float = 0.0
    """The seconds within which 19 of 20 requests were sent late."""
    refused: dict[str, int] = {}
    """Answers without success, by HTTP status."""
    cpu: float = 0.0
    """CPU of the process itself, user and system, in seconds."""


class _Annotations(msgspec.Struct, omit_defaults=True):
    """The annotations that a Binding writes; other annotations are as long as a map."""

    node: str | None = msgspec.field(name="agentaflow.gpu/assigned-node", default=None)
    devices: str | None = msgspec.field(name="agentaflow.gpu/assigned-devices", default=None)


class _Meta(msgspec.Struct):
    annotations: _Annotations = msgspec.field(default_factory=_Annotations)


class _Spec(msgspec.Struct, omit_defaults=True):
    node: str | None = msgspec.field(name="nodeName", default=None)


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


_pods = msgspec.json.Decoder(_Pod)


class _Stream:
    """A running stream."""

    def __init__(self, pace: Pace, session: aiohttp.ClientSession) -> None:
        self._pace = pace
        self._session = session
        self.made = Streamed()

    async def live(self, arrival: Arrival) -> None:
        """Create a pod, send what follows, and delete the pod when its time is over."""
        sent = time.monotonic()
        if not await self._created(arrival.request):
            return
        self.made.answered[arrival.key] = answered = time.monotonic()
        self.made.took.append(answered - sent)
        for request in arrival.then:
            if not await self._created(request):
                return
        if self._pace.lives is None:
            return
        await asyncio.sleep(self._pace.lives)
        url, name = self._url(arrival.request), arrival.key.rpartition("/")[2]
        async with self._session.delete(url / name % {"gracePeriodSeconds": 0}) as answer:
            body = await answer.read()
            if answer.status == http.client.OK:
                self.made.left[name] = msgspec.to_builtins(_pods.decode(body))
            else:
                self._refused(answer.status)

    async def _created(self, request: Request) -> bool:
        """Send a POST; return whether something was created."""
        async with self._session.post(self._url(request), data=request.body.encode()) as answer:
            await answer.read()
            if answer.status != http.client.CREATED:
                self._refused(answer.status)
            return answer.status == http.client.CREATED

    def _url(self, request: Request) -> URL:
        return URL(self._pace.to.server + request.path, encoded=True)

    def _refused(self, status: int) -> None:
        self.made.refused[str(status)] = self.made.refused.get(str(status), 0) + 1


async def _streamed(pace: Pace, arrivals: list[Arrival]) -> Streamed:
    connector = aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=ssl.create_default_context(cafile=pace.to.ca))
    async with aiohttp.ClientSession(connector=connector, headers=headers(pace.to), trust_env=False) as session:
        stream = _Stream(pace, session)
        await asyncio.to_thread(wait_for_go)
        began = time.process_time()
        stream.made.late = await paced(pace.rate, arrivals, stream.live)
        stream.made.cpu = time.process_time() - began
    return stream.made


def main(path: str) -> None:
    """Create the pods of the file, and print the result."""
    first, _, rest = Path(path).read_bytes().partition(b"\n")
    pace, arrivals = msgspec.json.decode(first, type=Pace), msgspec.json.Decoder(Arrival).decode_lines(rest)
    # Not on uvloop: after it, a pipe takes only 64 KiB of the output at the end, and the rest is lost without an error.
    made = asyncio.run(_streamed(pace, arrivals))
    sys.stdout.write(msgspec.json.encode(made).decode() + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
