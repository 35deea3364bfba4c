"""The fields of Kubernetes' storage objects that we read, as msgspec Structs; see objects.py."""

from __future__ import annotations

import msgspec

from gpu_scheduler.adapters.objects import NodeSelector, ObjectMeta  # noqa: TC001 - msgspec resolves them at run time


class _Read(msgspec.Struct, rename="camel", gc=False):
    """Base of everything that is only read."""


class ClaimSpec(_Read):
    """What a claim asks for."""

    volume_name: str | None = None
    storage_class_name: str | None = None


class PersistentVolumeClaim(_Read):
    """A claim."""

    metadata: ObjectMeta
    spec: ClaimSpec | None = None


class VolumeNodeAffinity(_Read):
    """From where a volume can be reached."""

    required: NodeSelector | None = None


class VolumeSpec(_Read):
    """How a volume is reached."""

    node_affinity: VolumeNodeAffinity | None = None


class PersistentVolume(_Read):
    """A volume."""

    metadata: ObjectMeta
    spec: VolumeSpec | None = None


class StorageClass(_Read):
    """A class; its fields stand beside its metadata."""

    metadata: ObjectMeta
    provisioner: str | None = None
    volume_binding_mode: str | None = None
