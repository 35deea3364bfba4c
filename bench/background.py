"""What goes on in a cluster that our scheduler hears of, though it has nothing to place."""

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
from tests.integration.watched import allow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.cluster import ClusterUnderTest
    from bench.cluster_objects import Object

_INTERVAL: Final = MonitorSettings.monitor_interval
_LIVES: Final = 5.0
"""Seconds that a pod of others is there."""
_PATIENCE: Final = 120.0
_OTHERS: Final = "others"


@dataclass(frozen=True, slots=True)
class BackgroundLoad:
    """A process that does it at the word `go`; after `warm_up` seconds it goes on as it will."""

    process: GatedProcess[Any]
    warm_up: float
    watch: str
    """Our watch that hears of it."""
    faults: Callable[[Any], list[str]]
    """What of that which the process tells is not as it must be, a sentence each."""

    def ended(self) -> list[str]:
        """Wait for its end, and tell the faults."""
        return self.faults(self.process.wait(_PATIENCE))


def monitors(cluster: ClusterUnderTest, nodes: int, seconds: float, *, interval: float = _INTERVAL) -> BackgroundLoad:
    """The Lease of each node's monitor is renewed once in so many seconds; in the first of them they are made."""
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
    """So many pods of another scheduler come in a second, bound, and as many go."""
    cluster.make_namespaces([_OTHERS])
    process = stream(cluster, _pods(nodes, round(rate * (lives + _lasting(seconds)))), rate, lives)
    return BackgroundLoad(process, lives, "residents", partial(faults, rate=rate))


def _lasting(seconds: float) -> float:
    """For how long it goes on, so that it lasts as long as the look at it, which takes a little more than it should."""
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
    """As another scheduler leaves them."""
    for number in range(count):
        name = f"other-{number}"
        on = node_name(number % nodes)
        body = shapes.pod(name, None, scheduler="default-scheduler", requests=REQUESTS, nodeName=on)
        yield f"/api/v1/namespaces/{_OTHERS}/pods", body
