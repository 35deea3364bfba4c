"""Translates claims, volumes and storage classes into core values."""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.core.filters.volumes import StorageClass, Volume, VolumeClaim
from gpu_scheduler.kube.objects.constraints import terms_of
from gpu_scheduler.kube.objects.decoding import decode_object
from gpu_scheduler.kube.objects.meta import ObjectMeta, ReadStruct
from gpu_scheduler.kube.objects.pod_objects import NodeSelector

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
"""Annotation that Kubernetes writes on a claim, with its volume, when the two are bound for good."""
FORMER_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
"""Annotation with a claim's class, from before the field existed. It still takes precedence over the field."""

DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
"""Annotation of the class that claims get which name none."""


class ClaimSpec(ReadStruct):
    """What a claim asks for."""

    volume_name: str | None = None
    storage_class_name: str | None = None


class ClaimAnnotations(ReadStruct):
    """The annotations that a decision reads. Users may write others."""

    former_class: str | None = msgspec.field(name=FORMER_CLASS, default=None)
    bind_completed: str | None = msgspec.field(name=BIND_COMPLETED, default=None)
    selected_node: str | None = msgspec.field(name=names.SELECTED_NODE, default=None)


class ClaimMeta(ReadStruct):
    """Identity and annotations of a claim."""

    name: str | None = None
    namespace: str | None = None
    deletion_timestamp: str | None = None
    annotations: ClaimAnnotations | None = None


class PersistentVolumeClaim(ReadStruct):
    """A claim."""

    metadata: ClaimMeta
    spec: ClaimSpec | None = None


class VolumeNodeAffinity(ReadStruct):
    """The nodes from which a volume can be reached."""

    required: NodeSelector | None = None


class VolumeSpec(ReadStruct):
    """How a volume is reached."""

    node_affinity: VolumeNodeAffinity | None = None


class PersistentVolume(ReadStruct):
    """A volume."""

    metadata: ObjectMeta
    spec: VolumeSpec | None = None


class StorageClassObject(ReadStruct):
    """A storage class. Its fields are at the top level, next to its metadata."""

    metadata: ObjectMeta
    provisioner: str | None = None
    volume_binding_mode: str | None = None


WAITS_FOR_CONSUMER: Final = "WaitForFirstConsumer"
_MAX_NAME: Final = 253
"""Longest name of an object: a longer one names no object."""
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"

_claims = msgspec.json.Decoder(PersistentVolumeClaim)
_volumes = msgspec.json.Decoder(PersistentVolume)
_classes = msgspec.json.Decoder(StorageClassObject)


def read_claim(raw: bytes | msgspec.Raw) -> tuple[str, VolumeClaim]:
    """Decode a claim into (NAMESPACE/NAME, VolumeClaim). Raise msgspec.ValidationError if it is not a claim."""
    decoded = decode_object(_claims, raw)
    meta, spec = decoded.metadata, decoded.spec or ClaimSpec()
    annotations = meta.annotations or ClaimAnnotations()
    storage_class = spec.storage_class_name if annotations.former_class is None else annotations.former_class
    selected = (annotations.selected_node or "")[:_MAX_NAME]
    claim = VolumeClaim(
        namespace=sys.intern(meta.namespace or ""),
        name=meta.name or "",
        volume=spec.volume_name or None,
        storage_class=sys.intern((storage_class or "")[:_MAX_NAME]) or None,
        selected_node=selected or None,
        deleting=meta.deletion_timestamp is not None,
        complete=not spec.volume_name or annotations.bind_completed is not None,
    )
    return str(claim), claim


def read_volume(raw: bytes | msgspec.Raw) -> tuple[str, Volume]:
    """Decode a volume into (name, Volume). Raise msgspec.ValidationError if it is not a volume."""
    decoded = decode_object(_volumes, raw)
    affinity = decoded.spec.node_affinity if decoded.spec else None
    required = affinity.required if affinity else None
    volume = Volume(decoded.metadata.name or "", None if required is None else terms_of(required))
    return volume.name, volume


def read_class(raw: bytes | msgspec.Raw) -> tuple[str, StorageClass]:
    """Decode a class into (name, StorageClass). Raise msgspec.ValidationError if it is not a storage class."""
    decoded = decode_object(_classes, raw)
    storage_class = StorageClass(
        name=decoded.metadata.name or "",
        waits_for_consumer=decoded.volume_binding_mode == WAITS_FOR_CONSUMER,
        provisions=decoded.provisioner != NO_PROVISIONER,
    )
    return storage_class.name, storage_class


def read_default_class(raw: bytes | msgspec.Raw) -> tuple[str, str] | None:
    """Decode a class into (creation, name) if claims that name no class get it, else None."""
    meta = decode_object(_classes, raw).metadata
    if (meta.annotations or {}).get(DEFAULT_CLASS) != "true":
        return None
    return meta.creation_timestamp or "", meta.name or ""
