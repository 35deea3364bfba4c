"""An auditor beside the scheduler: it shares no code with it, and tells which of the invariants I1 to I11 did not hold.

    with auditing(plane, command, proxy=proxy) as auditor:
        ...                                   # pods, faults; the last fault ends
        assert auditor.report() == []

`plane` keeps an audit log: shipped.audited_plane makes such a one. `command` is the scheduler, started with
DEBUG_ENDPOINTS=true; `proxy` the fault proxy, if there is one. `follow` names another scheduler in its place: the next
replica, after a kill. Where no scheduler lives, I5 and I7 are not asked. I6 and I11 are asked of each scheduler that
was started with a DECISION_JOURNAL, a file of its own.

`calm` marks a stretch without faults, in which freed GPUs must soon be used (I9):

        with auditor.calm():
            bench.delete("holder-0")
            bench.wait_bound("waiter-0", "node1")

`report` is called when the last fault has ended: it waits until everybody who waits has been told, and everybody who
fits is bound, for at most Allowed.liveness seconds; whoever is left is a violation of I7. It gives every violation
since the auditor began, each once. `allowed` changes times and amounts, for a fault that needs others; these times are
taken as they are, on however slow a machine.
"""

from __future__ import annotations

import http.client
import time
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING

import msgspec

from tests.auditor.audit_log import AuditLog
from tests.auditor.findings import Allowed, Violation
from tests.auditor.holding import ledger_differs
from tests.auditor.journal import Journal
from tests.auditor.patience import idle, waiting
from tests.auditor.placements import agreeing, crowded, dying, shared
from tests.auditor.spending import Usage, hot
from tests.auditor.watching import Watching
from tests.auditor.writes import bound_once, foreign
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.auditor.history import Event
    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.faults.proxy import FaultProxy


class Auditor:
    """Hears everything from its beginning to its end."""

    def __init__(self, plane: ControlPlane, proxy: FaultProxy | None, allowed: Allowed) -> None:
        """List, and begin to watch."""
        self.allowed = allowed
        self._plane = plane
        self._proxy = proxy
        self._began = time.monotonic()
        self.log = AuditLog(plane)
        self.usage = Usage()
        self._watches = [Watching(plane, "nodes"), Watching(plane, "pods")]
        self._command: Command | None = None
        self._calm: list[tuple[float, float]] = []
        self._journals: list[Journal] = []

    def follow(self, command: Command, program: str = "tests.replaying") -> None:
        """Take this process for the scheduler from now on; what the others did before is not forgotten.

        `program` is the module that decides again by the journal: where the scheduler has a fault built in, with it.
        """
        self._command = command
        self.usage.follow(command.process.pid)
        if command.journal is not None:
            self._journals.append(Journal(command.journal, program))

    @contextmanager
    def calm(self) -> Iterator[None]:
        """Hold the scheduler to the time in which a freed GPU must be used: no fault is in force."""
        began, number = time.monotonic(), len(self._calm)
        self._calm.append((began, inf))
        try:
            yield
        finally:
            self._calm[number] = began, time.monotonic()

    @property
    def placements(self) -> int:
        """How many pods it has seen that the scheduler placed: an audit of nothing proves nothing."""
        return len({event.seen.thing.metadata.uid for event in self._history() if event.seen.thing.placed})

    def report(self) -> list[Violation]:
        """Give every violation since the beginning, when what is on its way has had its time."""
        deadline = time.monotonic() + self.allowed.liveness
        lives = self._command is not None and self._command.process.alive()
        late = list(waiting(self._history())) if lives else []
        while late and time.monotonic() < deadline:
            time.sleep(0.2)
            late = list(waiting(self._history()))
        events, entries = self._history(), self.log.entries()
        found = {
            *late,
            *shared(events),
            *agreeing(events, self.allowed),
            *bound_once(entries, events),
            *crowded(events, self.allowed),
            *foreign(entries, events),
            *dying(events),
            *idle(events, self._calm, self.allowed, time.monotonic()),
            *self.usage.violations(self.allowed),
        }
        for journal in self._journals:
            found |= set(journal.violations())
        if self._proxy is not None:
            found |= set(hot(tuple(self._proxy.seen), self._began, self.allowed))
        if lives and self._command is not None:
            found |= set(ledger_differs(self._plane.kube, self._command, self.allowed.settling))
        return sorted(found)

    def close(self) -> None:
        """Hear nothing more."""
        for watch in self._watches:
            watch.close()
        self.usage.close()

    def _history(self) -> list[Event]:
        """Give all that has happened up to now, and nothing less."""
        eventually("the auditor has heard of everything", self._caught_up, seconds=30)
        return [event for watch in self._watches for event in tuple(watch.events)]

    def _caught_up(self) -> bool:
        try:
            return all(watch.caught_up() for watch in self._watches)
        except (OSError, http.client.HTTPException, msgspec.DecodeError):
            return False


@contextmanager
def auditing(
    plane: ControlPlane,
    command: Command | None = None,
    *,
    proxy: FaultProxy | None = None,
    allowed: Allowed | None = None,
) -> Iterator[Auditor]:
    """Audit from here to the end of the block."""
    auditor = Auditor(plane, proxy, allowed or Allowed().here())
    try:
        if command is not None:
            auditor.follow(command)
        yield auditor
    finally:
        auditor.close()
