"""The two ConfigMaps that a running scheduler follows become text: the strategy, and the limits of namespaces."""

from __future__ import annotations

import msgspec

from gpu_scheduler import names
from gpu_scheduler.kube.objects.decoding import decode_object
from gpu_scheduler.kube.objects.meta import Named


class _ConfigMap(msgspec.Struct, gc=False):
    """Settings or limits, as text."""

    metadata: Named
    data: dict[str, str] | None = None


_config_maps = msgspec.json.Decoder(_ConfigMap)


def read_strategy(raw: bytes | msgspec.Raw) -> tuple[str, str | None]:
    """JSON of the settings to (name, the strategy as written, if any). msgspec.ValidationError when it is no map."""
    settings = decode_object(_config_maps, raw)
    return settings.metadata.name, (settings.data or {}).get(names.SETTINGS_STRATEGY)


def read_limits(raw: bytes | msgspec.Raw) -> tuple[str, str | None]:
    """JSON of the limits to (name, their text, if any). msgspec.ValidationError when it is no map."""
    limits = decode_object(_config_maps, raw)
    return limits.metadata.name, (limits.data or {}).get(names.LIMITS_TEXT)
