"""What a monitor watches before it reads."""

from __future__ import annotations

import asyncio

import pytest

from gpu_scheduler.core.nodes.cordons import Cordon, NodeCordons
from gpu_scheduler.monitor.listed import ListedFirst, OwnCordons
from gpu_scheduler.monitor.ports import GpuSource, UnreadableError
from gpu_scheduler.monitor.readings import GpuReading

FOREVER = Cordon("0")
UNTIL_NOON = Cordon("1", until="2026-11-21T12:00:00Z")
NOON = 1_795_262_400.0
"""That moment, in seconds since the epoch."""


def test_a_cordon_ends_by_the_clock_or_by_hand() -> None:
    """A cordon of another node is none of this one. The GPUNode may go, and its cordons with it."""
    wall = [NOON - 1]
    own = OwnCordons("node1", lambda: wall[0])
    assert own.in_force() == ()
    own.applied(NodeCordons("node1", (FOREVER, UNTIL_NOON)))
    own.applied(NodeCordons("node2", (Cordon("2"),)))
    assert own.in_force() == (FOREVER, UNTIL_NOON)
    wall[0] = NOON
    assert own.in_force() == (FOREVER,)
    own.applied(NodeCordons("node1", ()))
    assert own.in_force() == ()
    own.applied(NodeCordons("node1", (FOREVER,)))
    own.forgotten(NodeCordons("node1", (FOREVER,)))
    assert own.in_force() == ()


class OneGpu(GpuSource):
    async def read(self) -> tuple[GpuReading, ...]:
        """Return one reading."""
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
