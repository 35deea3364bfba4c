"""`gpu-scheduler` with two faults built in, for the tests of who audits it.

At SIGUSR1 it forgets who holds which card, at SIGUSR2 that its oldest holder holds anything.
"""

from __future__ import annotations

import asyncio
import signal

from gpu_scheduler.cli.main import main
from gpu_scheduler.core.ledger.devices import Devices
from gpu_scheduler.scheduler.run import SchedulerProcess

healthy = SchedulerProcess.serve


async def serve(replica: SchedulerProcess, stop: asyncio.Event) -> None:
    """Serve, with the faults ready."""

    def damage() -> None:
        replica.scheduler.ledger.devices = Devices()

    def forget() -> None:
        replica.scheduler.ledger.forget(next(iter(replica.scheduler.ledger)).ref.uid)

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, damage)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, forget)
    await healthy(replica, stop)


if __name__ == "__main__":
    SchedulerProcess.serve = serve  # type: ignore[method-assign, assignment]  # the fault
    main()
