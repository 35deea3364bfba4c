"""Renews the Leases of all nodes' monitors, at the rate at which monitors do: a process of its own.

Each Lease is written as a monitor writes it, by the monitor's own code. Started with what there is to renew; says
`ready`, waits for a line, and ends with one line of JSON.
"""

from __future__ import annotations

import asyncio
import sys
from itertools import cycle, islice
from pathlib import Path

import msgspec

from bench.contenders.prepared_requests import wait_for_go
from bench.pacing import paced
from gpu_scheduler import names
from gpu_scheduler.kube.http.client import connect
from gpu_scheduler.monitor.sinks import ApiNodeLease, ApiNodeSink


class Renewals(msgspec.Struct):
    """What it is told by a file."""

    kubeconfig: str
    nodes: dict[str, str]
    """Their uids by their names."""
    interval: float
    """Seconds in which each Lease is renewed once."""
    seconds: float
    """For how long."""


class Renewed(msgspec.Struct):
    """What came of it."""

    times: int = 0
    late: float = 0.0
    """By how many seconds renewals began behind their time, but for the latest of 20."""
    problems: dict[str, int] = {}
    """Renewals that failed, by the reason."""


async def _renewed(rounds: Renewals) -> Renewed:
    api = await connect(rounds.kubeconfig, None, user_agent=names.MONITOR)
    made = Renewed()

    async def renew(lease: ApiNodeLease) -> None:
        problem = await lease.renew()
        if problem is None:
            made.times += 1
        else:
            made.problems[problem] = made.problems.get(problem, 0) + 1

    def lease(name: str, uid: str) -> ApiNodeLease:
        node = ApiNodeSink(api, name, goal=0)
        node.uid = uid
        holder = f"{names.MONITOR}-{uid[:5]}"
        return ApiNodeLease(api, node, name, namespace=names.MONITOR, holder=holder, interval=rounds.interval)

    leases = [lease(*node) for node in rounds.nodes.items()]
    rate = len(leases) / rounds.interval
    try:
        await asyncio.to_thread(wait_for_go)
        made.late = await paced(rate, islice(cycle(leases), round(rate * rounds.seconds)), renew)
    finally:
        await api.close()
    return made


def main(path: str) -> None:
    """Renew what the file names."""
    rounds = msgspec.json.decode(Path(path).read_bytes(), type=Renewals)
    sys.stdout.write(msgspec.json.encode(asyncio.run(_renewed(rounds))).decode() + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
