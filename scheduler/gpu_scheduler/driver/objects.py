"""Translates what the driver reads from the API server: its node, the node's ResourceSlices, and a claim."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.driver.devices import OwnNode
from gpu_scheduler.driver.resource_slice import ObservedSlice, without_times
from gpu_scheduler.kube.objects.decoding import decode_object, decode_part
from gpu_scheduler.kube.objects.meta import Identity, ReadStruct
from gpu_scheduler.kube.objects.nodes import NodeObject, node_value

if TYPE_CHECKING:
    from collections.abc import Iterator

_NVML_BUS: Final = re.compile(r"0000([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
"""A PCI address as NVML writes it, in lower case. Linux writes four digits of the domain, as Kubernetes expects."""


class _Bus(msgspec.Struct, rename="camel", gc=False):
    index: int
    pci_bus_id: str | None = None


class _Pool(ReadStruct):
    generation: int = 0


class _SliceSpec(ReadStruct):
    driver: str
    pool: _Pool


class _Slice(ReadStruct):
    metadata: Identity
    spec: _SliceSpec


class _WholeSlice(ReadStruct):
    spec: dict[str, Any]


class _Result(ReadStruct):
    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None


class _Devices(ReadStruct):
    results: list[_Result] | None = None


class _Allocation(ReadStruct):
    devices: _Devices | None = None


class _ClaimStatus(ReadStruct):
    allocation: _Allocation | None = None


class _Claim(ReadStruct):
    metadata: Identity
    status: _ClaimStatus | None = None


_nodes = msgspec.json.Decoder(NodeObject)
_buses = msgspec.json.Decoder(list[_Bus] | None)
_slice_decoder = msgspec.json.Decoder(_Slice)
_whole_slice_decoder = msgspec.json.Decoder(_WholeSlice)
_claims = msgspec.json.Decoder(_Claim)


@immutable
class AllocatedDevice:
    """A device of the driver's pool that a claim has, and the claim's requests for which it was allocated."""

    name: str
    requests: tuple[str, ...]
    admin: bool = False
    """Whether it was allocated with admin access: beside the claim that holds it."""


@immutable
class AllocatedClaim:
    """A claim's uid, and the devices that it has of one pool."""

    uid: str
    devices: tuple[AllocatedDevice, ...]


def read_own_node(raw: bytes | msgspec.Raw) -> tuple[str, OwnNode]:
    """Decode the driver's node into (name, OwnNode). msgspec.ValidationError if it is no node."""
    node = decode_object(_nodes, raw)
    value = node_value(node)
    listed = (node.metadata.annotations or {}).get(names.DEVICES)
    if listed is None or value.inventory is None:
        return value.name, OwnNode(value.name, node.metadata.uid or "", None)
    found = decode_part(_buses, listed.encode()) or ()
    buses = tuple((each.index, bus) for each in found if (bus := _linux_bus(each.pci_bus_id or "")))
    return value.name, OwnNode(value.name, node.metadata.uid or "", value.inventory, buses)


def read_slice(raw: bytes | msgspec.Raw) -> tuple[str, ObservedSlice]:
    """Decode a ResourceSlice into (name, ObservedSlice). msgspec.ValidationError if it is none."""
    found = decode_object(_slice_decoder, raw)
    name, own = found.metadata.name or "", found.spec.driver == names.DRA_DRIVER
    version = found.metadata.resource_version or ""
    spec = without_times(decode_object(_whole_slice_decoder, raw).spec) if own else None
    return name, ObservedSlice(
        name,
        found.metadata.uid or "",
        int(version) if version.isascii() and version.isdigit() else 0,
        found.spec.driver,
        found.spec.pool.generation,
        spec,
    )


def read_claim(raw: bytes | bytearray, pool: str) -> AllocatedClaim:
    """Decode a ResourceClaim, with its devices of our driver in `pool`. msgspec.ValidationError if it is none."""
    claim = decode_object(_claims, raw)
    allocation = (claim.status or _ClaimStatus()).allocation or _Allocation()
    results = [
        result
        for result in (allocation.devices or _Devices()).results or ()
        if (result.driver, result.pool) == (names.DRA_DRIVER, pool)
    ]
    return AllocatedClaim(claim.metadata.uid or "", tuple(_merged(results)))


def _merged(results: list[_Result]) -> Iterator[AllocatedDevice]:
    """Yield each device once, however many requests it serves."""
    for name in dict.fromkeys(result.device for result in results):
        of_device = [result for result in results if result.device == name]
        # A request with alternatives is REQUEST/ALTERNATIVE here, and containers name the request.
        requests = dict.fromkeys(result.request.partition("/")[0] for result in of_device)
        yield AllocatedDevice(name, tuple(requests), all(result.admin_access for result in of_device))


def _linux_bus(text: str) -> str:
    found = _NVML_BUS.fullmatch(text.lower())
    return found[1] if found else ""
