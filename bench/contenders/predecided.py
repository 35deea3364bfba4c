"""The program of the floor: our own, which has decided on every pod before it leads; all else is as it always is.

Run with `python -m` in the place of `gpu_scheduler`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

from gpu_scheduler.cli.main import main
from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.decision import Bind
from gpu_scheduler.process.logs import get_logger
from gpu_scheduler.scheduler.run import SchedulerProcess

if TYPE_CHECKING:
    from gpu_scheduler.core.decide import Cluster
    from gpu_scheduler.core.decision import Decision
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.scheduler.scheduling_loop import Scheduler

log = get_logger(__name__)

_binds: Final[dict[str, Bind]] = {}


class PredecidedScheduler(SchedulerProcess):
    """A replica that decides while it is a standby."""

    async def _lead(self) -> None:
        while self.watches.unlisted() is not None:  # noqa: ASYNC110 - each list has an event of its own
            await asyncio.sleep(0.01)
        foresee(self.scheduler)
        log.info(foreseen(len(_binds)))
        await super()._lead()


def foreseen(pods: int) -> str:
    """What its log says when that is done."""
    return f"Decided on {pods} pods beforehand"


def foresee(scheduler: Scheduler) -> None:
    """Decide on all who wait, each beside those before, and keep the binds; the ledger is then as it was."""
    cluster, tracked = scheduler.world.cluster, scheduler.tracked
    for uid, each in tracked.items():
        decision = decide(each.pod, cluster)
        if isinstance(decision, Bind):
            cluster.ledger.assume(each.pod, decision.placement)
            _binds[uid] = decision
    for uid in _binds:
        cluster.ledger.forget(uid)
        cluster.ledger.apply(tracked[uid].pod)


def _looked_up(pod: Pod, cluster: Cluster) -> Decision | None:
    return _binds.pop(pod.ref.uid, None) or decide(pod, cluster)


if __name__ == "__main__":
    with (
        patch("gpu_scheduler.scheduler.scheduling_loop.decide", _looked_up),
        patch("gpu_scheduler.scheduler.run.SchedulerProcess", PredecidedScheduler),
    ):
        main()
