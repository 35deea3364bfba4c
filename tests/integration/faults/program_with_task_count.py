"""`gpu-scheduler` that logs its number of tasks at SIGUSR1."""

from __future__ import annotations

import asyncio
import logging
import signal

from gpu_scheduler.cli.main import main
from gpu_scheduler.scheduler.run import SchedulerProcess

plain = SchedulerProcess.serve


async def serve(replica: SchedulerProcess, stop: asyncio.Event) -> None:
    """Serve, and log the number of asyncio tasks at each SIGUSR1."""

    def log_task_count() -> None:
        logging.getLogger(__name__).info("Gauged", extra={"tasks": len(asyncio.all_tasks())})

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, log_task_count)
    await plain(replica, stop)


if __name__ == "__main__":
    SchedulerProcess.serve = serve  # type: ignore[method-assign, assignment]  # adds the log
    main()
