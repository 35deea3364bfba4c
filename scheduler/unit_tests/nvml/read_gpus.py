"""A process that reads GPUs through NVML: for each line of standard input one read and one line of JSON.

A line has the names of the devices that are cordoned.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict

from gpu_scheduler.core.nodes.cordons import Cordon
from gpu_scheduler.monitor.nvml import NvmlSource
from gpu_scheduler.monitor.ports import UnreadableError
from gpu_scheduler.monitor.readings import GpuReading


async def main(deadline: float, remembered: str) -> None:
    """Read the GPUs once for each line of standard input."""
    last = [tuple(GpuReading(**gpu) for gpu in each) if each is not None else None for each in json.loads(remembered)]

    async def remember() -> tuple[GpuReading, ...] | None:
        return last.pop(0)

    line = ""
    source = NvmlSource(deadline=deadline, remember=remember, cordons=lambda: tuple(map(Cordon, line.split())))
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            reading: object = [asdict(gpu) for gpu in await source.read()]
        except UnreadableError as error:
            reading = str(error)
        print(json.dumps(reading), flush=True)  # noqa: T201 - the test reads it


asyncio.run(main(float(sys.argv[1]), sys.argv[2]))
