"""Decodes JSON from untrusted authors. A fault gives one kind of error (`decode_object`) or None (`decode_part`)."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

T = TypeVar("T")
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of a decoder: for wrong types, wrong JSON, text that is not UTF-8, and nesting that is too deep for it."""


def decode_object(decoder: msgspec.json.Decoder[T], raw: bytes | bytearray | msgspec.Raw) -> T:
    """Decode a whole object.

    Raise msgspec.ValidationError for wrong types, too deep nesting and text that is not UTF-8; wrong JSON raises its
    base class, msgspec.DecodeError.
    """
    try:
        return decoder.decode(raw)
    except RecursionError as error:
        raise msgspec.ValidationError("the object nests too deep") from error
    except UnicodeDecodeError as error:
        raise msgspec.ValidationError(f"the object has text that is not UTF-8: {error}") from error


def decode_part(decoder: msgspec.json.Decoder[T | None], data: bytes) -> T | None:
    """Decode one part of an object; None if it is absent, null or cannot be decoded. Other parts are not affected."""
    if not data:
        return None
    try:
        return decoder.decode(data)
    except UNREADABLE:
        return None
