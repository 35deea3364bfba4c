"""How the tests of whole programs start them, ask them and end them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import aiohttp
import pytest

from gpu_scheduler.process.lifecycle import UsageError
from tests.waiting import limit
from unit_tests.kube.server import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

    from tests.objects import Object


def stored(body: Object, uid: str, status: Object | None = None, **metadata: Any) -> Object:
    """Return an object of namespace default as the API server sends it."""
    return {
        **body,
        "metadata": {**body["metadata"], "namespace": "default", "uid": uid, **metadata},
        "status": status or {},
    }


async def ask(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


@asynccontextmanager
async def running(
    program: Callable[[asyncio.Event], Coroutine[Any, Any, None]], ready: Callable[[], object] = lambda: True
) -> AsyncIterator[None]:
    """Run a program that is `ready` when that is true; stop it at the end, and wait for it."""
    stop = asyncio.Event()
    task = asyncio.create_task(program(stop))
    try:
        await until(lambda: task.done() or ready())
        yield
    finally:
        stop.set()
        await asyncio.wait_for(task, limit(10))


async def end_by_sigterm(command: Coroutine[Any, Any, None], ready: Callable[[], object]) -> None:
    """Run a command, send SIGTERM when `ready` is true, and wait for its end."""
    task = asyncio.create_task(command)
    await until(ready)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(task, limit(10))


@contextmanager
def taken_port(monkeypatch: pytest.MonkeyPatch, wiring: object, api: object) -> Iterator[int]:
    """Let the command connect to `api`; yield a port that another process has, which must be reported."""
    monkeypatch.setattr(wiring, "connect", AsyncMock(return_value=api))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"HTTP_PORT={port + 1}"):
            yield port
