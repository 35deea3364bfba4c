"""Checks for errors that should never occur: a GPU held twice, and a ledger that differs from the API objects.

LAW: reports a conflict; logs, counts and repairs wrong ledger entries. Never stops the loop.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gpu_scheduler.scheduler.status_writer import conflict_notice

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.core.ledger.devices import Conflict
    from gpu_scheduler.core.ledger.ledger import Ledger
    from gpu_scheduler.scheduler.ports import EventRecorder, RepairMetrics

log = logging.getLogger(__name__)


class LedgerAudit:
    """Two checks, each at its own interval in seconds; the loop calls `run`, which does what is due."""

    def __init__(
        self, event_recorder: EventRecorder, recorder: RepairMetrics, *, now: float, interval: float, rebuild: float
    ) -> None:
        """Report conflicts every `interval` seconds, and compare the ledger with a new one every `rebuild` seconds."""
        self._event_recorder = event_recorder
        self._recorder = recorder
        self._interval = interval
        self._rebuild = rebuild
        self._due = now
        self._rebuild_due = now + rebuild
        self._reported: frozenset[Conflict] = frozenset()

    def run(self, now: float, ledger: Ledger, rebuild_ledger: Callable[[], Ledger]) -> Ledger:
        """Run the checks that are due. Return the ledger to use from now on."""
        if now >= self._rebuild_due:
            self._rebuild_due = now + self._rebuild
            ledger = self._verify(ledger, rebuild_ledger())
        if now >= self._due:
            self._due = now + self._interval
            self._report_conflicts(ledger)
        return ledger

    def _verify(self, ledger: Ledger, rebuilt: Ledger) -> Ledger:
        wrong = ledger.differences(rebuilt)
        if not wrong:
            return ledger
        log.error("The ledger differed from the API objects and was rebuilt", extra={"entries": wrong})
        self._recorder.repaired(wrong)
        return rebuilt

    def _report_conflicts(self, ledger: Ledger) -> None:
        """Record an event on both pods of each new conflict: a GPU held twice against the rules."""
        found = frozenset(ledger.conflicts())
        for conflict in found - self._reported:
            for holder, other in ((conflict.first, conflict.second), (conflict.second, conflict.first)):
                self._event_recorder.record(holder.ref, conflict_notice(conflict, holder, other))
        self._reported = found
