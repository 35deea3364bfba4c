"""A process that acts as a tenant: it creates pods, then patches some of them, all as fast as the API server answers.

The argument is a file with `Orders`. The process prints `ready`, waits for a line, works until its standard input is
closed, and ends with one line of JSON.
"""

from __future__ import annotations

import asyncio
import http.client
import ssl
import sys
import time
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import msgspec
from yarl import URL

from bench.contenders.prepared_requests import Header, Request, headers, wait_for_go

if TYPE_CHECKING:
    from collections.abc import Iterator


class Orders(msgspec.Struct):
    """The content of the input file."""

    to: Header
    creations: list[Request]
    patches: list[Request] = []
    """They are sent again and again after the last creation, as merge patches."""


class Answers(msgspec.Struct):
    """The result."""

    created: int = 0
    patched: int = 0
    seconds: float = 0.0
    """From the first request to the last answer."""
    refused: dict[str, int] = {}
    """Answers without success, by method and HTTP status."""


class _Tenant:
    """A running tenant."""

    def __init__(self, orders: Orders, session: aiohttp.ClientSession) -> None:
        self._orders = orders
        self._session = session
        self._over = asyncio.Event()
        self.answers = Answers()

    async def work(self) -> None:
        """Send all until standard input is closed."""
        began = time.monotonic()
        ending = asyncio.create_task(self._ended())
        orders, answers = self._orders, self.answers
        answers.created = await self._sent("POST", "application/json", iter(orders.creations))
        if orders.patches:
            answers.patched = await self._sent("PATCH", "application/merge-patch+json", cycle(orders.patches))
        answers.seconds = time.monotonic() - began
        await ending

    async def _ended(self) -> None:
        await asyncio.to_thread(sys.stdin.read)
        self._over.set()

    async def _sent(self, method: str, content_type: str, requests: Iterator[Request]) -> int:
        """Send the requests, as many at a time as are in flight; return how many succeeded."""
        workers = [self._send(method, content_type, requests) for _ in range(self._orders.to.in_flight)]
        return sum(await asyncio.gather(*workers))

    async def _send(self, method: str, content_type: str, requests: Iterator[Request]) -> int:
        succeeded = 0
        for request in requests:
            if self._over.is_set():
                break
            url, given = URL(self._orders.to.server + request.path, encoded=True), {"Content-Type": content_type}
            async with self._session.request(method, url, data=request.body.encode(), headers=given) as answer:
                await answer.read()
            if answer.status in {http.client.OK, http.client.CREATED}:
                succeeded += 1
            else:
                refusal = f"{method} {answer.status}"
                self.answers.refused[refusal] = self.answers.refused.get(refusal, 0) + 1
        return succeeded


async def _worked(orders: Orders) -> Answers:
    connector = aiohttp.TCPConnector(limit=orders.to.in_flight, ssl=ssl.create_default_context(cafile=orders.to.ca))
    async with aiohttp.ClientSession(connector=connector, headers=headers(orders.to), trust_env=False) as session:
        tenant = _Tenant(orders, session)
        await asyncio.to_thread(wait_for_go)
        await tenant.work()
    return tenant.answers


def main(path: str) -> None:
    """Send what the file orders, and print the result."""
    orders = msgspec.json.decode(Path(path).read_bytes(), type=Orders)
    sys.stdout.write(msgspec.json.encode(asyncio.run(_worked(orders))).decode() + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
