"""Checks for what should never occur: a GPU held twice, a pod whose GPU has moved, a ledger that differs from the API.

LAW: reports conflicts and moved GPUs; logs, counts and repairs wrong ledger entries. Never stops the loop.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from gpu_scheduler.kube.turns import in_turns
from gpu_scheduler.scheduler.status_writer import conflict_notice, moved_notice

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from gpu_scheduler.core.ledger.conflicts import Conflict
    from gpu_scheduler.core.ledger.hold import Hold
    from gpu_scheduler.core.ledger.ledger import Ledger
    from gpu_scheduler.core.ledger.moved_gpus import MovedGpu
    from gpu_scheduler.scheduler.ports import EventRecorder, RepairMetrics

    LedgerSteps = Callable[[], tuple[Ledger, Iterable[Callable[[], object]]]]

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

    async def run(
        self, now: float, ledger: Ledger, ledger_steps: LedgerSteps, lists_ended: Callable[[], Awaitable[None]]
    ) -> Ledger:
        """Run the checks that are due. Return the ledger to use from now on.

        Other tasks run meanwhile, so that a large cluster or many contended nodes hold up nobody. `lists_ended` waits
        until no list is being applied: in the middle of one, a GPU may look as if two pods had it.
        """
        if now >= self._rebuild_due:
            self._rebuild_due = now + self._rebuild
            if not await _is_right(ledger, ledger_steps):
                # It is used at once, without the other check: it would lack what other tasks change meanwhile.
                return self._repair(ledger, ledger_steps)
        if now >= self._due:
            self._due = now + self._interval
            async for _ in in_turns(ledger.check_nodes()):
                pass
            await lists_ended()
            self._report_conflicts(ledger)
            self._report_moved(ledger)
            await asyncio.sleep(0)  # what the loop does next is no part of this turn
        return ledger

    def _repair(self, ledger: Ledger, ledger_steps: LedgerSteps) -> Ledger:
        """Return a new ledger, all of this moment, if the present one is still wrong."""
        rebuilt, steps = ledger_steps()
        for step in steps:
            step()
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


async def _is_right(ledger: Ledger, ledger_steps: LedgerSteps) -> bool:
    """Whether the ledger of this moment is that of the objects. Other tasks may change both meanwhile."""
    present = ledger.entries()
    rebuilt, steps = ledger_steps()
    await asyncio.sleep(0)  # the copies of this moment take as long as a turn
    entries = {key: value async for key, value in in_turns(present)}
    async for step in in_turns(steps):
        step()
    await asyncio.sleep(0)  # and so does the copy of the rebuilt ledger
    right = True
    async for key, value in in_turns(rebuilt.entries()):
        right = entries.pop(key, None) == value and right
    await asyncio.sleep(0)  # what the loop does next is no part of the last turn
    return right and not entries
