"""The driver's side of a stream of pods: what is made, by a process of its own, and whether it came at its pace."""

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
"""Seconds by which a stream may be late before what it measured is that of another pace."""


def stream(
    cluster: ClusterUnderTest, pods: Iterable[tuple[str, Object]], rate: float, lives: float | None = None
) -> GatedProcess[Streamed]:
    """Start the process; at the word `go` pods come, so many a second, and each goes when it has lived so long.

    They are given with the paths to which they are POSTed.
    """
    path = cluster.folder / "arrivals.jsonl"
    pace = Pace(cluster.header(ADMIN_TOKEN, 1), rate, lives)
    path.write_bytes(msgspec.json.Encoder().encode_lines([pace, *(_arrival(*pod) for pod in pods)]))
    return GatedProcess(
        Streamed, [sys.executable, "-m", "bench.pod_stream_process", str(path)], cluster.folder / "streamer.log"
    )


def faults(streamed: Streamed, rate: float) -> list[str]:
    """What was not as it must be, a sentence each."""
    wrong = refusals(streamed)
    if streamed.late > LATE:
        wrong.append(f"the stream was late by {streamed.late:.2f} s: it was not {rate:.0f} pods a second")
    return wrong


def refusals(streamed: Streamed) -> list[str]:
    """What the API server did not take, a sentence for each of its reasons."""
    return [f"{times} requests of the stream were refused with HTTP {code}" for code, times in streamed.refused.items()]


def _arrival(path: str, body: Object) -> Arrival:
    key = f"{path.split('/')[-2]}/{body['metadata']['name']}"
    return Arrival(key, Request(path, msgspec.json.encode(body).decode()))
