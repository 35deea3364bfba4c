"""A pod's scheduling constraints: selectors, affinity, tolerations, and those that this scheduler does not support.

The pods of a workload have the same constraints, so each distinct text is decoded once and equal constraints share one
value.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from gpu_scheduler.core.pods.bounds import MAX_CLAIMS, MAX_CONSTRAINTS, MAX_VOLUMES, Excess
from gpu_scheduler.core.pods.constraints import (
    ANYWHERE,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    SchedulingConstraints,
    Toleration,
)
from gpu_scheduler.kube.objects.decoding import decode_part
from gpu_scheduler.kube.objects.pod_objects import (
    Affinity,
    NodeSelector,
    PodSpec,
    PodVolumeObject,
    SelectorRequirement,
    TolerationObject,
    TopologySpreadConstraint,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_selectors = msgspec.json.Decoder(dict[str, str] | None)
_affinities = msgspec.json.Decoder(Affinity | None)
_tolerations = msgspec.json.Decoder(list[TolerationObject] | None)
_spreads = msgspec.json.Decoder(list[TopologySpreadConstraint] | None)
_volumes = msgspec.json.Decoder(list[PodVolumeObject] | None)

_LONGEST: Final = 2048
"""Most bytes of one pod's texts for which the result is cached."""
_MOST: Final = 1024
"""Most cached results."""
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_ABSENT: Final = frozenset({b"", b"null"})


class PodConstraints(NamedTuple):
    """A pod's constraints, and the paths of its fields that this scheduler does not support."""

    constraints: SchedulingConstraints
    unsupported: tuple[str, ...]


NO_CONSTRAINTS: Final = PodConstraints(ANYWHERE, ())


def constraints_of(spec: PodSpec) -> tuple[PodConstraints, Excess | None]:
    """Return all constraints of the pod on its node; if their text is too long, none of them and an Excess.

    ResourceClaims have names of their own in each pod, so they are read elsewhere (resource_claims.py).
    """
    texts = (
        bytes(spec.node_selector),
        bytes(spec.affinity),
        bytes(spec.tolerations),
        bytes(spec.topology_spread_constraints),
    )
    size = sum(map(len, texts)) + len(memoryview(spec.resource_claims))
    if size > MAX_CONSTRAINTS:
        return NO_CONSTRAINTS, Excess("what the pod says of its node", size, MAX_CONSTRAINTS)
    return (_constraints if size <= _LONGEST else _constraints.__wrapped__)(*texts), None


def claims_of(pod_name: str, spec: PodSpec) -> tuple[tuple[str, ...], Excess | None]:
    """Return the names of the PersistentVolumeClaims that the pod mounts; if there are too many, none and an Excess.

    The claim of an ephemeral volume is named POD-VOLUME.
    """
    data = bytes(spec.volumes)
    if len(data) > MAX_VOLUMES:
        return (), Excess("spec.volumes", len(data), MAX_VOLUMES)
    claims = tuple(_claim_names(pod_name, decode_part(_volumes, data) or ()))
    if len(claims) > MAX_CLAIMS:
        return (), Excess("spec.volumes", len(claims), MAX_CLAIMS, "claims")
    return claims, None


def terms_of(selector: NodeSelector) -> tuple[NodeSelectorTerm, ...]:
    """Return the terms of a node selector, a pod's or a volume's."""
    return tuple(
        NodeSelectorTerm(_requirements(term.match_expressions or ()), _requirements(term.match_fields or ()))
        for term in selector.node_selector_terms or ()
    )


def _claim_names(pod_name: str, volumes: Iterable[PodVolumeObject]) -> Iterator[str]:
    for volume in volumes:
        source = volume.persistent_volume_claim
        if source is not None and source.claim_name:
            yield source.claim_name
        elif volume.ephemeral is not None:
            yield f"{pod_name}-{volume.name or ''}"


@lru_cache(maxsize=_MOST)
def _constraints(selector: bytes, affinity: bytes, tolerations: bytes, spread: bytes) -> PodConstraints:
    wanted = decode_part(_affinities, affinity)
    labels = decode_part(_selectors, selector)
    node_affinity = wanted.node_affinity if wanted else None
    terms = terms_of(node_affinity.required) if node_affinity and node_affinity.required else None
    # A selector or affinity that cannot be decoded matches no node.
    if (wanted is None and affinity not in _ABSENT) or (labels is None and selector not in _ABSENT):
        terms = ()
    constraints = SchedulingConstraints(labels or {}, terms, _tolerated(decode_part(_tolerations, tolerations) or ()))
    unsupported = _unsupported(wanted, decode_part(_spreads, spread) or ())
    return PodConstraints(ANYWHERE if constraints == ANYWHERE else constraints, tuple(unsupported))


def _requirements(given: Iterable[SelectorRequirement]) -> tuple[NodeSelectorRequirement, ...]:
    return tuple(
        NodeSelectorRequirement(each.key or "", each.operator or "", tuple(each.values or ())) for each in given
    )


def _tolerated(given: Iterable[TolerationObject]) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(each.key or "", each.operator or "Equal", each.value or "", each.effect or "") for each in given
    )


def _unsupported(affinity: Affinity | None, spreads: Iterable[TopologySpreadConstraint]) -> Iterator[str]:
    if affinity and affinity.pod_affinity and affinity.pod_affinity.required:
        yield f"spec.affinity.podAffinity.{_REQUIRED}"
    if affinity and affinity.pod_anti_affinity and affinity.pod_anti_affinity.required:
        yield f"spec.affinity.podAntiAffinity.{_REQUIRED}"
    if any(spread.when_unsatisfiable == "DoNotSchedule" for spread in spreads):
        yield "spec.topologySpreadConstraints"
