"""What nodes lack for the pods of one shape: how many lack what, at a few bytes a node.

LAW: one lack a node; noting another costs the same however many nodes there are.
"""

from array import array
from dataclasses import dataclass
from typing import Final

from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.weighing import Lack

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


class Places:
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
class Count:
    """How many nodes lack one thing, the most that any of them has of it, and one of those that have the most."""

    nodes: int
    offer: int
    node: str


class Tally:
    """The lacks of the nodes that do not fit."""

    __slots__ = ("_codes", "_counts", "_lacks", "_marks", "_places", "_unused")

    def __init__(self, places: Places) -> None:
        """Several tallies may have the same places."""
        self._places = places
        self._marks = array("I")
        """By the node's number, the code of what it lacks; 0 is nothing."""
        self._codes: dict[Lack, int] = {}
        self._lacks: list[Lack] = []
        """By code, beginning with 1."""
        self._counts: list[int] = []
        self._unused: list[int] = []

    def put(self, name: str, lack: Lack | None) -> None:
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

    def count(self, reason: Reason) -> Count:
        """Of the nodes that lack this."""
        codes = [(lack.offer, code) for lack, code in self._codes.items() if lack.reason is reason]
        if not codes:
            return Count(0, 0, "")
        offer, code = max(codes)
        nodes = sum(self._counts[each - 1] for _, each in codes)
        return Count(nodes, offer, self._places.name(self._marks.index(code)))

    def _code(self, lack: Lack) -> int:
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
