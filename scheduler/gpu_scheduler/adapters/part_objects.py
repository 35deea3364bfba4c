"""Parts of a pod that many pods have in common, each read by itself; see objects.py."""

from __future__ import annotations

from typing import Any

import msgspec

from gpu_scheduler import names


def _named(key: str) -> Any:
    """A field of this name that may be absent."""
    return msgspec.field(name=key, default=msgspec.UNSET)


class _Read(msgspec.Struct, rename="camel", gc=False):
    """Base of everything that is only read."""


class Counted(_Read):
    """The resources that nodes count of themselves; those of other names may be thousands."""

    cpu: object = msgspec.UNSET
    memory: object = msgspec.UNSET
    ephemeral_storage: object = _named("ephemeral-storage")
    gpu: object = _named(names.GPU_RESOURCE)


class LongRequirements(_Read):
    """Requirements of which only those resources are read."""

    requests: Counted | None = None
    limits: Counted | None = None


class ResourceRequirements(_Read):
    """What a container asks for."""

    requests: dict[str, object] | None = None
    limits: dict[str, object] | None = None


class ContainerPort(_Read):
    """A port of a container."""

    host_port: int | None = None
    protocol: str | None = None
    # `hostIP` and not `hostIp`.
    host_ip: str | None = msgspec.field(name="hostIP", default=None)


class ClaimSource(_Read):
    """A volume that is a claim."""

    claim_name: str | None = None


class EphemeralSource(_Read):
    """That it is there is all that counts: the claim's name follows from the pod's and the volume's."""


class Volume(_Read):
    """A volume of a pod."""

    name: str | None = None
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None
