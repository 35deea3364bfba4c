"""Runs episodes until the number of steps is reached or an invariant breaks, and then minimizes that episode."""

from __future__ import annotations

import gc
import hashlib
import signal
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import TYPE_CHECKING, Final

from simulator.episode import Episode
from simulator.minimize import shrunk
from simulator.plan import EPISODE, plan, seed_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from simulator.episode import Outcome
    from simulator.faults import Fault
    from simulator.plan import Action, Step
    from simulator.replica_process import Start

TRIES: Final = 200
"""How many times a failure is replayed to find the fewest steps."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A violation, and how to reproduce it."""

    seed: int
    violation: str
    steps: int
    """How many steps its episode took."""
    fewest: tuple[Step, ...]
    """The fewest of these steps that were found to break the same invariant."""


@dataclass(slots=True)
class Total:
    """The result of a run."""

    seed: int
    steps: int = 0
    binds: int = 0
    checked: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    struck: Counter[Fault] = field(default_factory=Counter)
    done: Counter[Action] = field(default_factory=Counter)
    failure: Failure | None = None
    digest: str = ""
    """Digest of all requests, their times and answers. If two runs of a seed have different ones, there is a defect."""

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of an episode."""
        self.steps += outcome.steps
        self.binds += outcome.binds
        self.checked += outcome.checked
        self.seconds += outcome.seconds
        self.slowest = max(self.slowest, outcome.slowest)
        self.struck.update(outcome.struck)
        self.done.update(outcome.done)
        self.digest = hashlib.sha256((self.digest + outcome.digest).encode()).hexdigest()


def soak(  # noqa: PLR0913 - what the command line passes on
    seed: int,
    steps: int,
    starter: Callable[[], Start],
    *,
    after: int = 0,
    jobs: int = 1,
    progress: Callable[[Total], None] = lambda _: None,
    tries: int = TRIES,
) -> Total:
    """Run `steps` steps of this seed, without the first `after`; call `progress` after each episode.

    `after` counts the steps of whole episodes that another run has done. The rest are the same as in a single run.
    Each of `jobs` processes calls `starter`. Their number does not change the result.
    """
    total = Total(seed)
    sizes = (min(EPISODE, steps - first) for first in range(0, steps, EPISODE))
    episodes = [(seed_of(seed, number), size) for number, size in enumerate(sizes)][after // EPISODE :]
    with closing(_played(episodes, starter, jobs)) as outcomes:
        for (own, size), outcome in zip(episodes, outcomes, strict=True):
            total.add(outcome)
            progress(total)
            if outcome.violation is not None:
                taken = plan(own, size)[: outcome.steps]
                total.failure = _failure(own, taken, outcome.violation, starter(), tries)
                break
    return total


def _played(episodes: Sequence[tuple[int, int]], starter: Callable[[], Start], jobs: int) -> Generator[Outcome]:
    """Give the outcomes in order."""
    if jobs == 1:
        start = starter()
        yield from (play(own, plan(own, size), start) for own, size in episodes)
        return
    # Spawned, not forked: they must not share the state of this process.
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), _begin, (starter,))
    try:
        yield from pool.map(_episode, episodes)
    finally:
        pool.shutdown(cancel_futures=True)


_starts: list[Start] = []
"""In a process of `_played`: the one function that makes its replicas."""


def _begin(starter: Callable[[], Start]) -> None:
    # Ctrl-C reaches all processes; the parent ends its children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _starts[:] = [starter()]


def _episode(episode: tuple[int, int]) -> Outcome:
    own, size = episode
    return play(own, plan(own, size), _starts[0])


def play(seed: int, steps: Sequence[Step], start: Start) -> Outcome:
    """Run one episode; garbage is collected only after it, so that the run is deterministic."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return Episode(seed, start).run(steps)
    finally:
        gc.collect()
        if collects:
            gc.enable()


def _failure(seed: int, steps: tuple[Step, ...], violation: str, start: Start, tries: int) -> Failure:
    """Find the fewest steps that break the same invariant."""
    invariant = violation.partition(":")[0]

    def fails(some: Sequence[Step]) -> bool:
        again = play(seed, some, start).violation
        return again is not None and again.partition(":")[0] == invariant

    return Failure(seed, violation, len(steps), shrunk(steps, fails, tries))
