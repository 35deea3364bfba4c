"""Kubernetes' objects become core values here, and nothing else does; pure.

Only what a decision reads is kept: a cache of these values costs a fraction of what the API server sent. Thousands of
pods are alike, so that what they have in common is one value, which nobody changes.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.adapters import objects
from gpu_scheduler.adapters.decoding import decode_object
from gpu_scheduler.adapters.translate_demand import demand_of, wants_of
from gpu_scheduler.adapters.translate_nodes import node_value, read_node
from gpu_scheduler.adapters.translate_wishes import claims_of, wishes_of
from gpu_scheduler.core.model import Condition, Container, ContainerKind, EnvVar, Owner, Pod, PodRef, Resident

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    _Env = tuple[tuple[str, str | None, str | None], ...] | None
    _Named = tuple[tuple[str, _Env], ...]

__all__ = ["node_value", "pod_value", "read_node", "read_pod", "read_resident"]

_pods = msgspec.json.Decoder(objects.Pod)
_residents = msgspec.json.Decoder(objects.Resident)
_NO_CONTAINERS = frozenset({b"", b"null", b"[]"})
_CUDA = frozenset({names.VISIBLE_DEVICES, names.DEVICE_ORDER})
_KINDS: Final = (ContainerKind.CONTAINER, ContainerKind.INIT, ContainerKind.EPHEMERAL)
"""In the order in which a pod's lists of containers are read."""
_LONGEST: Final = 2048
"""Characters of what is remembered, as it is written."""
_SCHEDULED: Final = Condition("True", "", "")
"""What nearly all bound pods say; since when they do counts for nothing."""


def read_pod(raw: bytes | msgspec.Raw) -> tuple[str, Pod]:
    """JSON of a pod to (uid, Pod). msgspec.ValidationError when it is no pod."""
    pod = pod_value(decode_object(_pods, raw))
    return pod.ref.uid, pod


def read_resident(raw: bytes | msgspec.Raw) -> tuple[str, Resident]:
    """JSON of another scheduler's bound pod to (uid, Resident). msgspec.ValidationError when it is no pod."""
    pod = decode_object(_residents, raw)
    meta = pod.metadata
    ref = PodRef(sys.intern(meta.namespace or ""), meta.name or "", meta.uid or "")
    return ref.uid, Resident(ref, sys.intern(pod.spec.node_name or ""), demand_of(pod.spec))


def pod_value(pod: objects.Pod, namespace: str = "") -> Pod:
    """A pod as placement sees it; `namespace` stands in for the one that a pod under admission may not carry yet."""
    meta, spec = pod.metadata, pod.spec
    status = pod.status or objects.PodStatus()
    constraints, unsupported = wishes_of(spec)
    return Pod(
        ref=PodRef(sys.intern(meta.namespace or namespace), meta.name or "", meta.uid or ""),
        scheduler_name=sys.intern(spec.scheduler_name or ""),
        node=sys.intern(spec.node_name) if spec.node_name else None,
        phase=sys.intern(status.phase or "Pending"),
        deleting_since=meta.deletion_timestamp,
        gated=bool(spec.scheduling_gates),
        generate_name=meta.generate_name,
        owner=_controller(meta.owner_references or ()),
        annotations=_annotations(meta.annotations),
        labels=_labels(meta.labels),
        containers=_containers(spec),
        demand=demand_of(spec),
        constraints=constraints,
        claims=claims_of(meta.name or "", spec),
        gpu_limits=_gpu_limits(chain(spec.containers or (), spec.init_containers or ())),
        unsupported=unsupported,
        scheduled_condition=_scheduled(status.conditions or ()),
        rejected=_rejected(status),
    )


def _rejected(status: objects.PodStatus) -> str:
    """A kubelet that rejects a pod gives the reason and no container; one that evicts it had made some."""
    rejected = status.phase == "Failed" and bytes(status.container_statuses) in _NO_CONTAINERS
    return sys.intern(status.reason or "") if rejected else ""


def _annotations(given: Mapping[str, str] | None) -> dict[str, str]:
    """Interned: a workload's pods all carry the same map, and its text should be in memory once."""
    return {
        sys.intern(key): value if key == names.ASSIGNED_AT else sys.intern(value)
        for key, value in (given or {}).items()
        if key in names.POD_ANNOTATIONS
    }


def _labels(given: Mapping[str, str] | None) -> Mapping[str, str]:
    kept = tuple(item for item in (given or {}).items() if item[0] in names.POD_LABELS)
    return _same_labels(kept) if len(str(kept)) <= _LONGEST else dict(kept)


@lru_cache(maxsize=4096)
def _same_labels(kept: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return {sys.intern(key): value for key, value in kept}


def _controller(owners: Iterable[objects.OwnerReference]) -> Owner | None:
    owner = next((owner for owner in owners if owner.controller), None)
    if owner is None:
        return None
    short = len(owner.kind) + len(owner.name) <= _LONGEST
    return _same_owner(owner.kind, owner.name) if short else Owner(owner.kind, owner.name)


_same_owner = lru_cache(maxsize=4096)(Owner)


def _containers(spec: objects.PodSpec) -> tuple[Container, ...]:
    lists = (spec.containers, spec.init_containers, spec.ephemeral_containers)
    given = tuple(tuple((each.name, _env(each.env)) for each in containers or ()) for containers in lists)
    return _same_containers(given) if len(str(given)) <= _LONGEST else _same_containers.__wrapped__(given)


@lru_cache(maxsize=4096)
def _same_containers(given: Sequence[_Named]) -> tuple[Container, ...]:
    return tuple(
        Container(kind, position, name, None if env is None else tuple(EnvVar(*variable) for variable in env))
        for kind, containers in zip(_KINDS, given, strict=True)
        for position, (name, env) in enumerate(containers)
    )


def _gpu_limits(containers: Iterable[objects.Container]) -> tuple[tuple[str, int], ...]:
    limits = ((container.name, wants_of(container.resources).gpu_limit) for container in containers)
    return tuple((sys.intern(name), limit) for name, limit in limits if limit > 0)


def _env(env: list[objects.Env] | None) -> _Env:
    """Only the two CUDA variables; None stays None, because a patch must then make the list."""
    if env is None:
        return None
    return tuple(_variable(entry) for entry in env if entry.name in _CUDA)


def _variable(entry: objects.Env) -> tuple[str, str | None, str | None]:
    """As EnvVar has it; an entry without a value and without a source has the value "" for the container."""
    if entry.value_from is None:
        return entry.name, entry.value or "", None
    reference = entry.value_from.field_ref
    return entry.name, None, reference.field_path if reference else None


def _scheduled(conditions: Iterable[objects.Condition]) -> Condition | None:
    for condition in conditions:
        if condition.type == names.CONDITION_POD_SCHEDULED:
            if condition.status == "True" and not condition.reason and not condition.message:
                return _SCHEDULED
            return Condition(
                condition.status, condition.reason or "", condition.message or "", condition.last_transition_time
            )
    return None
