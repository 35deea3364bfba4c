"""`gpu-scheduler` that says at SIGUSR1 how many tasks it has."""

from __future__ import annotations

import asyncio
import signal

from gpu_scheduler.cli.main import main
from gpu_scheduler.process.logs import get_logger
from gpu_scheduler.scheduler.run import SchedulerProcess

plain = SchedulerProcess.serve


async def serve(replica: SchedulerProcess, stop: asyncio.Event) -> None:
    """Serve, with the gauge ready."""

    def tell() -> None:
        get_logger(__name__).info("Gauged", tasks=len(asyncio.all_tasks()))

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, tell)
    await plain(replica, stop)


if __name__ == "__main__":
    SchedulerProcess.serve = serve  # type: ignore[method-assign, assignment]  # the gauge
    main()
