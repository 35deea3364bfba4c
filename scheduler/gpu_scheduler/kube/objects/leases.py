"""The Lease of an election, and a monitor's Lease.

Every monitor renews its Lease every few seconds, so only the three fields that count are read.
"""

from __future__ import annotations

from typing import Final

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


class Lease(msgspec.Struct, rename="camel"):
    metadata: LeaseMeta
    spec: LeaseSpec


USUAL: Final = 45.0
"""Seconds that a Lease lasts which does not say: three of a monitor's usual intervals."""


class _LeaseSpec(msgspec.Struct, rename="camel", gc=False):
    """When a monitor spoke last, and how long that holds."""

    renew_time: str | None = None
    lease_duration_seconds: int | None = None


class _Lease(msgspec.Struct, gc=False):
    """A monitor's Lease, called as its node."""

    metadata: Named
    spec: _LeaseSpec | None = None


_leases = msgspec.json.Decoder(_Lease)


def read_sighting(raw: bytes | msgspec.Raw) -> tuple[str, MonitorLease]:
    """JSON of a monitor's Lease to (node, Sighting). msgspec.ValidationError when it is no Lease."""
    lease = decode_object(_leases, raw)
    spec = lease.spec or _LeaseSpec()
    node = lease.metadata.name
    return node, MonitorLease(node, spec.renew_time, float(spec.lease_duration_seconds or USUAL))
