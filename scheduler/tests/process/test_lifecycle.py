"""How what a process runs is ended."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from gpu_scheduler.process import lifecycle
from gpu_scheduler.process.lifecycle import cancel

if TYPE_CHECKING:
    import pytest


async def sleeping() -> None:
    """Until it is cancelled."""
    await asyncio.sleep(60)


async def deaf(hear: asyncio.Event) -> None:
    """A library that swallows a cancellation does this to whoever calls it."""
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(60)
    await hear.wait()


async def broken() -> None:
    """Ends by itself."""
    raise ValueError("this is a defect")


async def test_the_end_waits_for_nobody_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever does not hear is named; the others have ended, and how is nobody's business."""
    monkeypatch.setattr(lifecycle, "LISTENING", 0.05)
    hear = asyncio.Event()
    parts = {"sleeping": sleeping(), "deaf": deaf(hear), "broken": broken()}
    tasks = {name: asyncio.create_task(part, name=name) for name, part in parts.items()}
    await asyncio.sleep(0)

    await cancel(tasks.values())

    assert [name for name, task in tasks.items() if task.done()] == ["sleeping", "broken"]
    (record,) = caplog.records
    assert record.__dict__["tasks"] == ["deaf"]
    hear.set()
    await tasks["deaf"]
