"""The fields of Kubernetes' storage objects that we read, as msgspec Structs; see objects.py."""

from __future__ import annotations

from typing import Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.adapters.objects import NodeSelector, ObjectMeta  # noqa: TC001 - msgspec resolves them at run time

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
"""Kubernetes writes it on a claim together with its volume, when the two belong together for good."""
FORMER_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
"""Where the class of a claim stood before it had a field; it still goes before the field."""


class _Read(msgspec.Struct, rename="camel", gc=False):
    """Base of everything that is only read."""


class ClaimSpec(_Read):
    """What a claim asks for."""

    volume_name: str | None = None
    storage_class_name: str | None = None


class ClaimAnnotations(_Read):
    """Those that a decision reads; tenants write others."""

    former_class: str | None = msgspec.field(name=FORMER_CLASS, default=None)
    bind_completed: str | None = msgspec.field(name=BIND_COMPLETED, default=None)
    selected_node: str | None = msgspec.field(name=names.SELECTED_NODE, default=None)


class ClaimMeta(_Read):
    """Which claim it is, and what is written on it."""

    name: str | None = None
    namespace: str | None = None
    deletion_timestamp: str | None = None
    annotations: ClaimAnnotations | None = None


class PersistentVolumeClaim(_Read):
    """A claim."""

    metadata: ClaimMeta
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
