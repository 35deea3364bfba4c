"""Claims, volumes and storage classes become core values here, and nothing else does; pure."""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.adapters import storage_objects
from gpu_scheduler.adapters.decoding import decode_object
from gpu_scheduler.adapters.translate_wishes import terms_of
from gpu_scheduler.core.volumes import Claim, StorageClass, Volume

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
"""Kubernetes writes it on a claim together with its volume, when the two belong together for good."""
FORMER_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
"""Where the class of a claim stood before it had a field; it still goes before the field."""
WAITS_FOR_CONSUMER: Final = "WaitForFirstConsumer"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"

_claims = msgspec.json.Decoder(storage_objects.PersistentVolumeClaim)
_volumes = msgspec.json.Decoder(storage_objects.PersistentVolume)
_classes = msgspec.json.Decoder(storage_objects.StorageClass)


def read_claim(raw: bytes | msgspec.Raw) -> tuple[str, Claim]:
    """JSON of a claim to (NAMESPACE/NAME, Claim). msgspec.ValidationError when it is no claim."""
    decoded = decode_object(_claims, raw)
    meta, spec = decoded.metadata, decoded.spec or storage_objects.ClaimSpec()
    annotations = meta.annotations or {}
    claim = Claim(
        namespace=sys.intern(meta.namespace or ""),
        name=meta.name or "",
        volume=spec.volume_name or None,
        storage_class=sys.intern(annotations.get(FORMER_CLASS, spec.storage_class_name) or "") or None,
        selected_node=annotations.get(names.SELECTED_NODE) or None,
        deleting=meta.deletion_timestamp is not None,
        complete=not spec.volume_name or BIND_COMPLETED in annotations,
    )
    return str(claim), claim


def read_volume(raw: bytes | msgspec.Raw) -> tuple[str, Volume]:
    """JSON of a volume to (name, Volume). msgspec.ValidationError when it is no volume."""
    decoded = decode_object(_volumes, raw)
    affinity = decoded.spec.node_affinity if decoded.spec else None
    required = affinity.required if affinity else None
    volume = Volume(decoded.metadata.name or "", None if required is None else terms_of(required))
    return volume.name, volume


def read_class(raw: bytes | msgspec.Raw) -> tuple[str, StorageClass]:
    """JSON of a storage class to (name, StorageClass). msgspec.ValidationError when it is no storage class."""
    decoded = decode_object(_classes, raw)
    storage_class = StorageClass(
        name=decoded.metadata.name or "",
        waits_for_consumer=decoded.volume_binding_mode == WAITS_FOR_CONSUMER,
        provisions=decoded.provisioner != NO_PROVISIONER,
    )
    return storage_class.name, storage_class
