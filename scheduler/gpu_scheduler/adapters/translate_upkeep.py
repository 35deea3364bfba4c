"""What keeps a running scheduler informed becomes values here: monitors' Leases, and the settings that may change.

Every monitor renews its Lease every few seconds, so only the three fields that count are read.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.adapters.decoding import decode_object
from gpu_scheduler.core.freshness import Sighting

USUAL: Final = 45.0
"""Seconds that a Lease lasts which does not say: three of a monitor's usual intervals."""


class _Named(msgspec.Struct, gc=False):
    """All that counts of the metadata."""

    name: str


class _LeaseSpec(msgspec.Struct, rename="camel", gc=False):
    """When a monitor spoke last, and how long that holds."""

    renew_time: str | None = None
    lease_duration_seconds: int | None = None


class _Lease(msgspec.Struct, gc=False):
    """A monitor's Lease, called as its node."""

    metadata: _Named
    spec: _LeaseSpec | None = None


class _ConfigMap(msgspec.Struct, gc=False):
    """Settings or limits, as text."""

    metadata: _Named
    data: dict[str, str] | None = None


_leases = msgspec.json.Decoder(_Lease)
_config_maps = msgspec.json.Decoder(_ConfigMap)


def read_sighting(raw: bytes | msgspec.Raw) -> tuple[str, Sighting]:
    """JSON of a monitor's Lease to (node, Sighting). msgspec.ValidationError when it is no Lease."""
    lease = decode_object(_leases, raw)
    spec = lease.spec or _LeaseSpec()
    node = lease.metadata.name
    return node, Sighting(node, spec.renew_time, float(spec.lease_duration_seconds or USUAL))


def read_strategy(raw: bytes | msgspec.Raw) -> tuple[str, str | None]:
    """JSON of the settings to (name, the strategy as written, if any). msgspec.ValidationError when it is no map."""
    settings = decode_object(_config_maps, raw)
    return settings.metadata.name, (settings.data or {}).get(names.SETTINGS_STRATEGY)


def read_limits(raw: bytes | msgspec.Raw) -> tuple[str, str | None]:
    """JSON of the limits to (name, their text, if any). msgspec.ValidationError when it is no map."""
    limits = decode_object(_config_maps, raw)
    return limits.metadata.name, (limits.data or {}).get(names.LIMITS_TEXT)
