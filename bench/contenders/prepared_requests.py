"""The orders that a load generator sends, the report that it gives back, and what the load generators in Python share.

An orders file is JSON Lines: the first line says to whom and how many at once, each other line is one pod's order. A
place is one of the requests in flight. When a bind is answered its place is free, the pod's event is ready, and ready
events go before new binds: so the place that brought the bind takes the event along, and no place ever waits.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

HELLO: Final = "/version"
"""Asked once over each connection before the start, so that no handshake is measured."""
READY: Final = "ready"
"""What a load generator says when all is prepared."""
GO: Final = "go"
"""What it then waits for."""
_OK: Final = range(200, 300)


class Header(msgspec.Struct, frozen=True):
    """To whom the orders go: `server` as `https://host:port`, `ca` as a file, and how many requests are in flight.

    `welcome` is the only answer to the greeting with which a load generator begins.
    """

    server: str
    ca: str
    token: str
    in_flight: Annotated[int, msgspec.Meta(ge=1)]
    welcome: int = 200


class Request(msgspec.Struct, frozen=True):
    """One POST; the body is JSON text."""

    path: str
    body: str


class PreparedPod(msgspec.Struct, frozen=True):
    """One pod's bind, and the event that follows when the bind was answered with success."""

    bind: Request
    event: Request | None


class LoadReport(msgspec.Struct, frozen=True):
    """What a load generator measured of itself; times are in seconds from the word `go`."""

    sent: int
    """Requests that were answered."""
    seconds: float
    """To the last answer."""
    to_last_bind: float
    """To the last bind's answer; 0 where there was none."""
    cpu: float
    """CPU of the generator itself, user and system."""
    statuses: dict[str, int]
    """Answers by HTTP status."""
    in_flight: int


def write(path: Path, header: Header, orders: Iterable[PreparedPod]) -> None:
    """Write an orders file."""
    path.write_bytes(msgspec.json.Encoder().encode_lines([header, *orders]))


def read(path: Path) -> tuple[Header, list[PreparedPod]]:
    """Read one; ValueError when it is not such a file."""
    first, _, rest = path.read_bytes().partition(b"\n")
    try:
        return msgspec.json.decode(first, type=Header), msgspec.json.Decoder(PreparedPod).decode_lines(rest)
    except msgspec.MsgspecError as error:
        raise ValueError(f"cannot read {path} as orders: {error}") from error


def headers(header: Header) -> dict[str, str]:
    """Give the lines that every request carries, whichever client sends it."""
    return {
        "Accept": "application/json",
        "Authorization": f"Bearer {header.token}",
        "Content-Type": "application/json",
        "User-Agent": "load-generator",
    }


def wait_for_go() -> None:
    """Say that all is prepared; EOFError when nobody will give the word."""
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    line = sys.stdin.readline()
    if line != f"{GO}\n":
        raise EOFError(f"cannot begin on {line!r}: the load generator waits for one line (example: {GO})")


def check(header: Header, status: int) -> None:
    """Look at the answer to the greeting; ConnectionError when a load generator must not begin."""
    if status != header.welcome:
        raise ConnectionError(f"cannot begin: {HELLO} was answered with {status} and must be with {header.welcome}")


def broken(server: str, reason: object) -> ConnectionError:
    """Say why a load generator does not go on: it does not know whether the request on that connection was served."""
    return ConnectionError(f"cannot measure: a connection to {server} broke ({reason}), and each must last to the end")


class Count:
    """What was answered since it was made."""

    def __init__(self) -> None:
        self._statuses: Counter[int] = Counter()
        self._began = self._last = self._last_bind = time.perf_counter()
        self._cpu = time.process_time()

    def bind(self, status: int) -> bool:
        """Count a bind's answer; tell whether the bind succeeded."""
        self.event(status)
        self._last_bind = self._last
        return status in _OK

    def event(self, status: int) -> None:
        """Count an event's answer."""
        self._last = time.perf_counter()
        self._statuses[status] += 1

    def report(self, header: Header) -> None:
        """Print what was measured as one line of JSON."""
        load_report = LoadReport(
            sent=self._statuses.total(),
            seconds=self._last - self._began,
            to_last_bind=self._last_bind - self._began,
            cpu=time.process_time() - self._cpu,
            statuses={str(status): number for status, number in sorted(self._statuses.items())},
            in_flight=header.in_flight,
        )
        sys.stdout.write(msgspec.json.encode(load_report).decode() + "\n")
