"""A process that renews the Leases of all monitors at their usual rate.

Each Lease is written by the monitor's own code. The argument is a file with `Renewals`. The process prints `ready`,
waits for a line, and ends with one line of JSON.
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
    """The content of the input file."""

    kubeconfig: str
    nodes: dict[str, str]
    """The nodes' uids by their names."""
    interval: float
    """Seconds between two renewals of a Lease."""
    seconds: float
    """How long the process renews."""


class Renewed(msgspec.Struct):
    """The result."""

    times: int = 0
    late: float = 0.0
    """The seconds within which 19 of 20 renewals began late."""
    problems: dict[str, int] = {}
    """Failed renewals by reason."""


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
    """Renew the Leases that the file names, and print the result."""
    rounds = msgspec.json.decode(Path(path).read_bytes(), type=Renewals)
    sys.stdout.write(msgspec.json.encode(asyncio.run(_renewed(rounds))).decode() + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
