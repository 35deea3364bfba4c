"""Translates a node into a core value, with the devices that its monitor lists or its device plugin advertises."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import msgspec

from gpu_scheduler import names
from gpu_scheduler.core.nodes.inventory import UNREAD, Device, DeviceReading, Health, Inventory, counted
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.constraints import Taint
from gpu_scheduler.core.pods.count_request import MAX_DEVICES, MAX_MEMORY
from gpu_scheduler.core.pods.placement_map import MAX_NUMBER, device_kind
from gpu_scheduler.kube.objects.decoding import decode_object, decode_part
from gpu_scheduler.kube.objects.meta import ConditionObject, ObjectMeta, ReadStruct
from gpu_scheduler.kube.objects.resource_requests import amounts, shared_amounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class TaintObject(ReadStruct):
    key: str | None = None
    value: str | None = None
    effect: str | None = None


class NodeSpec(ReadStruct):
    unschedulable: bool | None = None
    taints: list[TaintObject] | None = None


class NodeStatus(ReadStruct):
    conditions: list[ConditionObject] | None = None
    allocatable: dict[str, object] | None = None
    capacity: dict[str, object] | None = None


class NodeObject(ReadStruct):
    metadata: ObjectMeta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


_LONGEST = 253
"""Most characters of a model that is kept."""


class _MigDevice(msgspec.Struct, gc=False):
    """A MIG device of a GPU, as a monitor lists it."""

    uuid: str


class _Device(msgspec.Struct, rename="camel", gc=False):
    """A device, as a monitor lists it."""

    index: Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
    uuid: str | None = None
    mig_devices: list[_MigDevice] | None = None
    # The fields above identify the device and must be valid. An invalid field below is dropped alone.
    model: msgspec.Raw = msgspec.Raw()
    memory_total: msgspec.Raw = msgspec.field(name="memoryTotalMiB", default=msgspec.Raw())
    memory_used: msgspec.Raw = msgspec.field(name="memoryUsedMiB", default=msgspec.Raw())
    utilization: msgspec.Raw = msgspec.Raw()
    health: msgspec.Raw = msgspec.Raw()


_nodes = msgspec.json.Decoder(NodeObject)
_devices = msgspec.json.Decoder(list[_Device] | None)
_models = msgspec.json.Decoder(Annotated[str, msgspec.Meta(max_length=_LONGEST)] | None)
_amounts = msgspec.json.Decoder(Annotated[int, msgspec.Meta(ge=0, le=MAX_MEMORY)] | None)
_percents = msgspec.json.Decoder(Annotated[int, msgspec.Meta(ge=0, le=100)] | None)
_healths = msgspec.json.Decoder(Health | None)


def read_node(raw: bytes | msgspec.Raw) -> tuple[str, Node]:
    """Decode a node into (name, Node). Raise msgspec.ValidationError if it is not a node."""
    node = node_value(decode_object(_nodes, raw))
    return node.name, node


def node_value(node: NodeObject) -> Node:
    """Return the node as a core value. A node without a true condition `Ready` is not ready."""
    meta, spec, status = node.metadata, node.spec or NodeSpec(), node.status or NodeStatus()
    gpus = {key: given for key, given in (status.capacity or {}).items() if key == names.GPU_RESOURCE}
    advertised = amounts(gpus).get(names.GPU_RESOURCE)
    annotations = meta.annotations or {}
    listed = annotations.get(names.DEVICES)
    inventory, readings = (None, {}) if listed is None else _read_inventory(listed)
    if inventory is None and advertised:
        inventory = counted(advertised)
    return Node(
        name=meta.name or "",
        ready=any(condition.type == "Ready" and condition.status == "True" for condition in status.conditions or ()),
        unschedulable=bool(spec.unschedulable),
        alias=(meta.labels or {}).get(names.NODE_ALIAS) or None,
        labels={sys.intern(key): sys.intern(value) for key, value in (meta.labels or {}).items()},
        taints=tuple(Taint(taint.key or "", taint.value or "", taint.effect or "") for taint in spec.taints or ()),
        allocatable=shared_amounts(status.allocatable),
        inventory=inventory,
        advertised=advertised,
        readings=readings,
        monitored=names.LAST_UPDATE in annotations,
    )


def _read_inventory(text: str) -> tuple[Inventory | None, dict[int, DeviceReading]]:
    """Return the devices that a monitor lists, and its readings by index.

    If the list cannot be decoded, is too long or contradicts itself, return (None, {}). A device whose values equal
    those of an unread one has no reading.
    """
    listed = decode_part(_devices, text.encode())
    if listed is None or len(listed) > MAX_DEVICES:
        return None, {}
    devices = tuple(map(_read_device, listed))
    uuids = [uuid for device in devices for uuid in (device.uuid, *device.mig_devices) if uuid is not None]
    if len({device.index for device in devices}) < len(devices) or len(set(uuids)) < len(uuids):
        return None, {}
    readings = {device.index: _read_reading(device) for device in listed}
    return Inventory(devices), {index: reading for index, reading in readings.items() if reading != UNREAD}


def _read_device(device: _Device) -> Device:
    return Device(
        device.index,
        next(_uuids("GPU", (device.uuid,)), None),
        tuple(_uuids("MIG", (each.uuid for each in device.mig_devices or ()))),
        sys.intern(decode_part(_models, bytes(device.model)) or ""),
        decode_part(_amounts, bytes(device.memory_total)),
    )


def _read_reading(device: _Device) -> DeviceReading:
    return DeviceReading(
        decode_part(_amounts, bytes(device.memory_used)) or UNREAD.used,
        decode_part(_percents, bytes(device.utilization)) or UNREAD.utilization,
        decode_part(_healths, bytes(device.health)) or UNREAD.health,
    )


def _uuids(kind: str, given: Iterable[str | None]) -> Iterator[str]:
    """Return the UUIDs of this kind that a map can name, in the map's spelling."""
    spelled = (uuid[:4] + uuid[4:].lower() for uuid in given if uuid)
    return (uuid for uuid in spelled if device_kind(uuid) == kind)
