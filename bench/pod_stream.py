"""Starts the process that creates a stream of pods, and checks that it kept its rate."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import msgspec

from bench.contenders.prepared_requests import Request
from bench.gated_process import GatedProcess
from bench.pod_stream_process import Arrival, Pace, Streamed
from tests.integration.control_plane import ADMIN_TOKEN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.cluster import ClusterUnderTest
    from bench.cluster_objects import Object

LATE: Final = 0.1
"""Seconds. A stream that is later than this had another rate, so the result is invalid."""


def stream(
    cluster: ClusterUnderTest, pods: Iterable[tuple[str, Object]], rate: float, lives: float | None = None
) -> GatedProcess[Streamed]:
    """Start the process. After `go` it creates `rate` pods a second.

    `pods` yields for each pod the path to POST it to, and its body. Each pod is deleted after `lives` seconds (None:
    never).
    """
    return stream_of(cluster, (_arrival(*pod) for pod in pods), rate, lives)


def stream_of(
    cluster: ClusterUnderTest,
    arrivals: Iterable[Arrival],
    rate: float,
    lives: float | None = None,
    token: str = ADMIN_TOKEN,
) -> GatedProcess[Streamed]:
    """Start the process with these arrivals, see `stream`. All requests use `token`."""
    path = cluster.folder / "arrivals.jsonl"
    pace = Pace(cluster.header(token, 1), rate, lives)
    path.write_bytes(msgspec.json.Encoder().encode_lines([pace, *arrivals]))
    return GatedProcess(
        Streamed, [sys.executable, "-m", "bench.pod_stream_process", str(path)], cluster.folder / "streamer.log"
    )


def faults(streamed: Streamed, rate: float) -> list[str]:
    """Return the stream's faults, one sentence each."""
    wrong = refusals(streamed)
    if streamed.late > LATE:
        wrong.append(f"the stream was late by {streamed.late:.2f} s: it was not {rate:.0f} pods a second")
    return wrong


def refusals(streamed: Streamed) -> list[str]:
    """Return a sentence for each HTTP status with which the API server refused requests."""
    return [f"{times} requests of the stream were refused with HTTP {code}" for code, times in streamed.refused.items()]


def _arrival(path: str, body: Object) -> Arrival:
    key = f"{path.split('/')[-2]}/{body['metadata']['name']}"
    return Arrival(key, Request(path, msgspec.json.encode(body).decode()))
