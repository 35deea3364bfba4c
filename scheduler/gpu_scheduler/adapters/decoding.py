"""A stream becomes lines, and JSON that anybody may have written becomes a Struct, or one kind of error, or nothing."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator

T = TypeVar("T")

LONG: Final = 2**20
"""Bytes of a line from which on it is a long one."""
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises: wrong types, wrong JSON, text that is no UTF-8, and nesting beyond what a decoder follows."""


def decode_object(decoder: msgspec.json.Decoder[T], raw: bytes | bytearray | msgspec.Raw) -> T:
    """A whole object; msgspec.ValidationError when it is no such thing, however deep it nests and whatever its text."""
    try:
        return decoder.decode(raw)
    except RecursionError as error:
        raise msgspec.ValidationError("the object nests too deep") from error
    except UnicodeDecodeError as error:
        raise msgspec.ValidationError(f"the object has text that is no UTF-8: {error}") from error


def decode_part(decoder: msgspec.json.Decoder[T | None], data: bytes) -> T | None:
    """One part of an object; None when it is absent, null or no such thing, which then costs that part alone."""
    if not data:
        return None
    try:
        return decoder.decode(data)
    except UNREADABLE:
        return None


async def lines(chunks: AsyncIterator[bytes | bytearray], large: asyncio.Lock) -> AsyncIterator[bytes | bytearray]:
    """Cut a stream into its lines; what stands after the last line feed is incomplete and dropped.

    `large` is held while a line of megabytes is here, so that of many streams only one has such a line at a time.
    Whoever takes a line must not keep it.
    """
    rest, ours = bytearray(), False
    async with AsyncExitStack() as alone:
        async for chunk in chunks:
            first, *others = chunk.split(b"\n")
            rest += first
            if others:
                # It is given away as it is: a copy would be as long.
                line, rest = rest, bytearray(others.pop())
                if line:
                    yield line
                del line
                await alone.aclose()
                ours = False
            for other in others:
                if other:
                    yield other
            del chunk, first, others
            if len(rest) > LONG and not ours:
                await alone.enter_async_context(large)
                ours = True
