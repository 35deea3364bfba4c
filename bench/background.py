"""Background load: changes of a cluster that our scheduler watches while it has nothing to place."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bench.cluster_objects import REQUESTS, node_name
from bench.gated_process import GatedProcess
from bench.lease_renewal import Renewals, Renewed
from bench.pod_stream import LATE, faults, stream
from gpu_scheduler.settings import MonitorSettings
from tests import objects as shapes
from tests.integration.control_plane import ADMIN_TOKEN
from tests.integration.monitored_node import allow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.cluster import ClusterUnderTest
    from bench.cluster_objects import Object

_INTERVAL: Final = MonitorSettings.monitor_interval
_LIVES: Final = 5.0
"""Seconds from the creation of a foreign pod to its deletion."""
_TIMEOUT: Final = 120.0
_OTHERS: Final = "others"


@dataclass(frozen=True, slots=True)
class BackgroundLoad:
    """A process that makes the load after the word `go`. The load is steady after `warm_up` seconds."""

    process: GatedProcess[Any]
    warm_up: float
    watch: str
    """Our watch that receives the load's events."""
    faults: Callable[[Any], list[str]]
    """Returns the faults in the process's result, one sentence each."""

    def ended(self) -> list[str]:
        """Wait until the process ends and return its faults."""
        return self.faults(self.process.wait(_TIMEOUT))


def monitors(cluster: ClusterUnderTest, nodes: int, seconds: float, *, interval: float = _INTERVAL) -> BackgroundLoad:
    """Renew the Lease of each node's monitor every `interval` seconds. The first interval creates the Leases."""
    allow(cluster.plane)
    uids = {node.metadata.name: node.metadata.uid for node in map(_nodes.decode, cluster.items("/api/v1/nodes"))}
    assert len(uids) == nodes, uids
    kubeconfig = cluster.plane.kubeconfig(cluster.folder / "monitors.kubeconfig", ADMIN_TOKEN)
    path = cluster.folder / "monitors.json"
    path.write_bytes(msgspec.json.encode(Renewals(str(kubeconfig), uids, interval, interval + _lasting(seconds))))
    process = GatedProcess(Renewed, [sys.executable, "-m", "bench.lease_renewal", str(path)], path.with_suffix(".log"))
    return BackgroundLoad(process, interval, "monitors", _not_renewed)


def others(
    cluster: ClusterUnderTest, nodes: int, seconds: float, *, rate: float = 100.0, lives: float = _LIVES
) -> BackgroundLoad:
    """Create `rate` bound pods of another scheduler a second, and delete as many."""
    cluster.make_namespaces([_OTHERS])
    process = stream(cluster, _pods(nodes, round(rate * (lives + _lasting(seconds)))), rate, lives)
    return BackgroundLoad(process, lives, "foreign_pods", partial(faults, rate=rate))


def _lasting(seconds: float) -> float:
    """Return how many seconds the load must last: the measurement takes a little longer than `seconds`."""
    return 1.1 * seconds + 1


class _Meta(msgspec.Struct):
    name: str
    uid: str


class _Node(msgspec.Struct):
    metadata: _Meta


_nodes = msgspec.json.Decoder(_Node)


def _not_renewed(renewed: Renewed) -> list[str]:
    wrong = [f"{times} Leases were not renewed: {why}" for why, times in renewed.problems.items()]
    if renewed.late > LATE:
        wrong.append(f"the Leases were renewed late by {renewed.late:.2f} s")
    return wrong


def _pods(nodes: int, count: int) -> Iterator[tuple[str, Object]]:
    """Yield pods as another scheduler binds them."""
    for number in range(count):
        name = f"other-{number}"
        on = node_name(number % nodes)
        body = shapes.pod(name, None, scheduler="default-scheduler", requests=REQUESTS, nodeName=on)
        yield f"/api/v1/namespaces/{_OTHERS}/pods", body
