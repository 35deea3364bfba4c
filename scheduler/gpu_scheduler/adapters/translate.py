"""Kubernetes' objects become core values here, and nothing else does; pure.

Only what a decision reads is kept: a cache of these values costs a fraction of what the API server sent.
"""

from __future__ import annotations

import sys
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from gpu_scheduler import names
from gpu_scheduler.adapters import objects
from gpu_scheduler.adapters.decoding import decode_object
from gpu_scheduler.adapters.translate_demand import demand_of, wants_of
from gpu_scheduler.adapters.translate_nodes import node_value, read_node
from gpu_scheduler.adapters.translate_wishes import claims_of, wishes_of
from gpu_scheduler.core.model import Condition, Container, ContainerKind, EnvVar, Owner, Pod, PodRef, Resident

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["node_value", "pod_value", "read_node", "read_pod", "read_resident"]

_pods = msgspec.json.Decoder(objects.Pod)
_residents = msgspec.json.Decoder(objects.Resident)
_NO_CONTAINERS = frozenset({b"", b"null", b"[]"})
_CUDA = frozenset({names.VISIBLE_DEVICES, names.DEVICE_ORDER})


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
        annotations=_only(names.POD_ANNOTATIONS, meta.annotations),
        labels=_only(names.POD_LABELS, meta.labels),
        containers=(
            *_containers(ContainerKind.CONTAINER, spec.containers),
            *_containers(ContainerKind.INIT, spec.init_containers),
            *_containers(ContainerKind.EPHEMERAL, spec.ephemeral_containers),
        ),
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


def _only(keys: frozenset[str], given: Mapping[str, str] | None) -> dict[str, str]:
    """Interned: a workload's pods all carry the same map, and its text should be in memory once."""
    return {sys.intern(key): sys.intern(value) for key, value in (given or {}).items() if key in keys}


def _controller(owners: Iterable[objects.OwnerReference]) -> Owner | None:
    return next((Owner(sys.intern(owner.kind), sys.intern(owner.name)) for owner in owners if owner.controller), None)


def _containers(kind: ContainerKind, containers: list[objects.Container] | None) -> Iterable[Container]:
    for position, container in enumerate(containers or ()):
        yield Container(kind, position, sys.intern(container.name), _env(container.env))


def _gpu_limits(containers: Iterable[objects.Container]) -> tuple[tuple[str, int], ...]:
    limits = ((container.name, wants_of(container.resources).gpu_limit) for container in containers)
    return tuple((sys.intern(name), limit) for name, limit in limits if limit > 0)


def _env(env: list[objects.Env] | None) -> tuple[EnvVar, ...] | None:
    """Only the two CUDA variables; None stays None, because a patch must then make the list."""
    if env is None:
        return None
    return tuple(_variable(entry) for entry in env if entry.name in _CUDA)


def _variable(entry: objects.Env) -> EnvVar:
    """An entry without a value and without a source has the value "" for the container."""
    if entry.value_from is None:
        return EnvVar(sys.intern(entry.name), entry.value or "")
    reference = entry.value_from.field_ref
    return EnvVar(sys.intern(entry.name), None, reference.field_path if reference else None)


def _scheduled(conditions: Iterable[objects.Condition]) -> Condition | None:
    for condition in conditions:
        if condition.type == names.CONDITION_POD_SCHEDULED:
            return Condition(
                condition.status, condition.reason or "", condition.message or "", condition.last_transition_time
            )
    return None
