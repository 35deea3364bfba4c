"""The program of contender F: our scheduler, which has made every decision before it leads.

Run with `python -m` in place of `gpu_scheduler`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

from gpu_scheduler.cli.main import main
from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.decision import Bind
from gpu_scheduler.scheduler.run import SchedulerProcess

if TYPE_CHECKING:
    from gpu_scheduler.core.cluster import Cluster
    from gpu_scheduler.core.decision import Decision
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.scheduler.scheduling_loop import Scheduler

log = logging.getLogger(__name__)

_binds: Final[dict[str, Bind]] = {}


class PredecidedScheduler(SchedulerProcess):
    """A replica that decides while it is a standby."""

    async def _lead(self) -> None:
        while self.watches.unlisted() is not None:  # noqa: ASYNC110 - each list has an event of its own
            await asyncio.sleep(0.01)
        predecide(self.scheduler)
        log.info(predecided_pods(len(_binds)))
        await super()._lead()


def predecided_pods(pods: int) -> str:
    """Return the log line that reports the end of these decisions."""
    return f"Decided on {pods} pods beforehand"


def predecide(scheduler: Scheduler) -> None:
    """Decide on all waiting pods in turn and keep the binds. Restore the ledger afterwards."""
    cluster, state = scheduler.cache.cluster, scheduler.pod_states
    for uid, each in state.items():
        decision = decide(each.pod, cluster)
        if isinstance(decision, Bind):
            cluster.ledger.assume(each.pod, decision.placement)
            _binds[uid] = decision
    for uid in _binds:
        cluster.ledger.forget(uid)
        cluster.ledger.apply(state[uid].pod)


def _decisions(pod: Pod, cluster: Cluster) -> Decision | None:
    return _binds.pop(pod.ref.uid, None) or decide(pod, cluster)


if __name__ == "__main__":
    with (
        patch("gpu_scheduler.scheduler.scheduling_loop.decide", _decisions),
        patch("gpu_scheduler.scheduler.run.SchedulerProcess", PredecidedScheduler),
    ):
        main()
