"""The ResourceClaims that a pod carries, ours or one of its author, and those that its containers use."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from gpu_scheduler import names
from gpu_scheduler.core.pods.bounds import MAX_CONSTRAINTS, MAX_PART
from gpu_scheduler.core.pods.claim_sets import CLAIM_ENTRIES
from gpu_scheduler.core.pods.container_env import ContainerClaims
from gpu_scheduler.core.pods.own_claim import OwnClaim
from gpu_scheduler.kube.objects.decoding import decode_part
from gpu_scheduler.kube.objects.pod_objects import (
    ClaimUser,
    PodObject,
    PodResourceClaim,
    PodStatus,
    ResourceClaimStatus,
    UsedClaim,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_entries = msgspec.json.Decoder(list[PodResourceClaim] | None)
_statuses = msgspec.json.Decoder(list[ResourceClaimStatus] | None)
_users = msgspec.json.Decoder(ClaimUser | None)
_used_claims = msgspec.json.Decoder(list[UsedClaim] | None)

_NOTHING: Final = frozenset({b"", b"null", b"[]"})
OUR_CLAIM: Final = re.compile(f"{re.escape(names.CLAIM)}[a-z0-9]{{1,32}}")
"""The names of claims that webhook and core make. A policy lets only the scheduler create them."""
_NUMBERS: Final = {name: number for number, name in enumerate(CLAIM_ENTRIES)}
_MAX_NAME: Final = 63
"""Longest name of an entry, and of a request."""
_ENTRY: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_CLAIM: Final = re.compile(r"[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?")


class PodClaims(NamedTuple):
    """What a pod carries of ResourceClaims: some of ours, or one of its author, or what is not read."""

    ours: tuple[str, ...] = ()
    """Their names, in the order of their entries."""
    own: OwnClaim | None = None
    unread: bool = False


_NONE: Final = PodClaims()
_UNREAD: Final = PodClaims(unread=True)


def resource_claims_of(pod: PodObject) -> PodClaims:
    """Return the pod's ResourceClaims. If their text is too long, the pod is not placed anyway."""
    data = memoryview(pod.spec.resource_claims)
    if not data or data[:5].tobytes() in _NOTHING:
        return _NONE
    entries = decode_part(_entries, bytes(data)) if len(data) <= MAX_CONSTRAINTS else None
    if entries is None:
        return _UNREAD
    if len(entries) == 1 and (own := _own_claim(entries[0], pod.status or PodStatus())) is not None:
        return PodClaims(own=own)
    found: dict[int, str] = {}
    for entry in entries:
        number, name = _NUMBERS.get(entry.name or "", -1), entry.resource_claim_name or ""
        if number >= 0 and entry.resource_claim_template_name is None and OUR_CLAIM.fullmatch(name):
            found[number] = name
    # Every number once, without a gap.
    if len(found) != len(entries) or (found and max(found) >= len(found)):
        return _UNREAD
    return PodClaims(tuple(found[number] for number in range(len(found))))


def _own_claim(entry: PodResourceClaim, status: PodStatus) -> OwnClaim | None:
    """Return the claim of an entry that its author wrote; None if it is ours, or cannot be read."""
    name, claim, template = entry.name or "", entry.resource_claim_name or "", entry.resource_claim_template_name or ""
    if name in _NUMBERS or not _ENTRY.fullmatch(name) or bool(claim) == bool(template):
        return None
    if template:
        made = decode_part(_statuses, bytes(status.resource_claim_statuses)) or ()
        claim = next((each.resource_claim_name or "" for each in made if each.name == name), "")
    return OwnClaim(name, claim) if not claim or (_CLAIM.fullmatch(claim) and not OUR_CLAIM.fullmatch(claim)) else None


def container_claims(resources: bytes | memoryview) -> ContainerClaims:
    """Return what a `resources` field has of claims."""
    if len(resources) > MAX_PART:
        # Such a pod is not placed.
        return ContainerClaims(has_resources=True)
    user = decode_part(_users, bytes(resources))
    if user is None:
        # A patch replaces a field that is no object.
        return ContainerClaims()
    claims = decode_part(_used_claims, bytes(user.claims))
    return ContainerClaims(None if claims is None else tuple(dict.fromkeys(_used(claims))), has_resources=True)


def _used(claims: Sequence[UsedClaim]) -> Iterator[str]:
    for each in claims[: len(CLAIM_ENTRIES) + 1]:
        name = (each.name or "")[:_MAX_NAME]
        if name:
            yield name if each.request is None else f"{name}/{each.request[:_MAX_NAME]}"
