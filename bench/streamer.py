"""Makes pods at a steady rate, whatever becomes of them: a process of its own, so that nobody's work slows it down.

Started with a file of what to make; says `ready`, waits for a line, and ends with one line of JSON.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
import time
from pathlib import Path
from typing import Final

import aiohttp
import msgspec
from yarl import URL

from bench.contenders.orders import Header, Request, headers, wait_for_go

_CREATED: Final = 201
_CONNECTIONS: Final = 256
"""More than ever wait at once while the API server keeps up; beyond that the stream is late, and says so."""


class Pace(msgspec.Struct):
    """The first line of the file: to whom, and how many a second."""

    to: Header
    rate: float


class Arrival(msgspec.Struct):
    """Each other line: what is made, and the `namespace/name` by which it is told."""

    key: str
    request: Request


class Streamed(msgspec.Struct):
    """What came of it; times are those of the monotonic clock, which all processes of a machine share."""

    answered: dict[str, float] = {}
    """When the API server had made it."""
    late: float = 0.0
    """By how many seconds the latest request left behind its time."""
    refused: dict[str, int] = {}
    """Answers that were no success, by HTTP status."""


async def _stream(pace: Pace, arrivals: list[Arrival]) -> Streamed:
    made = Streamed()
    connector = aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=ssl.create_default_context(cafile=pace.to.ca))

    async def send(arrival: Arrival, due: float) -> None:
        made.late = max(made.late, time.monotonic() - due)
        url = URL(pace.to.server + arrival.request.path, encoded=True)
        async with session.post(url, data=arrival.request.body.encode()) as answer:
            await answer.read()
            if answer.status == _CREATED:
                made.answered[arrival.key] = time.monotonic()
            else:
                made.refused[str(answer.status)] = made.refused.get(str(answer.status), 0) + 1

    async with aiohttp.ClientSession(connector=connector, headers=headers(pace.to), trust_env=False) as session:
        await asyncio.to_thread(wait_for_go)
        began = time.monotonic()
        async with asyncio.TaskGroup() as flights:
            for number, arrival in enumerate(arrivals):
                due = began + number / pace.rate
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                flights.create_task(send(arrival, due))
    return made


def main(path: str) -> None:
    """Make what the file holds."""
    first, _, rest = Path(path).read_bytes().partition(b"\n")
    pace, arrivals = msgspec.json.decode(first, type=Pace), msgspec.json.Decoder(Arrival).decode_lines(rest)
    # Not on uvloop: after it a pipe takes 64 KiB of what is written at the end, and the rest is lost without a word.
    made = asyncio.run(_stream(pace, arrivals))
    sys.stdout.write(msgspec.json.encode(made).decode() + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
