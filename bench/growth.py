"""Growth: measures decisions, watch events and memory at several cluster sizes, without an API server.

Each size is measured in its own process. Existing pods fill one node after the other. The measured pods go to nodes
that are free at every size, so that clusters differ only in size. Pods are as controller and webhook write them,
without the fields that an API server adds (defaults, managed fields).
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from bench.claimed_pods import ClaimedPods, slice_of
from bench.cluster_objects import GPUS_PER_NODE, MappedPods
from bench.gated_process import ROOT
from bench.growth_process import FREE, LONGEST, SizeRequest, alias
from bench.results import Cell, Growth, Measured, now
from bench.targets import AFTER, CHURNED, CLAIMED, GROWTH, WITH_CLAIMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.cluster_objects import MappedPod, Object

NODES: Final = (10, 100, 1000, 5000)
PODS: Final = (100, 1000, 5000, 20_000, 50_000)
GONE: Final = 50_000
"""Pods of one workload that are placed and removed, on a cluster of one size, before the measurement."""


def fits(nodes: int, pods: int) -> bool:
    """Return whether the pods can have a GPU each while FREE nodes stay free for the measured pods."""
    return pods <= (nodes - FREE) * GPUS_PER_NODE


def cells() -> tuple[Cell, ...]:
    """Return a cell for every size that fits, and two more.

    In one of them many pods were placed and removed before, in the other each pod has a ResourceClaim.
    """
    sizes = [(nodes, pods) for nodes in NODES for pods in PODS if fits(nodes, pods)]
    others = (Cell(GROWTH, "O", AFTER, *CHURNED), Cell(GROWTH, "O", WITH_CLAIMS, *CLAIMED))
    return *(Cell(GROWTH, "O", "", *size) for size in sizes), *others


def measure(cell: Cell, repetition: int, log: Callable[[str], None]) -> Measured:
    """Measure one size once."""
    log(f"taking in {cell.nodes} nodes and {cell.pods} pods")
    began = now()
    command = [sys.executable, "-m", "bench.growth_process"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        # If the process ends early, its return code is reported below.
        with suppress(BrokenPipeError), process.stdin as pipe:
            pipe.writelines(_lines(cell))
        reported = process.stdout.read()
    measured = Measured(cell=cell, repetition=repetition, began=began)
    if process.returncode == 0:
        measured.growth = msgspec.json.decode(reported, type=Growth)
    else:
        measured.wrong.append(f"it ended with {process.returncode}, and standard error says why")
    return measured


def _lines(cell: Cell) -> Iterator[bytes]:
    """Yield the lines of the process's standard input."""
    full = (ClaimedPods if cell.variant == WITH_CLAIMS else MappedPods)(-(-cell.pods // GPUS_PER_NODE), cell.pods)
    gone = GONE if cell.variant == AFTER else 0
    yield msgspec.json.encode(SizeRequest(cell.nodes, full.nodes, cell.pods, gone)) + b"\n"
    for number, node in enumerate(MappedPods(cell.nodes, 0).node_bodies()):
        last = cell.nodes - 1 - number
        node["metadata"]["labels"] = {"gpu-node-name": alias(last)} if last < LONGEST else {}
        yield _watch_event(node, number)
    yield b"\n"
    for number in range(cell.nodes if isinstance(full, ClaimedPods) else 0):
        yield _watch_event(slice_of(number), number)
    yield b"\n"
    for number, member in enumerate(full.members()):
        yield _watch_event(_bound(full, member), number)
    yield b"\n"
    if isinstance(full, ClaimedPods):
        for number, member in enumerate(full.members()):
            yield _watch_event(full.allocated_claim(member, _uid(number)), cell.pods + number)
    yield b"\n"


def _bound(objects: MappedPods, member: MappedPod) -> Object:
    """Return the pod as it runs on the node of its map."""
    placed = objects.assignment(member)
    body = objects.body(member, "gpu-scheduler")
    at = "2026-11-21T01:00:00.000000Z"
    devices = ",".join(placed.devices)
    given = {"devices": devices, "index": str(member.number), "node": placed.node, "at": at, "by": "gpu-scheduler-0"}
    body["metadata"]["annotations"] |= {f"agentaflow.gpu/assigned-{key}": value for key, value in given.items()}
    body["metadata"] |= {"namespace": objects.namespace(member)}
    body["spec"]["nodeName"] = placed.node
    body["status"] = {"phase": "Running"}
    return body


def _watch_event(body: Object, number: int) -> bytes:
    """Return the object as a watch event."""
    body["metadata"] |= {"uid": _uid(number), "resourceVersion": str(number + 1)}
    return msgspec.json.encode({"type": "ADDED", "object": body}) + b"\n"


def _uid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"
