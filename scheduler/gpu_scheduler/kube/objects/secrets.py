"""A Secret: what is in it, and the version at which it was read."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

import msgspec

from gpu_scheduler.kube.objects.decoding import decode_object
from gpu_scheduler.kube.objects.meta import ReadStruct

if TYPE_CHECKING:
    from collections.abc import Mapping


class SecretMeta(ReadStruct):
    resource_version: str | None = None
    annotations: dict[str, str] | None = None


class Secret(ReadStruct):
    metadata: SecretMeta
    # msgspec decodes base64 here.
    data: dict[str, bytes] | None = None


_secrets = msgspec.json.Decoder(Secret)


def read_secret(body: bytes | bytearray) -> Secret:
    """Decode a Secret. Raise msgspec.DecodeError if it is none."""
    return decode_object(_secrets, body)


def new_secret(metadata: Mapping[str, Any], kind: str, data: Mapping[str, bytes]) -> dict[str, Any]:
    """Return a Secret of type `kind` as a manifest."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": dict(metadata),
        "type": kind,
        "data": {name: b64encode(value).decode() for name, value in data.items()},
    }


def patch_secret(version: str | None, data: Mapping[str, bytes]) -> bytes:
    """Encode a merge patch of these keys. The API server refuses it if the Secret is no longer of this version."""
    return msgspec.json.encode({"metadata": {"resourceVersion": version}, "data": data})
