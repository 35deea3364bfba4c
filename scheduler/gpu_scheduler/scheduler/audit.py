"""Checks for what should never occur: a GPU held twice, a pod whose GPU has moved, a ledger that differs from the API.

LAW: reports conflicts and moved GPUs; logs, counts and repairs wrong ledger entries. Never stops the loop.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from gpu_scheduler.scheduler.status_writer import conflict_notice, moved_notice

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.core.ledger.conflicts import Conflict
    from gpu_scheduler.core.ledger.hold import Hold
    from gpu_scheduler.core.ledger.ledger import Ledger
    from gpu_scheduler.core.ledger.moved_gpus import MovedGpu
    from gpu_scheduler.scheduler.ports import EventRecorder, RepairMetrics

log = logging.getLogger(__name__)


class LedgerAudit:
    """Two checks, each at its own interval in seconds; the loop calls `run`, which does what is due."""

    def __init__(
        self, event_recorder: EventRecorder, recorder: RepairMetrics, *, now: float, interval: float, rebuild: float
    ) -> None:
        """Report conflicts and moved GPUs every `interval` seconds.

        Compare the ledger with a new one every `rebuild` seconds.
        """
        self._event_recorder = event_recorder
        self._recorder = recorder
        self._interval = interval
        self._rebuild = rebuild
        self._due = now
        self._rebuild_due = now + rebuild
        self._conflicts: frozenset[Conflict] = frozenset()
        self._moved: dict[str, tuple[MovedGpu, ...]] = {}
        """By uid: what was reported of pods whose GPUs have moved."""

    async def run(self, now: float, ledger: Ledger, rebuild_ledger: Callable[[], Ledger]) -> Ledger:
        """Run the checks that are due. Return the ledger to use from now on.

        Other tasks run between two nodes, so that many contended nodes hold up nobody.
        """
        if now >= self._rebuild_due:
            self._rebuild_due = now + self._rebuild
            ledger = self._verify(ledger, rebuild_ledger())
        if now >= self._due:
            self._due = now + self._interval
            for _ in ledger.check_nodes():
                await asyncio.sleep(0)
            self._report_conflicts(ledger)
            self._report_moved(ledger)
        return ledger

    def _verify(self, ledger: Ledger, rebuilt: Ledger) -> Ledger:
        wrong = ledger.differences(rebuilt)
        if not wrong:
            return ledger
        log.error("The ledger differed from the API objects and was rebuilt", extra={"entries": wrong})
        self._recorder.repaired(wrong)
        return rebuilt

    def _report_conflicts(self, ledger: Ledger) -> None:
        """Record an event on the pods of each new conflict: a GPU held twice against the rules."""
        found = frozenset(ledger.conflicts())
        for conflict in found - self._conflicts:
            for holder, other in ((conflict.first, conflict.second), (conflict.second, conflict.first)):
                if not holder.is_claim:
                    self._event_recorder.record(holder.ref, conflict_notice(conflict, holder, other))
        self._conflicts = found

    def _report_moved(self, ledger: Ledger) -> None:
        """Record an event on each pod whose GPUs have moved, and again when they have moved anew."""
        found: list[tuple[Hold, tuple[MovedGpu, ...]]] = list(ledger.devices.moved())
        for holder, moved in found:
            if self._moved.get(holder.ref.uid) != moved:
                self._event_recorder.record(holder.ref, moved_notice(holder, moved))
        self._moved = {holder.ref.uid: moved for holder, moved in found}
