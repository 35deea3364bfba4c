"""Translates a ResourceSlice into a core value: the GPUs of the drivers that we know, and of each what identifies it.

The attributes of NVIDIA's driver are those of cmd/gpu-kubelet-plugin/deviceinfo.go in its repository,
kubernetes-sigs/dra-driver-nvidia-gpu.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.core.nodes.device_pools import DeviceId, DeviceSlice, PublishedDevice
from gpu_scheduler.core.pods.placement_map import MAX_NUMBER, device_kind
from gpu_scheduler.kube.objects.decoding import decode_object, decode_part
from gpu_scheduler.kube.objects.meta import Identity, ReadStruct
from gpu_scheduler.kube.objects.resource_requests import amounts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MIB: Final = 2**20


class _Text(msgspec.Struct, gc=False):
    """An attribute whose value is a text."""

    string: Annotated[str, msgspec.Meta(max_length=253)]


class _Number(msgspec.Struct, gc=False):
    """An attribute whose value is a number."""

    value: Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)] = msgspec.field(name="int")


class _Quantity(msgspec.Struct, gc=False):
    value: object = None


class _Pool(ReadStruct):
    name: str
    generation: int = 0
    resource_slice_count: int = 0


class _Device(ReadStruct):
    name: str
    attributes: dict[str, msgspec.Raw] | None = None
    capacity: dict[str, _Quantity] | None = None


class _Spec(ReadStruct):
    driver: str
    pool: _Pool
    node_name: str | None = None
    devices: list[_Device] | None = None


class _Slice(ReadStruct):
    metadata: Identity
    spec: _Spec


_slices = msgspec.json.Decoder(_Slice)
_texts = msgspec.json.Decoder(_Text | None)
_numbers = msgspec.json.Decoder(_Number | None)


def read_slice(raw: bytes | msgspec.Raw) -> tuple[str, DeviceSlice]:
    """Decode a ResourceSlice into (name, DeviceSlice). msgspec.ValidationError if it is no ResourceSlice.

    A slice of another kind of device, or of no single node, has no devices.
    """
    found = decode_object(_slices, raw)
    spec = found.spec
    ours = spec.driver in names.GPU_DRIVERS and spec.node_name
    made = DeviceSlice(
        found.metadata.name or "",
        sys.intern(spec.node_name or ""),
        sys.intern(spec.driver),
        sys.intern(spec.pool.name),
        spec.pool.generation,
        spec.pool.resource_slice_count,
        tuple(_devices(spec)) if ours else (),
    )
    return made.name, made


def _devices(spec: _Spec) -> Iterator[PublishedDevice]:
    """Yield the devices that a map can name."""
    for device in spec.devices or ():
        given = {key.removeprefix(f"{spec.driver}/"): bytes(value) for key, value in (device.attributes or {}).items()}
        uuid = _text(given, "uuid")
        uuid = uuid[:4] + uuid[4:].lower()
        if device_kind(uuid) not in {"GPU", "MIG"}:
            continue
        memory = (device.capacity or {}).get("memory")
        size = None if memory is None else amounts({"memory": memory.value}).get("memory")
        yield PublishedDevice(
            DeviceId(sys.intern(spec.driver), sys.intern(spec.pool.name), sys.intern(device.name)),
            uuid,
            None if (index := decode_part(_numbers, given.get("index", b""))) is None else index.value,
            _text(given, names.PCI_BUS_ATTRIBUTE),
            _text(given, "parentUUID"),
            sys.intern(_text(given, "productName")),
            None if size is None else size // MIB,
        )


def _text(attributes: Mapping[str, bytes], key: str) -> str:
    found = decode_part(_texts, attributes.get(key, b""))
    return "" if found is None else found.string
