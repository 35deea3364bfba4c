"""One episode: a cluster and two replicas carry out the steps of a plan; the invariants are checked after each step."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from simulator.api_server.server import Server
from simulator.clock import NoProgressError, Timeline
from simulator.cluster.actors import ClusterActors
from simulator.fault_injector import FaultInjector
from simulator.faults import FaultState
from simulator.invariants.checker import BrokenError, Checker
from simulator.log_capture import ErrorCapture, deterministic
from simulator.plan import Action, uses_claims
from simulator.replica_process import Process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.api_server.server import ApiRequest
    from simulator.faults import Fault
    from simulator.plan import Step
    from simulator.replica_process import Isolation, Start

REPLICAS: Final = ("one", "two")
DEADLINE: Final = 30.0
"""Seconds after the last fault within which all invariants must hold."""
_CHECK_INTERVALS: Final = (1.0, 2.0, 4.0, 8.0, 5.0, 5.0, 5.0)
_START_SECONDS: Final = 3.0


@dataclass(slots=True)
class Outcome:
    """The result of an episode."""

    steps: int = 0
    binds: int = 0
    checked: int = 0
    seconds: float = 0.0
    struck: Counter[Fault] = field(default_factory=Counter)
    done: Counter[Action] = field(default_factory=Counter)
    digest: str = ""
    violation: str | None = None
    slowest: float = 0.0
    """The longest recovery after the last fault, in seconds."""


class Episode:
    """One run with a cluster, an API server and replicas of its own."""

    def __init__(self, seed: int, start: Start) -> None:
        """Make everything; nothing runs yet."""
        self._seed = seed
        self.timeline = Timeline()
        self.server = Server()
        self.faults = FaultState()
        self.outcome = Outcome()
        self._digest = hashlib.sha256()
        self.server.hooks.asked.append(self._note)
        self.checker = Checker(self.timeline, self.server)
        claims = uses_claims(seed)
        self.actors = ClusterActors(seed, self.timeline, self.server, claims=claims)
        isolation: Isolation = "dra" if claims else "env"
        self.processes = tuple(
            Process(name, start, self.timeline, self.server, self.faults, isolation) for name in REPLICAS
        )
        self._injector = FaultInjector(self.timeline, self.server, self.faults, self.processes, self.actors)

    def run(self, steps: Sequence[Step]) -> Outcome:
        """Carry out the steps until an invariant breaks."""
        outcome = self.outcome
        begun = self.timeline.now
        with deterministic(self._seed), ErrorCapture() as captured:
            try:
                self.timeline.run(_START_SECONDS)
                for step in steps:
                    outcome.steps += 1
                    self._take(step)
                    if captured.errors:
                        outcome.violation = f"error: {captured.errors[0]}"
                        break
            except (BrokenError, NoProgressError) as error:
                outcome.violation = str(error)
            finally:
                for process in self.processes:
                    process.end()
        outcome.binds, outcome.checked = self.checker.binds, self.checker.checked
        outcome.seconds = self.timeline.now - begun
        outcome.struck = self.faults.struck
        outcome.digest = self._digest.hexdigest()
        return outcome

    def _take(self, step: Step) -> None:
        self.timeline.run(step.gap)
        if step.what is Action.QUIET:
            self._check_quiet_point()
        elif self.actors.knows(step.what):
            if self.actors.do(step):
                self._count(step.what)
        else:
            self._injector.do(step)
        self.checker.check()

    def _count(self, what: Action | Fault) -> None:
        if isinstance(what, Action):
            self.outcome.done[what] += 1
        else:
            self.faults.strike(what)

    def _check_quiet_point(self) -> None:
        """End every fault, and check that all invariants hold in time."""
        self._injector.end_all()
        self.actors.run_delayed()
        waited = 0.0
        wrong = None
        for seconds in _CHECK_INTERVALS:
            self.timeline.run(seconds)
            waited += seconds
            wrong = self._wrong()
            if wrong is None:
                break
        if wrong is not None:
            raise BrokenError(f"{wrong}, {DEADLINE:g} s after the last fault")
        self.outcome.done[Action.QUIET] += 1
        self.outcome.slowest = max(self.outcome.slowest, waited)

    def _wrong(self) -> str | None:
        leaders = [process for process in self.processes if process.leading]
        if len(leaders) != 1:
            return f"leader: {len(leaders)} replicas lead"
        waiting = next(self.checker.waiting(), None)
        if waiting is not None:
            return waiting
        held = self.checker.held()
        for process in self.processes:
            if process.replica is None:
                return f"replica: {process.name} does not run"
            scheduler = process.replica.scheduler
            self.checker.checked += 2
            ledger = {holder.ref.uid: (holder.node, holder.devices) for holder in scheduler.ledger}
            if ledger != held:
                odd = sorted(set(ledger.items()) ^ set(held.items()))
                return f"ledger: {process.name} has other holders than the API server: {odd[:2]}"
            wrong = scheduler.ledger.differences(scheduler.cache.rebuild_ledger(scheduler.pod_states))
            if wrong:
                return f"rebuild: {wrong} entries of {process.name} differ from a ledger that is made anew"
        return None

    def _note(self, request: ApiRequest, status: int) -> None:
        """Add a request to the digest; the body of an event is left out, because its name has the real time."""
        body = b"" if request.path.endswith("/events") else request.body or b""
        line = f"{self.timeline.now:.6f} {request.who} {request.verb} {request.path} {status} "
        self._digest.update(line.encode() + body)
