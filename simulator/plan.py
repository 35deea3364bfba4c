"""From a seed to steps: data that is there before anything runs, so that one can be left out and no other changes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import accumulate
from random import Random
from typing import Any, Final

from simulator.faults import ACTS, Fault

EPISODE: Final = 1000
"""Steps with one cluster; then another begins, so that a failure is found again in seconds."""
_GOLDEN: Final = 0x9E3779B97F4A7C15
_WORD: Final = 2**64


class Deed(StrEnum):
    """What the cluster's actors do beside what goes wrong."""

    CREATE = "create"
    FINISH = "finish"
    DELETE = "delete"
    REAP = "reap"
    RUN = "run"
    LEAVE = "leave"
    QUIET = "quiet"


@dataclass(frozen=True, slots=True)
class Step:
    """After `gap` seconds, `what`; its numbers choose among what there is then."""

    number: int
    gap: float
    what: Deed | Fault
    a: int
    b: int

    def told(self) -> dict[str, Any]:
        """As a trace has it."""
        return asdict(self)


_DEEDS: Final[dict[Deed | Fault, int]] = {
    Deed.CREATE: 400,
    Deed.FINISH: 190,
    Deed.DELETE: 90,
    Deed.REAP: 10,
    Deed.RUN: 40,
    Deed.LEAVE: 20,
    Deed.QUIET: 14,
}
_LASTING: Final[dict[Deed | Fault, int]] = {
    Fault.WATCH_EXPIRED: 4,
    Fault.WATCH_CUT: 5,
    Fault.WATCH_TRUNCATED: 4,
    Fault.WATCH_FROZEN: 8,
    Fault.WATCH_SILENT: 4,
    Fault.WATCH_TWICE: 4,
    Fault.WATCH_BOOKMARKS: 4,
    Fault.DELETED_LOST: 5,
    Fault.OUTAGE: 3,
    Fault.PARTITION: 3,
    Fault.LEASE_TAKEN: 2,
    Fault.PROCESS_STOPPED: 5,
    Fault.PROCESS_KILLED: 3,
    Fault.PROCESS_RESTARTED: 3,
    Fault.CLOCK_STEPPED: 3,
    Fault.NODE_CORDONED: 5,
    Fault.NODE_NOT_READY: 5,
    Fault.NODE_DELETED: 4,
    Fault.NODE_GPUS: 5,
    Fault.CAPACITY_TAKEN: 14,
    Fault.POD_RECREATED: 12,
}
_ARMED: Final = 5
# They only come after another fault of a bind.
_RARE: Final[dict[Deed | Fault, int]] = {Fault.LOOK_LOST: 9, Fault.LOOK_500: 9}
_STRIKING: Final[dict[Deed | Fault, int]] = dict.fromkeys(ACTS, _ARMED)
_CHOICES: Final = _DEEDS | _STRIKING | _RARE | _LASTING
_WHAT: Final = tuple(_CHOICES)
_WEIGHTS: Final = tuple(accumulate(_CHOICES.values()))

_SLOW: Final = frozenset(
    {Fault.OUTAGE, Fault.PARTITION, Fault.LEASE_TAKEN, Fault.PROCESS_STOPPED, Fault.PROCESS_KILLED}
)
"""After these nobody may lead for a while: the next steps leave more time."""
_SUDDEN: Final = frozenset({Fault.POD_RECREATED, Fault.PROCESS_STOPPED, Fault.PROCESS_KILLED, Fault.PARTITION})
"""These come right after what was before: between a decision and its bind, if they have luck."""
_AFTER: Final = 6
_LONG: Final = 4.0
_USUAL: Final = 0.25
_BRIEF: Final = 0.01


def seed_of(seed: int, episode: int) -> int:
    """An episode's own seed: a run that begins with it begins with that episode."""
    return (seed + episode * _GOLDEN) % _WORD


def plan(seed: int, steps: int) -> tuple[Step, ...]:
    """The steps of one episode; the last ends every fault and looks."""
    random = Random(f"{seed}/plan")  # noqa: S311 - it must be the same again
    made: list[Step] = []
    slow = 0
    for number in range(steps - 1):
        what: Deed | Fault = random.choices(_WHAT, cum_weights=_WEIGHTS)[0]
        gap = _gap(random, long=slow > 0, what=what)
        slow = _AFTER if what in _SLOW else max(0, slow - 1)
        made.append(Step(number, gap, what, random.randrange(1 << 30), random.randrange(1 << 30)))
    return (*made, Step(steps - 1, 0.0, Deed.QUIET, 0, 0))


def _gap(random: Random, *, long: bool, what: Deed | Fault) -> float:
    if what in _SUDDEN:
        return round(random.uniform(0, _BRIEF), 4)
    if long:
        return round(random.uniform(0, _LONG), 3)
    return round(random.choice((random.uniform(0, _BRIEF), random.uniform(0, _USUAL))), 4)
