"""The ResourceClaims of ours that a pod carries, and those that its containers use.

A pod with an entry of another author is not placed: this scheduler does not read the claim's selectors.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.core.pods.bounds import MAX_CONSTRAINTS, MAX_PART
from gpu_scheduler.core.pods.claim_sets import CLAIM_ENTRIES
from gpu_scheduler.core.pods.container_env import ContainerClaims
from gpu_scheduler.kube.objects.decoding import decode_part
from gpu_scheduler.kube.objects.pod_objects import ClaimUser, PodResourceClaim, PodSpec, UsedClaim

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_entries = msgspec.json.Decoder(list[PodResourceClaim] | None)
_users = msgspec.json.Decoder(ClaimUser | None)
_used_claims = msgspec.json.Decoder(list[UsedClaim] | None)

_NOTHING: Final = frozenset({b"", b"null", b"[]"})
OUR_CLAIM: Final = re.compile(f"{re.escape(names.CLAIM)}[a-z0-9]{{1,32}}")
"""The names of claims that webhook and core make. A policy lets only the scheduler create them."""
_NUMBERS: Final = {name: number for number, name in enumerate(CLAIM_ENTRIES)}
_MAX_NAME: Final = 63
"""Longest name of a request."""


def resource_claims_of(spec: PodSpec) -> tuple[tuple[str, ...], bool]:
    """Return the names of the pod's ResourceClaims in the order of their entries, if all entries are ours.

    The second value is whether it has others. If their text is too long, the pod is not placed anyway.
    """
    data = memoryview(spec.resource_claims)
    if data[:5].tobytes() in _NOTHING:
        return (), False
    entries = decode_part(_entries, bytes(data)) if len(data) <= MAX_CONSTRAINTS else None
    if entries is None:
        return (), True
    found: dict[int, str] = {}
    for entry in entries:
        number, name = _NUMBERS.get(entry.name or "", -1), entry.resource_claim_name or ""
        if number >= 0 and entry.resource_claim_template_name is None and OUR_CLAIM.fullmatch(name):
            found[number] = name
    # Every number once, without a gap.
    if len(found) != len(entries) or (found and max(found) >= len(found)):
        return (), True
    return tuple(found[number] for number in range(len(found))), False


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
        name = each.name or ""
        if name in _NUMBERS:
            yield name if each.request is None else f"{name}/{each.request[:_MAX_NAME]}"
