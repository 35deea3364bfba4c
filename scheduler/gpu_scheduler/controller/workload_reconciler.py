"""Keeps every workload at one pod, and its status at what is the case: gather what the watches show, judge, apply.

LAW: level-triggered; a look derives everything from the caches, so that a lost event, a lost answer or a lost process
changes nothing in the end. What a pod is to be, and what is told, core and adapters know.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gpu_scheduler.controller.reconcile_loop import ReconcileError
from gpu_scheduler.controller.workload_status import CreateFailure, reconcile_status
from gpu_scheduler.kube.resource import EventHandlerFuncs

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.controller.gpu_workload import Attempt, GpuWorkload, Phase, WatchedPod
    from gpu_scheduler.controller.ports import PodMaker, WorkloadWriter
    from gpu_scheduler.controller.workload_status import Reconciliation

# Between two tries to make one pod; also how long a failed workload rests before its next pod.
PAUSE_FIRST = 1.0
PAUSE_LONGEST = 60.0
# A pod that was made shows in the watch within moments; after so long it is asked for again, which does no harm.
SHOWN_WITHIN = 5.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Making:
    """What is known of the making of one pod: not to be tried before `due`, and why the last try failed."""

    target: tuple[str, int, int]
    """The workload's uid and generation, and the pod's number: for another target all begins anew."""
    due: float
    tries: int = 0
    trouble: CreateFailure | None = None


class WorkloadReconciler:
    """Its feeds may be filled at any time; `reconcile` looks at one workload."""

    def __init__(
        self,
        maker: PodMaker,
        writer: WorkloadWriter,
        add: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`add` is told the key of every workload that is worth a look."""
        self._maker = maker
        self._writer = writer
        self._add = add
        self._clock = clock
        self._wall = wall
        self._known: dict[str, GpuWorkload] = {}
        self._attempts: dict[str, dict[str, Attempt]] = {}
        self._made_for: dict[str, str] = {}
        self._makings: dict[str, _Making] = {}
        self.workloads = EventHandlerFuncs(self._applied, self._forgotten)
        self.pods = EventHandlerFuncs(self._pod_applied, self._pod_forgotten)

    def in_phase(self, phase: Phase) -> int:
        """How many workloads are in this phase, as far as they were told."""
        statuses = (workload.status for workload in self._known.values())
        return sum(status is not None and status.phase is phase for status in statuses)

    async def reconcile(self, key: str) -> float | None:
        """Look at one workload; answers the seconds after which it wants to be looked at though nothing changes."""
        workload = self._known.get(key)
        if workload is None or workload.deleting:
            # Its pods go with it: the garbage collector follows their owner references.
            self._makings.pop(key, None)
            return None
        verdict, again = self._judge(workload), None
        if verdict.missing is None:
            self._makings.pop(key, None)
        else:
            again = self._rest(workload, verdict.missing)
            if again <= 0:
                again, trouble = await self._make(workload, verdict.missing)
                if trouble is None:
                    # The watch is about to show it, and then there is more to tell.
                    return again
                verdict = self._judge(workload)
        if verdict.status != workload.status:
            await self._write(workload, verdict)
        return again

    def _judge(self, workload: GpuWorkload) -> Reconciliation:
        making = self._makings.get(workload.key)
        now = self._wall().strftime("%Y-%m-%dT%H:%M:%SZ")
        attempts = self._attempts.get(workload.key, {}).values()
        return reconcile_status(workload, attempts, None if making is None else making.trouble, now)

    def _rest(self, workload: GpuWorkload, number: int) -> float:
        """For how long that pod is not to be tried; a failed workload's next pod is in no hurry either."""
        target = (workload.uid, workload.generation, number)
        making = self._makings.get(workload.key)
        if making is None or making.target != target:
            due = self._clock() + (_pause(number) if number else 0.0)
            making = self._makings[workload.key] = _Making(target, due)
        return making.due - self._clock()

    async def _make(self, workload: GpuWorkload, number: int) -> tuple[float, CreateFailure | None]:
        """One try; answers for how long there is to be no other, and what it met."""
        making = self._makings[workload.key]
        trouble = await self._maker.make(workload, number)
        tries = making.tries + 1
        pause = SHOWN_WITHIN if trouble is None else _pause(tries)
        self._makings[workload.key] = replace(making, due=self._clock() + pause, tries=tries, trouble=trouble)
        return pause, trouble

    async def _write(self, workload: GpuWorkload, verdict: Reconciliation) -> None:
        fresh = await self._writer.write(workload, verdict.status)
        if fresh is None:
            raise ReconcileError("its status could not be written")
        log.info("%s is %s", workload.key, verdict.status.phase, extra={"reason": verdict.status.reason})
        if self._known.get(workload.key) is workload:
            self._known[workload.key] = fresh

    def _applied(self, workload: GpuWorkload) -> None:
        self._known[workload.key] = workload
        self._add(workload.key)

    def _forgotten(self, workload: GpuWorkload) -> None:
        self._known.pop(workload.key, None)
        self._add(workload.key)

    def _pod_applied(self, seen: WatchedPod) -> None:
        uid, attempt = seen.pod.ref.uid, seen.attempt
        owner = self._made_for.get(uid)
        if owner is not None and (attempt is None or attempt.key != owner):
            # Somebody has taken its owner reference away: it is no longer the workload's.
            self._drop(uid, owner)
        if attempt is not None:
            self._made_for[uid] = attempt.key
            self._attempts.setdefault(attempt.key, {})[uid] = attempt
            self._add(attempt.key)

    def _pod_forgotten(self, seen: WatchedPod) -> None:
        owner = self._made_for.get(seen.pod.ref.uid)
        if owner is not None:
            self._drop(seen.pod.ref.uid, owner)

    def _drop(self, uid: str, key: str) -> None:
        del self._made_for[uid]
        there = self._attempts[key]
        del there[uid]
        if not there:
            del self._attempts[key]
        # Its name may be free again, whoever waited for that.
        self._makings.pop(key, None)
        self._add(key)


def _pause(tries: int) -> float:
    return min(PAUSE_LONGEST, PAUSE_FIRST * 2.0 ** min(tries - 1, 16))
