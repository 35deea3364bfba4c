"""Episode after episode until so many steps are taken or one shows a fault, which is then shown in few steps."""

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
    from simulator.plan import Deed, Step
    from simulator.replica_process import Start

TRIES: Final = 200
"""How many times a failure is played again to find the fewest steps."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong, and how to see it again."""

    seed: int
    violation: str
    steps: int
    """How many steps of its episode were taken."""
    fewest: tuple[Step, ...]
    """Of these, those that are enough."""


@dataclass(slots=True)
class Total:
    """What a run came to."""

    seed: int
    steps: int = 0
    binds: int = 0
    checked: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    struck: Counter[Fault] = field(default_factory=Counter)
    done: Counter[Deed] = field(default_factory=Counter)
    failure: Failure | None = None
    digest: str = ""
    """Of every request so far, its time and its answer: what differs between two runs of one seed is a defect."""

    def add(self, outcome: Outcome) -> None:
        """One more episode."""
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
    tell: Callable[[Total], None] = lambda _: None,
    tries: int = TRIES,
) -> Total:
    """Take so many steps from this seed, less those `after` which it goes on; `tell` hears of it after each episode.

    `after` is what another run has done: whole episodes. Those that are left are the same as if it had done none.
    Each of `jobs` processes makes its own start by `starter`. However many there are, one seed comes to one Total.
    """
    total = Total(seed)
    sizes = (min(EPISODE, steps - first) for first in range(0, steps, EPISODE))
    episodes = [(seed_of(seed, number), size) for number, size in enumerate(sizes)][after // EPISODE :]
    with closing(_played(episodes, starter, jobs)) as outcomes:
        for (own, size), outcome in zip(episodes, outcomes, strict=True):
            total.add(outcome)
            tell(total)
            if outcome.violation is not None:
                taken = plan(own, size)[: outcome.steps]
                total.failure = _failure(own, taken, outcome.violation, starter(), tries)
                break
    return total


def _played(episodes: Sequence[tuple[int, int]], starter: Callable[[], Start], jobs: int) -> Generator[Outcome]:
    """What each came to, in their order."""
    if jobs == 1:
        start = starter()
        yield from (play(own, plan(own, size), start) for own, size in episodes)
        return
    # Not by a fork: what this process has imported or begun is not theirs.
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), _begin, (starter,))
    try:
        yield from pool.map(_episode, episodes)
    finally:
        pool.shutdown(cancel_futures=True)


_starts: list[Start] = []
"""What plays an episode in a process of `_played`."""


def _begin(starter: Callable[[], Start]) -> None:
    # Ctrl-C reaches all; the one that started us ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _starts[:] = [starter()]


def _episode(episode: tuple[int, int]) -> Outcome:
    own, size = episode
    return play(own, plan(own, size), _starts[0])


def play(seed: int, steps: Sequence[Step], start: Start) -> Outcome:
    """One episode; what it leaves behind is collected after it, and never at a moment of its own."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return Episode(seed, start).run(steps)
    finally:
        gc.collect()
        if collects:
            gc.enable()


def _failure(seed: int, steps: tuple[Step, ...], violation: str, start: Start, tries: int) -> Failure:
    """The fewest steps that break the same invariant."""
    invariant = violation.partition(":")[0]

    def fails(some: Sequence[Step]) -> bool:
        again = play(seed, some, start).violation
        return again is not None and again.partition(":")[0] == invariant

    return Failure(seed, violation, len(steps), shrunk(steps, fails, tries))
