"""Looks after what should never happen: a GPU held twice, and a ledger that differs from the objects it is made of.

LAW: says it, counts it and puts it right; never stops the loop.
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
    """Two looks, each at its own interval in seconds; who runs the loop asks when they are due."""

    def __init__(
        self, event_recorder: EventRecorder, recorder: RepairMetrics, *, now: float, look: float, rebuild: float
    ) -> None:
        """`look` is how often conflicts are told, `rebuild` how often the ledger is held against a new one."""
        self._event_recorder = event_recorder
        self._recorder = recorder
        self._look = look
        self._rebuild = rebuild
        self._look_due = now
        self._rebuild_due = now + rebuild
        self._told: frozenset[Conflict] = frozenset()

    def run(self, now: float, ledger: Ledger, rebuilt: Callable[[], Ledger]) -> Ledger:
        """Do what is due; answers the ledger to go on with."""
        if now >= self._rebuild_due:
            self._rebuild_due = now + self._rebuild
            ledger = self._compared(ledger, rebuilt())
        if now >= self._look_due:
            self._look_due = now + self._look
            self._tell_conflicts(ledger)
        return ledger

    def _compared(self, ledger: Ledger, rebuilt: Ledger) -> Ledger:
        wrong = ledger.differences(rebuilt)
        if not wrong:
            return ledger
        log.error("The ledger differed from the cluster and was made anew", extra={"entries": wrong})
        self._recorder.repaired(wrong)
        return rebuilt

    def _tell_conflicts(self, ledger: Ledger) -> None:
        """Tell both pods' owners, once, of a GPU held twice against the rules."""
        found = frozenset(ledger.conflicts())
        for conflict in found - self._told:
            for holder, other in ((conflict.first, conflict.second), (conflict.second, conflict.first)):
                self._event_recorder.record(holder.ref, conflict_notice(conflict, holder, other))
        self._told = found
