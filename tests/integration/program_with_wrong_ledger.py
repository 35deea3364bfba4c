"""`gpu-scheduler` whose ledger a test can damage, for the tests of the auditor and the audit.

At SIGUSR1 the ledger loses the holders of all devices, at SIGUSR2 its oldest hold.
"""

from __future__ import annotations

import asyncio
import signal

from gpu_scheduler.cli.main import main
from gpu_scheduler.core.ledger.devices import Devices
from gpu_scheduler.scheduler.run import SchedulerProcess

healthy = SchedulerProcess.serve


async def serve(replica: SchedulerProcess, stop: asyncio.Event) -> None:
    """Serve, with handlers for the two signals."""

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
