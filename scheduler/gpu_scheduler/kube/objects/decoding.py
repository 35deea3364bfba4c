"""A stream becomes lines, and JSON that anybody may have written becomes a Struct, or one kind of error, or nothing."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

T = TypeVar("T")
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
