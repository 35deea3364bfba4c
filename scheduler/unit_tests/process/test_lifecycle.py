"""The end of a process's tasks."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from gpu_scheduler.process import lifecycle
from gpu_scheduler.process.lifecycle import cancel

if TYPE_CHECKING:
    import pytest


async def sleeping() -> None:
    await asyncio.sleep(60)


async def pending(finish: asyncio.Event) -> None:
    """Ignore a cancellation, as a library does that swallows it."""
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(60)
    await finish.wait()


async def broken() -> None:
    raise ValueError("this is a defect")


async def test_cancel_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A task that ignores the cancellation is logged by name. How the others ended does not matter."""
    monkeypatch.setattr(lifecycle, "CANCEL_TIMEOUT", 0.05)
    finish = asyncio.Event()
    parts = {"sleeping": sleeping(), "pending": pending(finish), "broken": broken()}
    tasks = {name: asyncio.create_task(part, name=name) for name, part in parts.items()}
    await asyncio.sleep(0)

    await cancel(tasks.values())

    assert [name for name, task in tasks.items() if task.done()] == ["sleeping", "broken"]
    (record,) = caplog.records
    assert record.__dict__["tasks"] == ["pending"]
    finish.set()
    await tasks["pending"]
