"""A process that looks through NVML: for each line of standard input one look, and one line of JSON about it."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict

from gpu_scheduler.monitor.nvml import NvmlSource
from gpu_scheduler.monitor.ports import UnreadableError
from gpu_scheduler.monitor.readings import GpuReading


async def main(deadline: float, remembered: str) -> None:
    """Look as often as asked."""
    last = [tuple(GpuReading(**gpu) for gpu in each) if each is not None else None for each in json.loads(remembered)]

    async def remember() -> tuple[GpuReading, ...] | None:
        return last.pop(0)

    source = NvmlSource(deadline=deadline, remember=remember)
    while await asyncio.to_thread(sys.stdin.readline):
        try:
            told: object = [asdict(gpu) for gpu in await source.read()]
        except UnreadableError as error:
            told = str(error)
        print(json.dumps(told), flush=True)  # noqa: T201 - the test reads it


asyncio.run(main(float(sys.argv[1]), sys.argv[2]))
