"""Reconciles GPUWorkloads: one pod for each, and a status that is derived from that pod.

LAW: level-triggered. A reconcile derives everything from the caches, so that a lost event, a lost answer or a crash
does not change the final result.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gpu_scheduler.controller.reconcile_loop import ReconcileError
from gpu_scheduler.controller.workload_events import event_of
from gpu_scheduler.controller.workload_status import CreateFailure, reconcile_status
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.kube.resource import EventHandlerFuncs
from gpu_scheduler.kube.timestamps import time_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.controller.gpu_workload import Attempt, GpuWorkload, Phase, WatchedPod
    from gpu_scheduler.controller.ports import PodMaker, WorkloadEventWriter, WorkloadWriter
    from gpu_scheduler.controller.workload_status import Reconciliation

# Seconds between two tries to create one pod, and between a failed pod and the next attempt. The pause doubles.
PAUSE_FIRST = 1.0
PAUSE_LONGEST = 60.0
# Seconds. The watch shows a created pod within moments. After this time the create is repeated; it is idempotent.
SHOWN_WITHIN = 5.0

log = logging.getLogger(__name__)


@immutable
class _Creation:
    """The creation of one pod: the time before which it is not tried (`due`), and why the last try failed."""

    target: tuple[str, int, int]
    """The workload's uid and generation, and the attempt's number. A new target starts with no tries and no failure."""
    due: float
    tries: int = 0
    failure: CreateFailure | None = None


class WorkloadReconciler:
    """Its event handlers may be called at any time; `reconcile` reconciles one workload."""

    def __init__(  # noqa: PLR0913 - what tests turn has defaults
        self,
        maker: PodMaker,
        writer: WorkloadWriter,
        events: WorkloadEventWriter,
        add: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`add` is called with the key of every workload to reconcile."""
        self._maker = maker
        self._writer = writer
        self._events = events
        self._add = add
        self._clock = clock
        self._wall = wall
        self._known: dict[str, GpuWorkload] = {}
        self._attempts: dict[str, dict[str, Attempt]] = {}
        self._owners: dict[str, str] = {}
        self._creations: dict[str, _Creation] = {}
        self.workloads = EventHandlerFuncs(self._applied, self._forgotten)
        self.pods = EventHandlerFuncs(self._pod_applied, self._pod_forgotten)

    def in_phase(self, phase: Phase) -> int:
        """Return the number of workloads in this phase, by the status last written."""
        statuses = (workload.status for workload in self._known.values())
        return sum(status is not None and status.phase is phase for status in statuses)

    async def reconcile(self, key: str) -> float | None:
        """Reconcile one workload. Return the seconds until it is due again even if nothing changes, or None.

        ReconcileError if its status cannot be written.
        """
        workload = self._known.get(key)
        if workload is None or workload.deleting:
            # The garbage collector deletes its pods by their owner references.
            self._creations.pop(key, None)
            return None
        result, again = self._derive_status(workload), None
        if result.missing is None:
            self._creations.pop(key, None)
        else:
            again = self._seconds_until_due(workload, result.missing)
            if again <= 0:
                again, failure = await self._create_pod(workload, result.missing)
                if failure is None:
                    # The watch will soon show the pod; the status is written then.
                    return again
                result = self._derive_status(workload)
        if result.status != workload.status:
            await self._write(workload, result)
        return again

    def _derive_status(self, workload: GpuWorkload) -> Reconciliation:
        creation = self._creations.get(workload.key)
        now = time_of(self._wall())
        attempts = self._attempts.get(workload.key, {}).values()
        return reconcile_status(workload, attempts, None if creation is None else creation.failure, now)

    def _seconds_until_due(self, workload: GpuWorkload, number: int) -> float:
        """Return the seconds before the pod of attempt `number` may be created; 0 or less means now.

        An attempt after a failed one also waits before its first try.
        """
        target = (workload.uid, workload.generation, number)
        creation = self._creations.get(workload.key)
        if creation is None or creation.target != target:
            due = self._clock() + (_pause(number) if number else 0.0)
            creation = self._creations[workload.key] = _Creation(target, due)
        return creation.due - self._clock()

    async def _create_pod(self, workload: GpuWorkload, number: int) -> tuple[float, CreateFailure | None]:
        """Try once to create the pod. Return the seconds until the next try, and why this one failed, if it did."""
        creation = self._creations[workload.key]
        failure = await self._maker.make(workload, number)
        tries = creation.tries + 1
        pause = SHOWN_WITHIN if failure is None else _pause(tries)
        self._creations[workload.key] = replace(creation, due=self._clock() + pause, tries=tries, failure=failure)
        return pause, failure

    async def _write(self, workload: GpuWorkload, result: Reconciliation) -> None:
        fresh = await self._writer.write(workload, result.status)
        if fresh is None:
            raise ReconcileError("its status could not be written")
        log.info("%s is %s", workload.key, result.status.phase, extra={"reason": result.status.reason})
        if self._known.get(workload.key) is workload:
            self._known[workload.key] = fresh
        event = event_of(workload.status, result.status)
        if event is not None:
            await self._events.record(workload, event)

    def _applied(self, workload: GpuWorkload) -> None:
        self._known[workload.key] = workload
        self._add(workload.key)

    def _forgotten(self, workload: GpuWorkload) -> None:
        self._known.pop(workload.key, None)
        self._add(workload.key)

    def _pod_applied(self, watched: WatchedPod) -> None:
        uid, attempt = watched.pod.ref.uid, watched.attempt
        owner = self._owners.get(uid)
        if owner is not None and (attempt is None or attempt.key != owner):
            # The owner reference was removed or changed, so the pod no longer belongs to that workload.
            self._drop(uid, owner)
        if attempt is not None:
            self._owners[uid] = attempt.key
            self._attempts.setdefault(attempt.key, {})[uid] = attempt
            self._add(attempt.key)

    def _pod_forgotten(self, watched: WatchedPod) -> None:
        owner = self._owners.get(watched.pod.ref.uid)
        if owner is not None:
            self._drop(watched.pod.ref.uid, owner)

    def _drop(self, uid: str, key: str) -> None:
        del self._owners[uid]
        there = self._attempts[key]
        del there[uid]
        if not there:
            del self._attempts[key]
        # The pod's name may be free again, so a create that waits for the name may be tried at once.
        self._creations.pop(key, None)
        self._add(key)


def _pause(tries: int) -> float:
    return min(PAUSE_LONGEST, PAUSE_FIRST * 2.0 ** min(tries - 1, 16))
