"""Builds many waiting pods with different reasons, for the tests of requeueing."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from tests.objects import device, inventory, literal, node, pod, reading

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.namespace import Namespace
    from tests.objects import Object

INDEX: Final = {"agentaflow.gpu/index": "0"}
BUSY: Final = "0=node-busy:0\n"
MANY: Final = {"pods": "20000"}
THREADS: Final = 6


def _line(text: str, **more: object) -> Callable[[str], Object]:
    """Return a function that makes a pod with this line, each with its own Job as controller."""
    env = literal(text.strip().rpartition(":")[2])
    return lambda name: pod(name, text, env, annotations=INDEX, owner=("Job", name), **more)


REASONS: Final[dict[str, Callable[[str], Object]]] = {
    "NodeNotFound": lambda name: pod(name, f"0=gone-{name[-3:]}:0\n", literal("0"), annotations=INDEX),
    "NodeNotReady": _line("0=node-down:0\n"),
    "NodeUnschedulable": _line("0=node-cordoned:0\n"),
    "TaintNotTolerated": _line("0=node-tainted:0\n"),
    "NodeAffinityMismatch": _line("0=node-roomy:0\n", nodeSelector={"tier": "gold"}),
    "InsufficientResources": _line("0=node-roomy:0\n", requests={"cpu": "1000"}),
    "GpuNotFound": _line("0=node-devices:0\n"),
    "GpuHeld": _line(BUSY),
    "PortInUse": _line("0=node-busy:\n", port=8080),
    "VolumeNotBound": _line("0=node-roomy:0\n", claims=("nowhere",)),
    "IndexHeld": lambda name: pod(name, BUSY, literal("0"), annotations=INDEX),
    "NoFreeIndex": lambda name: pod(name, BUSY, reading()),
    "EnvNotInjected": lambda name: pod(name, "0=node-roomy:0\n", [], annotations=INDEX),
    "MapInvalid": lambda name: pod(name, "nonsense\n", literal("0")),
}


def nodes() -> tuple[Object, ...]:
    """Return the nodes for which the pods wait."""
    taint = {"key": "maintenance", "effect": "NoSchedule"}
    return (
        node("node-down", ready=False),
        node("node-cordoned", unschedulable=True),
        node("node-tainted", taints=(taint,)),
        node("node-roomy", room=MANY),
        node("node-busy", room=MANY),
        node("node-devices", annotations=inventory(device(7))),
    )


def name_of(number: int) -> str:
    """Return the name of a pod. It ends with a letter: a number at the end would be its index."""
    return f"c-{number:05d}x"


def gather(namespace: Namespace, count: int) -> None:
    """Create the nodes, the pod that holds device, index and port, and `count` waiting pods."""
    for body in nodes():
        namespace.add(body)
    namespace.make(pod("holder", BUSY, literal("0"), annotations=INDEX, port=8080))
    namespace.wait_bound("holder", "node-busy")
    makers = tuple(REASONS.values())

    def create(numbers: range) -> None:
        for number in numbers:
            body = json.dumps(makers[number % len(makers)](name_of(number))).encode()
            status, answer = namespace.kube.raw("POST", namespace.pods, body)
            assert status == 201, answer

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(create, (range(first, count, THREADS) for first in range(THREADS))))
