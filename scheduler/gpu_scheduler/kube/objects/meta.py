"""What all kinds of the API share: metadata, conditions, lists, watch events.

Every field that the API server may send as null or leave out says so here, so nobody further in has to ask again.
Whatever else an object carries is never built.
"""

from __future__ import annotations

import msgspec


class ReadStruct(msgspec.Struct, rename="camel", gc=False):
    """Base of everything that is only read."""


class Identity(ReadStruct):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None


class Identified(ReadStruct):
    """Which object it is, and which version: all that is read of one that cannot be read, or need not be."""

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
    """One page of a list; the items stay undecoded so that one odd object cannot cost the whole page."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class WatchEvent(ReadStruct):
    type: str
    object: msgspec.Raw


class Version(ReadStruct):
    resource_version: str | None = None


class Bookmark(ReadStruct):
    """Of every event its version is read, whatever its object is."""

    metadata: Version


class Status(ReadStruct):
    """What the API server answers instead of an object."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None


class Named(msgspec.Struct, gc=False):
    """All that counts of the metadata."""

    name: str
