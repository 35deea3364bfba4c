"""Claims, volumes and storage classes become core values here, and nothing else does; pure."""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from gpu_scheduler.adapters import storage_objects
from gpu_scheduler.adapters.decoding import decode_object
from gpu_scheduler.adapters.translate_wishes import terms_of
from gpu_scheduler.core.volumes import Claim, StorageClass, Volume

WAITS_FOR_CONSUMER: Final = "WaitForFirstConsumer"
_MAX_NAME: Final = 253
"""Longest name of an object: a longer one is nobody's."""
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"

_claims = msgspec.json.Decoder(storage_objects.PersistentVolumeClaim)
_volumes = msgspec.json.Decoder(storage_objects.PersistentVolume)
_classes = msgspec.json.Decoder(storage_objects.StorageClass)


def read_claim(raw: bytes | msgspec.Raw) -> tuple[str, Claim]:
    """JSON of a claim to (NAMESPACE/NAME, Claim). msgspec.ValidationError when it is no claim."""
    decoded = decode_object(_claims, raw)
    meta, spec = decoded.metadata, decoded.spec or storage_objects.ClaimSpec()
    said = meta.annotations or storage_objects.ClaimAnnotations()
    storage_class = spec.storage_class_name if said.former_class is None else said.former_class
    selected = (said.selected_node or "")[:_MAX_NAME]
    claim = Claim(
        namespace=sys.intern(meta.namespace or ""),
        name=meta.name or "",
        volume=spec.volume_name or None,
        storage_class=sys.intern((storage_class or "")[:_MAX_NAME]) or None,
        selected_node=selected or None,
        deleting=meta.deletion_timestamp is not None,
        complete=not spec.volume_name or said.bind_completed is not None,
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
