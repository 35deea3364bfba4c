"""The requests that a load generator sends, the report that it returns, and code that the Python ones share.

The file of requests is JSON Lines: a `Header`, then a `PreparedPod` a line. A load generator keeps a fixed number of
requests in flight, one in each slot. When a bind is answered, its slot sends the pod's event next, before new binds: so
no slot ever waits.
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

VERSION_PATH: Final = "/version"
"""Requested once over each connection before the start, so that no handshake is measured."""
READY: Final = "ready"
"""The line that a load generator prints when it is prepared."""
GO: Final = "go"
"""The line for which it then waits."""
_OK: Final = range(200, 300)


class Header(msgspec.Struct, frozen=True):
    """Where requests go: `server` as `https://host:port`, `ca` as a file, and how many requests are in flight.

    `welcome` is the expected status of the first request on each connection.
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
    """One pod's bind, and the event that is sent after the bind succeeded."""

    bind: Request
    event: Request | None


class LoadReport(msgspec.Struct, frozen=True):
    """What a load generator measured; times are in seconds since `go`."""

    sent: int
    """Requests that were answered."""
    seconds: float
    """To the last answer."""
    to_last_bind: float
    """To the last bind's answer; 0 without one."""
    cpu: float
    """CPU of the generator itself, user and system."""
    statuses: dict[str, int]
    """Answers by HTTP status."""
    in_flight: int


def write(path: Path, header: Header, workloads: Iterable[PreparedPod]) -> None:
    """Write a file of requests."""
    path.write_bytes(msgspec.json.Encoder().encode_lines([header, *workloads]))


def read(path: Path) -> tuple[Header, list[PreparedPod]]:
    """Read a file of requests; ValueError when it is not one."""
    first, _, rest = path.read_bytes().partition(b"\n")
    try:
        return msgspec.json.decode(first, type=Header), msgspec.json.Decoder(PreparedPod).decode_lines(rest)
    except msgspec.MsgspecError as error:
        raise ValueError(f"cannot read {path} as orders: {error}") from error


def headers(header: Header) -> dict[str, str]:
    """Return the HTTP headers of every request, for each client the same."""
    return {
        "Accept": "application/json",
        "Authorization": f"Bearer {header.token}",
        "Content-Type": "application/json",
        "User-Agent": "load-generator",
    }


def wait_for_go() -> None:
    """Print READY and wait for GO; EOFError for anything else."""
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    line = sys.stdin.readline()
    if line != f"{GO}\n":
        raise EOFError(f"cannot begin on {line!r}: the load generator waits for one line (example: {GO})")


def check(header: Header, status: int) -> None:
    """Check the status of the first request on a connection; ConnectionError when it is unexpected."""
    if status != header.welcome:
        raise ConnectionError(
            f"cannot begin: {VERSION_PATH} was answered with {status} and must be with {header.welcome}"
        )


def broken(server: str, reason: object) -> ConnectionError:
    """Return the error for a broken connection: it is unknown whether the API server executed the request on it."""
    return ConnectionError(f"cannot measure: a connection to {server} broke ({reason}), and each must last to the end")


class Count:
    """Counts answers since its creation."""

    def __init__(self) -> None:
        self._statuses: Counter[int] = Counter()
        self._began = self._last = self._last_bind = time.perf_counter()
        self._cpu = time.process_time()

    def bind(self, status: int) -> bool:
        """Count a bind's answer; return whether the bind succeeded."""
        self.event(status)
        self._last_bind = self._last
        return status in _OK

    def event(self, status: int) -> None:
        """Count an event's answer."""
        self._last = time.perf_counter()
        self._statuses[status] += 1

    def report(self, header: Header) -> None:
        """Print the report as one line of JSON."""
        load_report = LoadReport(
            sent=self._statuses.total(),
            seconds=self._last - self._began,
            to_last_bind=self._last_bind - self._began,
            cpu=time.process_time() - self._cpu,
            statuses={str(status): number for status, number in sorted(self._statuses.items())},
            in_flight=header.in_flight,
        )
        sys.stdout.write(msgspec.json.encode(load_report).decode() + "\n")
