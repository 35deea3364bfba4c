"""The auditor checks the invariants I1 to I11 beside a running scheduler, and shares no code with it.

    with auditing(plane, command, proxy=proxy) as auditor:
        ...                                   # pods, faults; the last fault ends
        assert auditor.report() == []

`plane` must keep an audit log (tests.integration.role_manifests.audited_plane). `command` is the scheduler, started
with DEBUG_ENDPOINTS=true, and `proxy` the optional fault proxy. `follow` replaces the scheduler, for example by the
next replica after a kill. I5 and I7 are checked only while the scheduler runs. I6 and I11 are checked for each
scheduler that was started with a DECISION_JOURNAL, a file of its own.

`quiet` marks a time without faults, in which freed GPUs must soon be used (I9):

        with auditor.quiet():
            namespace.delete("holder-0")
            namespace.wait_bound("waiter-0", "node1")

Call `report` when the last fault has ended. It waits at most Allowed.liveness seconds until every waiting pod has a
condition with a reason and every pod that fits is bound. Each other pod is a violation of I7. It returns every
violation since the auditor was created, each once. `allowed` changes times and amounts for a fault that needs others.
Its times do not grow on a slow machine.
"""

from __future__ import annotations

import http.client
import time
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING

import msgspec

from tests.auditor.audit_log import AuditLog
from tests.auditor.costs import Usage, hot
from tests.auditor.findings import Allowed, Violation
from tests.auditor.journal import Journal
from tests.auditor.ledger import ledger_differs
from tests.auditor.list_watch import Watching
from tests.auditor.placements import agreeing, shared, terminating_holders, with_waiting_pods
from tests.auditor.waiting_pods import idle, waiting
from tests.auditor.writes import bound_once, foreign
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.auditor.history import Event
    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.faults.proxy import FaultProxy


class Auditor:
    """Watches pods and nodes, reads the audit log, and checks the invariants in `report`."""

    def __init__(self, plane: ControlPlane, proxy: FaultProxy | None, allowed: Allowed) -> None:
        """List pods and nodes, and start to watch them."""
        self.allowed = allowed
        self._plane = plane
        self._proxy = proxy
        self._began = time.monotonic()
        self.log = AuditLog(plane)
        self.usage = Usage()
        self._watches = [Watching(plane, "nodes"), Watching(plane, "pods")]
        self._command: Command | None = None
        self._quiet: list[tuple[float, float]] = []
        self._journals: list[Journal] = []

    def follow(self, command: Command) -> None:
        """Audit this process as the scheduler from now on. Earlier processes still count in `report`.

        Its own module replays its journal, so that the replay of a scheduler with a built-in fault has that fault.
        """
        self._command = command
        self.usage.follow(command.process.pid)
        if command.journal is not None:
            self._journals.append(Journal(command.journal, command.module))

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Check during the block that freed GPUs are used in time (I9). No fault may be in force."""
        began, number = time.monotonic(), len(self._quiet)
        self._quiet.append((began, inf))
        try:
            yield
        finally:
            self._quiet[number] = began, time.monotonic()

    @property
    def placements(self) -> int:
        """Number of pods that the scheduler bound. A test asserts it, because an audit without binds proves nothing."""
        return len({event.seen.api_object.metadata.uid for event in self._history() if event.seen.api_object.placed})

    def report(self) -> list[Violation]:
        """Return every violation since the start, sorted. First wait for pods that are not yet bound or reported."""
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
            *with_waiting_pods(events, self.allowed),
            *foreign(entries, events),
            *terminating_holders(events),
            *idle(events, self._quiet, self.allowed, time.monotonic()),
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
        """Stop the watches and the threads."""
        for watch in self._watches:
            watch.close()
        self.usage.close()

    def _history(self) -> list[Event]:
        """Return all events up to now. Wait until the watches have caught up with a fresh list."""
        eventually("the auditor's watches have caught up", self._caught_up, seconds=30)
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
    """Run an auditor until the end of the block."""
    auditor = Auditor(plane, proxy, allowed or Allowed().here())
    try:
        if command is not None:
            auditor.follow(command)
        yield auditor
    finally:
        auditor.close()
