"""What a monitor watches before it reads."""

from __future__ import annotations

import asyncio

import pytest

from gpu_scheduler.monitor.listed import ListedFirst
from gpu_scheduler.monitor.ports import GpuSource, UnreadableError
from gpu_scheduler.monitor.readings import GpuReading


class OneGpu(GpuSource):
    async def read(self) -> tuple[GpuReading, ...]:
        return (GpuReading(0),)


MISSING = {
    "pods": ({"cordons"}, "the pods of this node have not been listed yet"),
    "cordons": ({"pods"}, "the cordons of this node have not been listed yet"),
    "both": (set[str](), "the cordons and pods of this node have not been listed yet"),
}


@pytest.mark.parametrize(("listed", "sentence"), MISSING.values(), ids=MISSING)
async def test_nothing_is_read_before_all_is_listed(listed: set[str], sentence: str) -> None:
    """A cordoned device would be opened, and simulated ones that seem idle would attract new pods."""
    needed = {"cordons": asyncio.Event(), "pods": asyncio.Event()}
    for name in listed:
        needed[name].set()
    source = ListedFirst(OneGpu(), needed, deadline=0.01)

    with pytest.raises(UnreadableError, match=f"^{sentence}$"):
        await source.read()
    for each in needed.values():
        each.set()
    assert await source.read() == (GpuReading(0),)
