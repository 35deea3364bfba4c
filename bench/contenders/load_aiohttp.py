"""Load generator on aiohttp and uvloop, the usual client of Python programs.

Usage: python -m bench.contenders.load_aiohttp ORDERS
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import aiohttp
import uvloop
from yarl import URL

from bench.contenders import prepared_requests

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_KEPT: Final = 3600.0
"""Seconds that an idle connection is kept: longer than any wait for `go`."""


class _Post(NamedTuple):
    url: URL
    body: bytes


class _Pod(NamedTuple):
    bind: _Post
    event: _Post | None


def _pods(header: prepared_requests.Header, given: Iterable[prepared_requests.PreparedPod]) -> Iterator[_Pod]:
    for order in given:
        yield _Pod(_post(header, order.bind), None if order.event is None else _post(header, order.event))


def _post(header: prepared_requests.Header, request: prepared_requests.Request) -> _Post:
    return _Post(URL(header.server + request.path, encoded=True), request.body.encode())


async def _check_server(session: aiohttp.ClientSession, header: prepared_requests.Header) -> None:
    async with session.get(URL(header.server + prepared_requests.VERSION_PATH, encoded=True)) as answer:
        await answer.read()
        prepared_requests.check(header, answer.status)


async def _send(session: aiohttp.ClientSession, post: _Post) -> int:
    async with session.post(post.url, data=post.body) as answer:
        await answer.read()
        return answer.status


async def _work(session: aiohttp.ClientSession, pods: Iterator[_Pod], count: prepared_requests.Count) -> None:
    """Send one pod's requests after the other, beside the other workers."""
    for bind, event in pods:
        if count.bind(await _send(session, bind)) and event is not None:
            count.event(await _send(session, event))


async def _send_all(header: prepared_requests.Header, pods: Iterable[_Pod]) -> None:
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=header.in_flight, keepalive_timeout=_KEPT, ssl=ssl.create_default_context(cafile=header.ca)
        ),
        headers=prepared_requests.headers(header),
        skip_auto_headers=["Accept-Encoding"],
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None),
        trust_env=False,
    )
    async with session:
        await asyncio.gather(*(_check_server(session, header) for _ in range(header.in_flight)))
        # In a thread: so the loop still notices when the server closes a connection.
        await asyncio.to_thread(prepared_requests.wait_for_go)
        count = prepared_requests.Count()
        rest = iter(pods)
        await asyncio.gather(*(_work(session, rest, count) for _ in range(header.in_flight)))
        count.report(header)


def main(path: str) -> None:
    """Send the requests of this file and print the report; ConnectionError when a connection breaks."""
    header, given = prepared_requests.read(Path(path))
    try:
        uvloop.run(_send_all(header, list(_pods(header, given))))
    except aiohttp.ClientError as error:
        raise prepared_requests.broken(header.server, error) from error


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except (OSError, EOFError, ValueError) as error:
        sys.exit(str(error))
