"""The Lease of leader election, and the Lease of a monitor.

Every monitor renews its Lease every few seconds, so only the three fields that matter are decoded.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gpu_scheduler.core.nodes.monitor_leases import MonitorLease
from gpu_scheduler.kube.objects.decoding import decode_object
from gpu_scheduler.kube.objects.meta import Named


class LeaseSpec(msgspec.Struct, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class LeaseMeta(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str
    namespace: str
    resource_version: str | None = None
    uid: str | None = None


class Lease(msgspec.Struct, rename="camel"):
    metadata: LeaseMeta
    spec: LeaseSpec


MAX_KEPT: Final = 2**16
"""Bytes of a Lease whose other fields are kept. Every renewal sends them again."""


class _KeptLease(msgspec.Struct):
    """A Lease with the fields that we do not know."""

    metadata: dict[str, Any] = {}
    spec: dict[str, Any] = {}


_own_leases = msgspec.json.Decoder(Lease)
_kept_leases = msgspec.json.Decoder(_KeptLease)


def read_lease(body: bytes) -> Lease:
    """Decode the Lease of leader election. Raise msgspec.DecodeError if it is not a Lease."""
    return _own_leases.decode(body)


def merge_lease(lease: Lease, last: bytes) -> bytes:
    """Encode `lease` over `last`, its JSON as it was read, so that a PUT keeps labels, owners and all other fields.

    Another version than that of `last`, or one of more than MAX_KEPT bytes, is encoded alone.
    """
    kept = _kept_leases.decode(last) if 0 < len(last) <= MAX_KEPT else _KeptLease()
    if kept.metadata.get("resourceVersion") != lease.metadata.resource_version:
        kept = _KeptLease()
    metadata, spec = msgspec.to_builtins(lease.metadata), msgspec.to_builtins(lease.spec)
    return msgspec.json.encode({"metadata": kept.metadata | metadata, "spec": kept.spec | spec})


DEFAULT_DURATION: Final = 45.0
"""Seconds that a Lease without a duration lasts: three of a monitor's usual intervals."""


class _LeaseSpec(msgspec.Struct, rename="camel", gc=False):
    """When the monitor last renewed the Lease, and how long the Lease lasts."""

    renew_time: str | None = None
    lease_duration_seconds: int | None = None


class _Lease(msgspec.Struct, gc=False):
    """A monitor's Lease. Its name is the node's name."""

    metadata: Named
    spec: _LeaseSpec | None = None


_leases = msgspec.json.Decoder(_Lease)


def read_monitor_lease(raw: bytes | msgspec.Raw) -> tuple[str, MonitorLease]:
    """Decode a monitor's Lease into (node, MonitorLease). Raise msgspec.ValidationError if it is not a Lease."""
    lease = decode_object(_leases, raw)
    spec = lease.spec or _LeaseSpec()
    node = lease.metadata.name
    return node, MonitorLease(node, spec.renew_time, float(spec.lease_duration_seconds or DEFAULT_DURATION))
