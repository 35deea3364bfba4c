"""Thousands of pods that wait, each for something else than the next: a wake-up must find the one it is for."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from tests.objects import card, inventory, literal, node, pod, reading

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.bench import Bench
    from tests.objects import Object

INDEX: Final = {"agentaflow.gpu/index": "0"}
BUSY: Final = "0=crowd-busy:0\n"
MANY: Final = {"pods": "20000"}
THREADS: Final = 6


def _line(text: str, **more: object) -> Callable[[str], Object]:
    """Make pods with this line, each of a controller of its own."""
    env = literal(text.strip().rpartition(":")[2])
    return lambda name: pod(name, text, env, annotations=INDEX, owner=("Job", name), **more)


REASONS: Final[dict[str, Callable[[str], Object]]] = {
    "NodeNotFound": lambda name: pod(name, f"0=gone-{name[-3:]}:0\n", literal("0"), annotations=INDEX),
    "NodeNotReady": _line("0=crowd-down:0\n"),
    "NodeUnschedulable": _line("0=crowd-cordoned:0\n"),
    "TaintNotTolerated": _line("0=crowd-tainted:0\n"),
    "NodeAffinityMismatch": _line("0=crowd-roomy:0\n", nodeSelector={"tier": "gold"}),
    "InsufficientResources": _line("0=crowd-roomy:0\n", requests={"cpu": "1000"}),
    "GpuNotFound": _line("0=crowd-cards:0\n"),
    "GpuHeld": _line(BUSY),
    "PortInUse": _line("0=crowd-busy:\n", port=8080),
    "VolumeNotBound": _line("0=crowd-roomy:0\n", claims=("nowhere",)),
    "IndexHeld": lambda name: pod(name, BUSY, literal("0"), annotations=INDEX),
    "NoFreeIndex": lambda name: pod(name, BUSY, reading()),
    "EnvNotInjected": lambda name: pod(name, "0=crowd-roomy:0\n", [], annotations=INDEX),
    "MapInvalid": lambda name: pod(name, "nonsense\n", literal("0")),
}


def nodes() -> tuple[Object, ...]:
    """Make the nodes for which they wait."""
    taint = {"key": "maintenance", "effect": "NoSchedule"}
    return (
        node("crowd-down", ready=False),
        node("crowd-cordoned", unschedulable=True),
        node("crowd-tainted", taints=(taint,)),
        node("crowd-roomy", room=MANY),
        node("crowd-busy", room=MANY),
        node("crowd-cards", annotations=inventory(card(7))),
    )


def name_of(number: int) -> str:
    """Name one of them: with a letter at the end, since it must not look like a StatefulSet's pod."""
    return f"c-{number:05d}x"


def gather(bench: Bench, count: int) -> None:
    """Create nodes, the pod that holds what others wait for, and `count` pods, as fast as the API server takes them."""
    for body in nodes():
        bench.add(body)
    bench.make(pod("holder", BUSY, literal("0"), annotations=INDEX, port=8080))
    bench.wait_bound("holder", "crowd-busy")
    makers = tuple(REASONS.values())

    def create(numbers: range) -> None:
        for number in numbers:
            body = json.dumps(makers[number % len(makers)](name_of(number))).encode()
            status, answer = bench.kube.raw("POST", bench.pods, body)
            assert status == 201, answer

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(create, (range(first, count, THREADS) for first in range(THREADS))))
