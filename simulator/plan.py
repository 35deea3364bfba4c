"""Makes the steps of an episode from a seed. They exist before the run, so one can be left out and no other changes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import accumulate
from random import Random
from typing import Any, Final

from simulator.faults import ACTS, Fault

EPISODE: Final = 1000
"""Steps with one cluster; the next episode has a new one, so a failure is reproduced in seconds."""
_GOLDEN: Final = 0x9E3779B97F4A7C15
_WORD: Final = 2**64


class Action(StrEnum):
    """The actions of the cluster's actors; the other steps are faults."""

    CREATE = "create"
    FINISH = "finish"
    DELETE = "delete"
    REAP = "reap"
    RUN = "run"
    LEAVE = "leave"
    CLAIM = "claim"
    CLEAR = "clear"
    QUIET = "quiet"


@dataclass(frozen=True, slots=True)
class Step:
    """Do `what` after `gap` seconds; the numbers `a` and `b` choose among the existing objects."""

    number: int
    gap: float
    what: Action | Fault
    a: int
    b: int

    def as_json(self) -> dict[str, Any]:
        """Give the step as a trace has it."""
        return asdict(self)


_ACTIONS: Final[dict[Action | Fault, int]] = {
    Action.CREATE: 400,
    Action.FINISH: 190,
    Action.DELETE: 90,
    Action.REAP: 10,
    Action.RUN: 40,
    Action.LEAVE: 20,
    Action.QUIET: 14,
}
_LASTING: Final[dict[Action | Fault, int]] = {
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
# These take effect only after another fault of a bind.
_RARE: Final[dict[Action | Fault, int]] = {Fault.GET_LOST: 9, Fault.GET_500: 9}
_STRIKING: Final[dict[Action | Fault, int]] = dict.fromkeys((each for each in ACTS if ACTS[each][0] != "claim"), _ARMED)
_CHOICES: Final = _ACTIONS | _STRIKING | _RARE | _LASTING
_ON_CLAIMS: Final[dict[Action | Fault, int]] = {Action.CLAIM: 60, Action.CLEAR: 50}
_STRIKING_CLAIMS: Final[dict[Action | Fault, int]] = dict.fromkeys((each for each in ACTS if each not in _STRIKING), 12)
_WITH_CLAIMS: Final = _CHOICES | _ON_CLAIMS | _STRIKING_CLAIMS
_EVERY: Final = 4
"""In one of so many episodes, pods have ResourceClaims."""

_SLOW: Final = frozenset(
    {Fault.OUTAGE, Fault.PARTITION, Fault.LEASE_TAKEN, Fault.PROCESS_STOPPED, Fault.PROCESS_KILLED}
)
"""After these there may be no leader for some time, so the next steps have longer gaps."""
_SUDDEN: Final = frozenset({Fault.POD_RECREATED, Fault.PROCESS_STOPPED, Fault.PROCESS_KILLED, Fault.PARTITION})
"""These follow the previous step at once, so that some fall between a decision and its bind."""
_AFTER: Final = 6
_LONG: Final = 4.0
_USUAL: Final = 0.25
_BRIEF: Final = 0.01


def seed_of(seed: int, episode: int) -> int:
    """Give an episode's own seed: a run with this seed begins with that episode."""
    return (seed + episode * _GOLDEN) % _WORD


def uses_claims(seed: int) -> bool:
    """Whether the pods of the episode with this seed have ResourceClaims."""
    return seed % _EVERY == 0


def plan(seed: int, steps: int) -> tuple[Step, ...]:
    """Give the steps of one episode; the last is a quiet point."""
    random = Random(f"{seed}/plan")  # noqa: S311 - it must be the same again
    choices = _WITH_CLAIMS if uses_claims(seed) else _CHOICES
    weights = tuple(accumulate(choices.values()))
    made: list[Step] = []
    slow = 0
    for number in range(steps - 1):
        what: Action | Fault = random.choices(tuple(choices), cum_weights=weights)[0]
        gap = _gap(random, long=slow > 0, what=what)
        slow = _AFTER if what in _SLOW else max(0, slow - 1)
        made.append(Step(number, gap, what, random.randrange(1 << 30), random.randrange(1 << 30)))
    return (*made, Step(steps - 1, 0.0, Action.QUIET, 0, 0))


def _gap(random: Random, *, long: bool, what: Action | Fault) -> float:
    if what in _SUDDEN:
        return round(random.uniform(0, _BRIEF), 4)
    if long:
        return round(random.uniform(0, _LONG), 3)
    return round(random.choice((random.uniform(0, _BRIEF), random.uniform(0, _USUAL))), 4)
