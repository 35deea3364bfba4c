"""Reads the configuration of a DeviceClass, which its driver gets with each device that is allocated by it."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.kube.objects.decoding import decode_object
from gpu_scheduler.kube.objects.meta import Named

_MOST: Final = 64
"""Most entries. The API allows 32."""


class _Spec(msgspec.Struct, gc=False):
    config: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=_MOST)] | None = None


class _Class(msgspec.Struct, gc=False):
    metadata: Named
    spec: _Spec = msgspec.field(default_factory=_Spec)


_classes = msgspec.json.Decoder(_Class)
_entries = msgspec.json.Decoder(dict[str, Any])


@immutable
class DeviceClass:
    """A DeviceClass. `config` has the entries of its configuration as JSON."""

    name: str
    config: tuple[bytes, ...] = ()

    def allocated(self, requests: list[str]) -> list[dict[str, Any]]:
        """Return the configuration as an allocation has it, for these requests of a claim."""
        return [{"source": "FromClass", "requests": requests, **_entries.decode(each)} for each in self.config]


def read_device_class(raw: bytes | msgspec.Raw) -> tuple[str, DeviceClass]:
    """Decode a DeviceClass into (name, DeviceClass). msgspec.ValidationError if it is no DeviceClass."""
    found = decode_object(_classes, raw)
    name = found.metadata.name
    return name, DeviceClass(name, tuple(bytes(each) for each in found.spec.config or ()))
