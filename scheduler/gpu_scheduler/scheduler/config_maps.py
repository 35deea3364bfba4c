"""Reads the two ConfigMaps that a running scheduler follows: the strategy, and the limits of namespaces."""

from __future__ import annotations

import msgspec

from gpu_scheduler import names
from gpu_scheduler.kube.objects.decoding import decode_object
from gpu_scheduler.kube.objects.meta import Named


class _ConfigMap(msgspec.Struct, gc=False):
    """The ConfigMap of the settings or of the limits."""

    metadata: Named
    data: dict[str, str] | None = None


_config_maps = msgspec.json.Decoder(_ConfigMap)


def read_strategy(raw: bytes | msgspec.Raw) -> tuple[str, str | None]:
    """Return (name, strategy as written or None) of the settings. msgspec.ValidationError if they are no ConfigMap."""
    settings = decode_object(_config_maps, raw)
    return settings.metadata.name, (settings.data or {}).get(names.SETTINGS_STRATEGY)


def read_limits(raw: bytes | msgspec.Raw) -> tuple[str, str | None]:
    """Return (name, text of the limits or None) of the limits. msgspec.ValidationError if they are no ConfigMap."""
    limits = decode_object(_config_maps, raw)
    return limits.metadata.name, (limits.data or {}).get(names.LIMITS_TEXT)
