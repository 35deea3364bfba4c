"""Reads a DeviceClass: the configuration that its driver gets with each device, and whether its devices may be GPUs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.kube.objects.decoding import decode_object
from gpu_scheduler.kube.objects.meta import Named

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST: Final = 64
"""Most entries. The API allows 32."""
_OF_DRIVER: Final = re.compile(
    # A name without escapes; what else must hold follows. `||` and `?:`, which bind weaker than `&&`, are not read.
    r"""\s*device\.driver\s*==\s*(?:"(?P<double>[^"'\\]*)"|'(?P<single>[^"'\\]*)')\s*(?:&&[^|?]*)?"""
)
"""A CEL expression that holds only for devices of one driver."""


class _Cel(msgspec.Struct, gc=False):
    expression: str = ""


class _Selector(msgspec.Struct, gc=False):
    cel: _Cel | None = None


class _Spec(msgspec.Struct, gc=False):
    config: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=_MOST)] | None = None
    selectors: Annotated[list[_Selector], msgspec.Meta(max_length=_MOST)] | None = None


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
    may_give_gpus: bool = True
    """False if one of its selectors holds only for devices of a driver that has no GPUs of ours."""

    def allocated(self, requests: list[str]) -> list[dict[str, Any]]:
        """Return the configuration as an allocation has it, for these requests of a claim."""
        return [{"source": "FromClass", "requests": requests, **_entries.decode(each)} for each in self.config]


def read_device_class(raw: bytes | msgspec.Raw) -> tuple[str, DeviceClass]:
    """Decode a DeviceClass into (name, DeviceClass). msgspec.ValidationError if it is no DeviceClass."""
    found = decode_object(_classes, raw)
    name = found.metadata.name
    config = tuple(bytes(each) for each in found.spec.config or ())
    return name, DeviceClass(name, config, _may_give_gpus(found.spec.selectors or ()))


def _may_give_gpus(selectors: Iterable[_Selector]) -> bool:
    """Whether devices of our drivers may pass all selectors."""
    found = (_OF_DRIVER.fullmatch(each.cel.expression) for each in selectors if each.cel is not None)
    return all((match["double"] or match["single"]) in names.GPU_DRIVERS for match in found if match is not None)
