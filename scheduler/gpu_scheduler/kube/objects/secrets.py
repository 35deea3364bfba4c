"""A Secret: what is in it, and the version at which it was read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpu_scheduler.kube.objects.decoding import decode_object
from gpu_scheduler.kube.objects.meta import ReadStruct, Version

if TYPE_CHECKING:
    from collections.abc import Mapping


class Secret(ReadStruct):
    metadata: Version
    # msgspec decodes base64 here.
    data: dict[str, bytes] | None = None


_secrets = msgspec.json.Decoder(Secret)


def read_secret(body: bytes | bytearray) -> Secret:
    """Decode a Secret. Raise msgspec.DecodeError if it is none."""
    return decode_object(_secrets, body)


def patch_secret(version: str | None, data: Mapping[str, bytes]) -> bytes:
    """Encode a merge patch of these keys. The API server refuses it if the Secret is no longer of this version."""
    return msgspec.json.encode({"metadata": {"resourceVersion": version}, "data": data})
