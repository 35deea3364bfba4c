"""Why no node fits the pods of one shape, in one sentence.

LAW: the numbers, and the node that is named for all, may change by the minute; what was asked for makes it the same
obstacle.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.model import Node
from gpu_scheduler.core.reasons import Obstacle, Reason
from gpu_scheduler.core.shape import Shape
from gpu_scheduler.core.tally import Count
from gpu_scheduler.core.text import number_of, quote
from gpu_scheduler.core.weighing import Scale

_CURES: Final[Mapping[Reason, str]] = {
    Reason.NODE_AFFINITY_MISMATCH: "correct the pod's template, or label nodes: kubectl label node NODE KEY=VALUE",
    Reason.INSUFFICIENT_RESOURCES: "wait until pods of such nodes end, or lower the request in the pod's template",
    Reason.PORT_IN_USE: "wait until the pods that have it end, or take another hostPort",
}
"""Where what helps is something else than for the author of a map."""


def shortfall(shape: Shape, scale: Scale, reason: Reason, count: Count, node: Node) -> Obstacle:
    """What to tell of the nodes that lack this; `node` stands for all of them."""
    what, cure = _of_node(scale, reason, count, node) or _of_cards(shape, scale, reason, count, node)
    return Obstacle(reason, what, cure, about=_wish(shape))


def barred(obstacle: Obstacle, nodes: int) -> Obstacle:
    """What is in the way of one pod alone on the nodes that fit its shape, as told of the first of them."""
    return replace(obstacle, what=obstacle.what + _and_more(nodes), about="volumes")


def _of_node(scale: Scale, reason: Reason, count: Count, node: Node) -> tuple[str, str] | None:
    """What bars the pods from nodes that have the GPUs."""
    obstacle = scale.bar(node)
    if obstacle is None or obstacle.reason is not reason:
        return None
    return obstacle.what + _and_more(count.nodes), _CURES.get(reason, obstacle.cure)


def _and_more(nodes: int) -> str:
    return f" (and so on {number_of(nodes - 1, 'more node')} with such GPUs)" if nodes > 1 else ""


def _of_cards(shape: Shape, scale: Scale, reason: Reason, count: Count, node: Node) -> tuple[str, str]:
    """What the GPUs of the nodes lack."""
    several, offer = shape.gpus > 1, count.offer
    cannot = f"cannot get {_wish(shape)}{' on one node' if several else ''}: "
    there = f"{number_of(count.nodes, 'node')} {'has' if count.nodes == 1 else 'have'} such GPUs"
    match reason:
        case Reason.GPU_UNHEALTHY:
            what = f"{there} free, but {scale.ailment(node)}"
            cure = "wait until their health is good again: kubectl gpu-scheduler health"
        case Reason.NOT_ENOUGH_GPUS:
            most = f"no more than {offer} on a node" if offer else "none"
            what = f"{there}, but {most} is free and at most {scale.goal} % utilized"
            cure = f"wait until pods that hold them end{', or ask for fewer' if several else ''}"
        case Reason.INSUFFICIENT_GPU_MEMORY:
            most = f"with {offer} MiB{' each' if several else ''} at most" if offer else "of unknown memory"
            what = f"{there}, but {most}"
            cure = f"ask for less in annotation {names.MEMORY}, or add nodes with larger GPUs"
        case _:
            what = f"no node has {f'more than {offer} such GPUs' if offer else 'such a GPU'}"
            cure = "ask for other GPUs, or add nodes; which there are: kubectl gpu-scheduler nodes"
    return cannot + what, cure


def _wish(shape: Shape) -> str:
    """What is asked for: `2 GPUs of type "A100" with 8192 MiB each`."""
    kind = f" of type {quote(shape.kind.gpu_type)}" if shape.kind.gpu_type else ""
    each = " each" if shape.gpus > 1 else ""
    memory = f" with {shape.kind.memory} MiB{each}" if shape.kind.memory else ""
    return f"{number_of(shape.gpus, 'GPU')}{kind}{memory}"
