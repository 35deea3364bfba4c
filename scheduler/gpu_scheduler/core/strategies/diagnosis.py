"""Why no node fits the pods of one equivalence class: how many nodes lack what, and the sentence.

LAW: one failure a node; the numbers and the node that is named may change by the minute, what was asked for makes it
the same obstacle.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.reasons import Reason, Unschedulable
from gpu_scheduler.core.strategies.equivalence import EquivalenceClass
from gpu_scheduler.core.strategies.node_fit import FilterFailure, NodeFilter
from gpu_scheduler.core.text import number_of, quote

_LEADING: Final = (
    Reason.GPU_UNHEALTHY,
    Reason.NOT_ENOUGH_GPUS,
    Reason.INSUFFICIENT_RESOURCES,
    Reason.PORT_IN_USE,
    Reason.NODE_NOT_READY,
    Reason.NODE_UNSCHEDULABLE,
    Reason.TAINT_NOT_TOLERATED,
    Reason.INSUFFICIENT_GPU_MEMORY,
    Reason.NODE_AFFINITY_MISMATCH,
    Reason.GPU_NOT_FOUND,
)
"""What is told of many lacks: that of the nodes which are closest to fitting."""


class NodeNumbers:
    """A number for each node that was ever met."""

    __slots__ = ("_names", "_numbers")

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []

    def __len__(self) -> int:
        """How many were met."""
        return len(self._names)

    def number(self, name: str) -> int:
        """That of a node, met just now or before."""
        if name not in self._numbers:
            self._numbers[name] = len(self._names)
            self._names.append(name)
        return self._numbers[name]

    def name(self, number: int) -> str:
        """Whose it is."""
        return self._names[number]


@dataclass(frozen=True, slots=True)
class FailureCount:
    """How many nodes lack one thing, the most that any of them has of it, and one of those that have the most."""

    nodes: int
    offer: int
    node: str


class Diagnosis:
    """The lacks of the nodes that do not fit."""

    __slots__ = ("_codes", "_counts", "_lacks", "_marks", "_places", "_unused")

    def __init__(self, places: NodeNumbers) -> None:
        """Several tallies may have the same places."""
        self._places = places
        self._marks = array("I")
        """By the node's number, the code of what it lacks; 0 is nothing."""
        self._codes: dict[FilterFailure, int] = {}
        self._lacks: list[FilterFailure] = []
        """By code, beginning with 1."""
        self._counts: list[int] = []
        self._unused: list[int] = []

    def put(self, name: str, lack: FilterFailure | None) -> None:
        """The node lacks this now; nothing when it fits or is gone."""
        number = self._places.number(name)
        self._marks.extend([0] * (number + 1 - len(self._marks)))
        before = self._marks[number]
        after = self._marks[number] = 0 if lack is None else self._code(lack)
        if after:
            self._counts[after - 1] += 1
        if before:
            self._leave(before)

    def leading(self) -> Reason:
        """What is lacked where the least is missing; without any node, the last of all."""
        return min((lack.reason for lack in self._codes), key=_LEADING.index, default=_LEADING[-1])

    def count(self, reason: Reason) -> FailureCount:
        """Of the nodes that lack this."""
        codes = [(lack.offer, code) for lack, code in self._codes.items() if lack.reason is reason]
        if not codes:
            return FailureCount(0, 0, "")
        offer, code = max(codes)
        nodes = sum(self._counts[each - 1] for _, each in codes)
        return FailureCount(nodes, offer, self._places.name(self._marks.index(code)))

    def _code(self, lack: FilterFailure) -> int:
        code = self._codes.get(lack)
        if code is not None:
            return code
        if self._unused:
            code = self._unused.pop()
            self._lacks[code - 1] = lack
        else:
            self._lacks.append(lack)
            self._counts.append(0)
            code = len(self._lacks)
        self._codes[lack] = code
        return code

    def _leave(self, code: int) -> None:
        self._counts[code - 1] -= 1
        if not self._counts[code - 1]:
            del self._codes[self._lacks[code - 1]]
            self._unused.append(code)


_CURES: Final[Mapping[Reason, str]] = {
    Reason.NODE_AFFINITY_MISMATCH: "correct the pod's template, or label nodes: kubectl label node NODE KEY=VALUE",
    Reason.INSUFFICIENT_RESOURCES: "wait until pods of such nodes end, or lower the request in the pod's template",
    Reason.PORT_IN_USE: "wait until the pods that have it end, or take another hostPort",
}
"""Where what helps is something else than for the author of a map."""


def shortfall(
    shape: EquivalenceClass, scale: NodeFilter, reason: Reason, count: FailureCount, node: Node
) -> Unschedulable:
    """What to tell of the nodes that lack this; `node` stands for all of them."""
    what, cure = _of_node(scale, reason, count, node) or _of_cards(shape, scale, reason, count, node)
    return Unschedulable(reason, what, cure, about=_wish(shape))


def barred(unschedulable: Unschedulable, nodes: int) -> Unschedulable:
    """What is in the way of one pod alone on the nodes that fit its shape, as told of the first of them."""
    return replace(unschedulable, what=unschedulable.what + _and_more(nodes), about="volumes")


def _of_node(scale: NodeFilter, reason: Reason, count: FailureCount, node: Node) -> tuple[str, str] | None:
    """What bars the pods from nodes that have the GPUs."""
    unschedulable = scale.bar(node)
    if unschedulable is None or unschedulable.reason is not reason:
        return None
    return unschedulable.what + _and_more(count.nodes), _CURES.get(reason, unschedulable.remedy)


def _and_more(nodes: int) -> str:
    return f" (and so on {number_of(nodes - 1, 'more node')} with such GPUs)" if nodes > 1 else ""


def _of_cards(
    shape: EquivalenceClass, scale: NodeFilter, reason: Reason, count: FailureCount, node: Node
) -> tuple[str, str]:
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


def _wish(shape: EquivalenceClass) -> str:
    """What is asked for: `2 GPUs of type "A100" with 8192 MiB each`."""
    kind = f" of type {quote(shape.kind.gpu_type)}" if shape.kind.gpu_type else ""
    each = " each" if shape.gpus > 1 else ""
    memory = f" with {shape.kind.memory} MiB{each}" if shape.kind.memory else ""
    return f"{number_of(shape.gpus, 'GPU')}{kind}{memory}"
