"""Applies a fault of the proxy to the lines of a watch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.integration.faults.proxy_faults import Freeze, Insert, Lose, Swap, Truncate, Twice

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterable, AsyncIterator

    from tests.integration.faults.proxy_faults import Act


async def changed_lines(lines: AsyncIterable[bytes], act: Act | None, ended: asyncio.Event) -> AsyncIterator[bytes]:
    """Yield the lines of a watch with the fault applied."""
    match act:
        case Insert(first):
            yield first + b"\n"
        case Swap():
            lines = _swapped(lines)
        case Truncate():
            async for line in lines:
                yield line[: len(line) // 2]
                return
    async for line in lines:
        if isinstance(act, Freeze):
            await ended.wait()
        if isinstance(act, Lose) and not ended.is_set() and act.having in line:
            continue
        yield line
        if isinstance(act, Twice):
            yield line


async def _swapped(lines: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Swap neighbouring lines. Lines of the same object keep their order."""
    kept = b""
    async for line in lines:
        if kept and _uid(line) == _uid(kept):
            yield kept
            kept = line
        elif kept:
            yield line
            yield kept
            kept = b""
        else:
            kept = line


def _uid(line: bytes) -> str:
    return str(json.loads(line)["object"]["metadata"].get("uid"))
