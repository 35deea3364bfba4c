"""`gpu-scheduler` with a fault built in: at SIGUSR1 it forgets who holds which card. For the audit's test only."""

from __future__ import annotations

import asyncio
import signal

from gpu_scheduler.cli import main
from gpu_scheduler.cli.run import Replica
from gpu_scheduler.core.devices import Devices

healthy = Replica.serve


async def serve(replica: Replica, stop: asyncio.Event) -> None:
    """Serve, with the fault ready."""

    def damage() -> None:
        replica.scheduler.ledger.devices = Devices()

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, damage)
    await healthy(replica, stop)


if __name__ == "__main__":
    Replica.serve = serve  # type: ignore[method-assign, assignment]  # the fault
    main()
