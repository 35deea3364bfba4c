"""Reads what a ResourceClaim of a user asks for: one request, for a number of GPUs of a driver that we know.

LAW: a claim with anything else is not read in part. What it has is named, so that its author can leave it out.
"""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.core.pods.claim_sets import MAX_CLAIM_DEVICES
from gpu_scheduler.core.pods.device_selector import SelectorError, read_selector
from gpu_scheduler.core.pods.own_claim import ClaimRequest
from gpu_scheduler.core.text import quote
from gpu_scheduler.kube.objects.decoding import decode_part
from gpu_scheduler.kube.objects.meta import ReadStruct

MAX_SPEC: Final = 32 * 1024
"""Most bytes of a claim's spec that are read."""
_NOTHING: Final = frozenset({b"", b"null", b"[]"})
_DEVICES: Final = "spec.devices"


class _Cel(ReadStruct, forbid_unknown_fields=True):
    expression: str


class _Selector(ReadStruct, forbid_unknown_fields=True):
    cel: _Cel


class _Exactly(ReadStruct, forbid_unknown_fields=True):
    device_class_name: str
    selectors: list[_Selector] | None = None
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    tolerations: msgspec.Raw = msgspec.Raw()
    capacity: msgspec.Raw = msgspec.Raw()


class _Request(ReadStruct, forbid_unknown_fields=True):
    name: str
    exactly: _Exactly | None = None
    first_available: msgspec.Raw = msgspec.Raw()


class _Devices(ReadStruct, forbid_unknown_fields=True):
    requests: list[_Request] | None = None
    constraints: msgspec.Raw = msgspec.Raw()
    config: msgspec.Raw = msgspec.Raw()


class _Spec(ReadStruct, forbid_unknown_fields=True):
    devices: _Devices | None = None


_specs = msgspec.json.Decoder(_Spec | None)


class _OfClass(ReadStruct):
    device_class_name: str


class _AnyRequest(ReadStruct):
    exactly: _OfClass | None = None
    first_available: list[_OfClass] | None = None


class _AnyDevices(ReadStruct):
    requests: list[_AnyRequest] | None = None


class _AnySpec(ReadStruct):
    devices: _AnyDevices | None = None


_any_specs = msgspec.json.Decoder(_AnySpec | None)


class UnreadError(ValueError):
    """The claim asks for something that is not read; the text names the field, and says the rule."""


def read_claim_request(raw: bytes) -> ClaimRequest:
    """Return what the spec of a claim asks for. UnreadError if it is not read."""
    spec = decode_part(_specs, raw) if len(raw) <= MAX_SPEC else None
    if spec is None:
        raise UnreadError("its spec has fields or values that this scheduler does not read")
    devices = spec.devices or _Devices()
    requests = devices.requests or []
    _leave_out(_DEVICES, ("constraints", devices.constraints), ("config", devices.config))
    if len(requests) != 1:
        raise UnreadError(f"{_DEVICES}.requests has {len(requests)} entries, and one is read")
    request = requests[0]
    _leave_out(f"{_DEVICES}.requests[0]", ("firstAvailable", request.first_available))
    exactly, where = request.exactly, f"{_DEVICES}.requests[0].exactly"
    if exactly is None:
        raise UnreadError(f"{where} is missing")
    _leave_out(where, ("tolerations", exactly.tolerations), ("capacity", exactly.capacity))
    if exactly.admin_access:
        raise UnreadError(f"{where}.adminAccess is not read")
    if exactly.allocation_mode != "ExactCount":
        raise UnreadError(f"{where}.allocationMode is {quote(exactly.allocation_mode)}, and only ExactCount is read")
    if not 1 <= exactly.count <= MAX_CLAIM_DEVICES:
        raise UnreadError(f"{where}.count is {exactly.count}, and it must be from 1 to {MAX_CLAIM_DEVICES}")
    driver = exactly.device_class_name
    if driver not in names.GPU_DRIVERS:
        known = " or ".join(sorted(names.GPU_DRIVERS))
        raise UnreadError(f"{where}.deviceClassName is {quote(driver)}, and only {known} is read")
    try:
        selector = read_selector((each.cel.expression for each in exactly.selectors or ()), driver)
    except SelectorError as error:
        raise UnreadError(f"{where}.selectors: {error}") from error
    return ClaimRequest(sys.intern(request.name), sys.intern(driver), exactly.count, selector)


def read_classes(raw: bytes) -> frozenset[str] | None:
    """Return the DeviceClasses from which a claim may be allocated; None if that is not read, so it may be any."""
    spec = decode_part(_any_specs, raw) if len(raw) <= MAX_SPEC else None
    if spec is None:
        return None
    found: set[str] = set()
    for request in (spec.devices and spec.devices.requests) or ():
        wanted = [*filter(None, [request.exactly]), *(request.first_available or ())]
        if not wanted:
            return None
        found.update(sys.intern(each.device_class_name) for each in wanted)
    return frozenset(found)


def _leave_out(where: str, *fields: tuple[str, msgspec.Raw]) -> None:
    """Check that the claim has none of these fields."""
    for name, value in fields:
        if bytes(value) not in _NOTHING:
            raise UnreadError(f"{where}.{name} is not read")
