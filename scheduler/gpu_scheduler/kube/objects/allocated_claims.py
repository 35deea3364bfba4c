"""Translates a ResourceClaim into what it holds and asks for. A claim may be of any user and any scheduler."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from gpu_scheduler import names
from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim
from gpu_scheduler.core.nodes.device_pools import DeviceId
from gpu_scheduler.kube.objects.claim_requests import UnreadError, read_claim_request, read_classes
from gpu_scheduler.kube.objects.decoding import decode_object
from gpu_scheduler.kube.objects.meta import Identity, ReadStruct
from gpu_scheduler.kube.objects.resource_claims import OUR_CLAIM

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_scheduler.core.pods.own_claim import ClaimRequest


class _Result(ReadStruct):
    """One device of an allocation."""

    driver: str
    pool: str
    device: str
    admin_access: bool | None = None


class _Devices(ReadStruct):
    results: list[_Result] | None = None


class _Allocation(ReadStruct):
    devices: _Devices | None = None


class _Consumer(ReadStruct):
    """What a claim is reserved for."""

    resource: str
    uid: str


class _Status(ReadStruct):
    allocation: _Allocation | None = None
    reserved_for: list[_Consumer] | None = None


class _Claim(ReadStruct):
    metadata: Identity
    spec: msgspec.Raw = msgspec.Raw()
    status: _Status | None = None


_claims = msgspec.json.Decoder(_Claim)


def read_allocated_claim(raw: bytes | msgspec.Raw) -> tuple[str, AllocatedClaim]:
    """Decode a ResourceClaim into (uid, AllocatedClaim). msgspec.ValidationError if it is no ResourceClaim."""
    found = decode_object(_claims, raw)
    meta, status = found.metadata, found.status or _Status()
    ours = OUR_CLAIM.fullmatch(meta.name or "") is not None
    given = status.allocation and status.allocation.devices
    spec = bytes(found.spec)
    request, unread = (None, "") if ours else _asked(spec)
    awaits_others = not ours and status.allocation is None
    claim = AllocatedClaim(
        sys.intern(meta.namespace or ""),
        meta.name or "",
        meta.uid or "",
        _device_ids((given.results if given else None) or ()),
        _pods(status),
        awaits_others=awaits_others,
        classes=read_classes(spec) if awaits_others else None,
        request=request,
        unread=unread,
        version=meta.resource_version or "",
    )
    return claim.uid, claim


def _asked(spec: bytes) -> tuple[ClaimRequest | None, str]:
    """Return what a claim of a user asks for, or what of it is not read."""
    try:
        return read_claim_request(spec), ""
    except UnreadError as error:
        return None, str(error)


def _pods(status: _Status) -> tuple[str, ...]:
    return tuple(each.uid for each in status.reserved_for or () if each.resource == "pods")


def _device_ids(results: Iterable[_Result]) -> tuple[DeviceId, ...]:
    """Return the GPUs of an allocation, without those that it may only observe."""
    return tuple(
        DeviceId(sys.intern(each.driver), sys.intern(each.pool), sys.intern(each.device))
        for each in results
        if each.driver in names.GPU_DRIVERS and not each.admin_access
    )
