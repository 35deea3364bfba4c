"""Growth: what decisions, watch events and memory cost in clusters of different sizes, without any API server.

Each size is a process of its own. Existing pods fill nodes one after the other, and what is measured lands on nodes
that are free in every cluster, so that sizes differ in nothing but their size. Pods are as controller and webhook
leave them; what an API server adds to them (defaults, field managers) is not there to be read past.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from bench.cluster_objects import GPUS_PER_NODE, MappedPods
from bench.gated_process import ROOT
from bench.growth_process import FREE, LONGEST, Asked, alias
from bench.results import Cell, Growth, Measured, now
from bench.targets import AFTER, CHURNED, GROWTH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.cluster_objects import MappedPod, Object

NODES: Final = (10, 100, 1000, 5000)
PODS: Final = (100, 1000, 5000, 20_000, 50_000)
GONE: Final = 50_000
"""Pods of one workload that come and go, on a cluster of one size, before the next ones are measured."""


def fits(nodes: int, pods: int) -> bool:
    """Whether so many pods have a GPU each and leave nodes for those that are measured."""
    return pods <= (nodes - FREE) * GPUS_PER_NODE


def cells() -> tuple[Cell, ...]:
    """Every size that fits, and one once more, where many pods have come and gone."""
    sizes = [(nodes, pods) for nodes in NODES for pods in PODS if fits(nodes, pods)]
    return *(Cell(GROWTH, "O", "", *size) for size in sizes), Cell(GROWTH, "O", AFTER, *CHURNED)


def measure(cell: Cell, repetition: int, tell: Callable[[str], None]) -> Measured:
    """Measure one size once."""
    tell(f"taking in {cell.nodes} nodes and {cell.pods} pods")
    began = now()
    command = [sys.executable, "-m", "bench.growth_process"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        # One that ends early hears no more; how it ended is told below.
        with suppress(BrokenPipeError), process.stdin as feed:
            feed.writelines(_lines(cell))
        told = process.stdout.read()
    measured = Measured(cell=cell, repetition=repetition, began=began)
    if process.returncode == 0:
        measured.growth = msgspec.json.decode(told, type=Growth)
    else:
        measured.wrong.append(f"it ended with {process.returncode}, and standard error says why")
    return measured


def _lines(cell: Cell) -> Iterator[bytes]:
    """What the process reads."""
    full = MappedPods(-(-cell.pods // GPUS_PER_NODE), cell.pods)
    gone = GONE if cell.variant == AFTER else 0
    yield msgspec.json.encode(Asked(cell.nodes, full.nodes, cell.pods, gone)) + b"\n"
    for number, node in enumerate(MappedPods(cell.nodes, 0).node_bodies()):
        last = cell.nodes - 1 - number
        node["metadata"]["labels"] = {"gpu-node-name": alias(last)} if last < LONGEST else {}
        yield _told(node, number)
    yield b"\n"
    for number, member in enumerate(full.members()):
        yield _told(_bound(full, member), number)
    yield b"\n"


def _bound(objects: MappedPods, member: MappedPod) -> Object:
    """The pod as it is when it runs where its map says."""
    node, card = objects.place(member)
    body = objects.body(member, "gpu-scheduler")
    at = "2026-11-21T01:00:00.000000Z"
    given = {"devices": str(card), "index": str(member.number), "node": node, "at": at, "by": "gpu-scheduler-0"}
    body["metadata"]["annotations"] |= {f"agentaflow.gpu/assigned-{key}": value for key, value in given.items()}
    body["metadata"] |= {"namespace": objects.namespace(member)}
    body["spec"]["nodeName"] = node
    body["status"] = {"phase": "Running"}
    return body


def _told(body: Object, number: int) -> bytes:
    """As a watch tells it."""
    body["metadata"] |= {"uid": f"00000000-0000-4000-8000-{number:012}", "resourceVersion": str(number + 1)}
    return msgspec.json.encode({"type": "ADDED", "object": body}) + b"\n"
