"""What goes on in a cluster that our scheduler hears of, though it has nothing to place."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bench.monitors import Renewed, Rounds
from bench.prompted import Prompted
from bench.streaming import LATE, faults, stream
from bench.town import REQUESTS, node_name
from gpu_scheduler.settings import MonitorSettings
from tests.integration import shapes
from tests.integration.plant import ADMIN_TOKEN
from tests.integration.watched import allow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.plant import Plant
    from bench.town import Object

_INTERVAL: Final = MonitorSettings.monitor_interval
_LIVES: Final = 5.0
"""Seconds that a pod of others is there."""
_PATIENCE: Final = 120.0
_OTHERS: Final = "others"


@dataclass(frozen=True, slots=True)
class Company:
    """A process that does it at the word `go`; after `warm_up` seconds it goes on as it will."""

    process: Prompted[Any]
    warm_up: float
    watch: str
    """Our watch that hears of it."""
    faults: Callable[[Any], list[str]]
    """What of that which the process tells is not as it must be, a sentence each."""

    def ended(self) -> list[str]:
        """Wait for its end, and tell the faults."""
        return self.faults(self.process.wait(_PATIENCE))


def monitors(ground: Plant, nodes: int, seconds: float, *, interval: float = _INTERVAL) -> Company:
    """The Lease of each node's monitor is renewed once in so many seconds; in the first of them they are made."""
    allow(ground.plane)
    uids = {node.metadata.name: node.metadata.uid for node in map(_nodes.decode, ground.items("/api/v1/nodes"))}
    assert len(uids) == nodes, uids
    kubeconfig = ground.plane.kubeconfig(ground.folder / "monitors.kubeconfig", ADMIN_TOKEN)
    path = ground.folder / "monitors.json"
    path.write_bytes(msgspec.json.encode(Rounds(str(kubeconfig), uids, interval, interval + _lasting(seconds))))
    process = Prompted(Renewed, [sys.executable, "-m", "bench.monitors", str(path)], path.with_suffix(".log"))
    return Company(process, interval, "monitors", _not_renewed)


def others(ground: Plant, nodes: int, seconds: float, *, rate: float = 100.0, lives: float = _LIVES) -> Company:
    """So many pods of another scheduler come in a second, bound, and as many go."""
    ground.make_namespaces([_OTHERS])
    process = stream(ground, _pods(nodes, round(rate * (lives + _lasting(seconds)))), rate, lives)
    return Company(process, lives, "residents", partial(faults, rate=rate))


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
