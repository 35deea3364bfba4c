"""Structs that all kinds of the API share: metadata, conditions, lists, watch events.

A field that the API server may omit or send as null is declared optional here, so that no module outside this folder
has to check for it. Other fields of an object are never decoded.
"""

from __future__ import annotations

import msgspec

from gpu_scheduler.kube.objects.decoding import decode_object


class ReadStruct(msgspec.Struct, rename="camel", gc=False):
    """Base of structs that are only read."""


class Identity(ReadStruct):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None


class Identified(ReadStruct):
    """An object's identity and version, decoded alone if the rest cannot be decoded or need not be."""

    metadata: Identity


class ObjectMeta(ReadStruct):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    generate_name: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class ConditionObject(ReadStruct):
    type: str
    status: str
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class ListMeta(ReadStruct):
    resource_version: str | None = None
    # `continue` is a keyword in Python.
    continue_: str | None = msgspec.field(name="continue", default=None)


class ObjectList(ReadStruct):
    """One page of a list. The items stay undecoded, so that one faulty object does not make the page unreadable."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class WatchEvent(ReadStruct):
    type: str
    object: msgspec.Raw


class Version(ReadStruct):
    resource_version: str | None = None


class Bookmark(ReadStruct):
    """The version of a watch event's object, whatever its kind."""

    metadata: Version


class Status(ReadStruct):
    """The API server's answer in place of an object, such as an error."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None


class Named(msgspec.Struct, gc=False):
    """Metadata of which only the name matters."""

    name: str


class _NamedObject(msgspec.Struct, gc=False):
    metadata: Named


_named = msgspec.json.Decoder(_NamedObject)


def read_name(raw: bytes | msgspec.Raw) -> str:
    """Return the name of an object of any kind. msgspec.ValidationError if it has none."""
    return decode_object(_named, raw).metadata.name
