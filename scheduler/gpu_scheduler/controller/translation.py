"""Translates GPUWorkloads, their pods and GPUNodes from JSON to core values, and statuses to JSON objects; pure."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from gpu_scheduler import names
from gpu_scheduler.controller.gpu_node_status import Allocation, Allocations, GpuNode
from gpu_scheduler.controller.gpu_workload import (
    Attempt,
    GpuWorkload,
    Phase,
    StatusCondition,
    WatchedPod,
    WorkloadStatus,
)
from gpu_scheduler.controller.objects import TemplateMeta, WorkloadSpec, WorkloadStatusObject
from gpu_scheduler.core.pods.bounds import MAX_CONTAINERS, MAX_MESSAGE, MAX_TEMPLATE, Excess
from gpu_scheduler.core.pods.count_request import CountRequest
from gpu_scheduler.kube.objects.agentaflow import AllocationObject, GpuNodeObject, GpuNodeStatus, StatusConditionObject
from gpu_scheduler.kube.objects.decoding import decode_object, decode_part
from gpu_scheduler.kube.objects.meta import Identity
from gpu_scheduler.kube.objects.pod_objects import PodObject
from gpu_scheduler.kube.objects.pod_text import owners_of
from gpu_scheduler.kube.objects.pods import pod_value

if TYPE_CHECKING:
    from collections.abc import Iterable


class _WorkloadMeta(Identity):
    """Identity and state of a workload. Its labels and annotations may be thousands; none is used, so none is read."""

    generation: int | None = None
    deletion_timestamp: str | None = None


class _WorkloadSpec(WorkloadSpec, kw_only=True):
    pod_template: msgspec.Raw  # type: ignore[assignment]  # it is read when its pod is made


class _Workload(msgspec.Struct, gc=False):
    metadata: _WorkloadMeta
    spec: _WorkloadSpec
    status: WorkloadStatusObject | None = None


class Template(msgspec.Struct, gc=False):
    """A pod template; only the names of its spec's fields are decoded, their values stay raw."""

    spec: dict[str, msgspec.Raw]
    metadata: TemplateMeta | None = None


class _TemplateSpec(msgspec.Struct, rename="camel", gc=False):
    pod_template: Template


class _Templated(msgspec.Struct, gc=False):
    metadata: _WorkloadMeta
    spec: _TemplateSpec


class _Terminated(msgspec.Struct, rename="camel", gc=False):
    reason: str | None = None
    message: str | None = None
    exit_code: int = 0
    finished_at: str | None = None


class _ContainerState(msgspec.Struct, gc=False):
    terminated: _Terminated | None = None


class _ContainerStatus(msgspec.Struct, rename="camel", gc=False):
    name: str
    state: _ContainerState | None = None


class _End(msgspec.Struct, rename="camel", gc=False):
    """The part of a pod's status that says when it started and why it ended."""

    reason: str | None = None
    message: str | None = None
    start_time: str | None = None
    init_container_statuses: msgspec.Raw = msgspec.Raw()
    container_statuses: msgspec.Raw = msgspec.Raw()


class _TerminatedPod(msgspec.Struct, gc=False):
    status: _End | None = None


_workloads = msgspec.json.Decoder(_Workload)
_templated = msgspec.json.Decoder(_Templated)
_container_statuses = msgspec.json.Decoder(list[_ContainerStatus] | None)
_nodes = msgspec.json.Decoder(GpuNodeObject)
_pods = msgspec.json.Decoder(PodObject)
_terminated_pods = msgspec.json.Decoder(_TerminatedPod)


def read_workload(raw: bytes | bytearray | msgspec.Raw) -> tuple[str, GpuWorkload]:
    """Read the JSON of a GPUWorkload; return (key, GpuWorkload). msgspec.ValidationError if it is no GPUWorkload."""
    found = decode_object(_workloads, raw)
    meta, spec = found.metadata, found.spec
    asked = spec.gpu_requirements
    size = len(memoryview(spec.pod_template))
    workload = GpuWorkload(
        namespace=meta.namespace or "",
        name=meta.name or "",
        uid=meta.uid or "",
        version=meta.resource_version or "",
        generation=meta.generation or 0,
        request=CountRequest(
            asked.gpu_count,
            max(spec.gpu_memory_required, asked.min_gpu_memory),
            asked.exclusive_access,
            asked.gpu_type or "",
            spec.scheduling_strategy,
            spec.priority,
        ),
        retries=spec.retry_policy.limit,
        excess=Excess("spec.podTemplate", size, MAX_TEMPLATE) if size > MAX_TEMPLATE else None,
        deleting=meta.deletion_timestamp is not None,
        status=None if found.status is None else _status_value(found.status),
    )
    return workload.key, workload


def read_template(raw: bytes | bytearray) -> tuple[str, int, Template]:
    """Read the JSON of a GPUWorkload; return (uid, generation, its pod template).

    msgspec.ValidationError if it is no GPUWorkload.
    """
    found = decode_object(_templated, raw)
    return found.metadata.uid or "", found.metadata.generation or 0, found.spec.pod_template


def read_watched_pod(raw: bytes | msgspec.Raw) -> tuple[str, WatchedPod]:
    """Read the JSON of a pod; return (uid, WatchedPod). msgspec.ValidationError if it is no pod."""
    found = decode_object(_pods, raw)
    owner = next((each for each in owners_of(found.metadata)[0] if each.controller), None)
    pod = pod_value(found, all_containers=False)
    if owner is None or owner.kind != names.WORKLOAD_KIND:
        return pod.ref.uid, WatchedPod(pod, None)
    given = found.metadata.annotations or {}
    end = decode_object(_terminated_pods, raw).status or _End()
    fault, details = _fault(end) if pod.phase == "Failed" else ("", "")
    attempt = Attempt(
        ref=pod.ref,
        owner=owner.name,
        owner_uid=owner.uid,
        node=pod.node or "",
        devices=pod.assignment.devices or (),
        uuids=_listed(given.get(names.ASSIGNED_UUIDS)),
        phase=pod.phase,
        scheduling=pod.scheduled_condition,
        started_at=end.start_time or "",
        finished_at=max((each.finished_at or "" for _, each in _terminated(end)), default="") if pod.finished else "",
        fault=fault,
        details=details,
    )
    return pod.ref.uid, WatchedPod(pod, attempt)


def read_gpu_node(raw: bytes | msgspec.Raw) -> tuple[str, GpuNode]:
    """Read the JSON of a GPUNode; return (name, GpuNode). msgspec.ValidationError if it is no GPUNode."""
    found = decode_object(_nodes, raw)
    status = found.status
    meta = found.metadata
    name = meta.name or ""
    gpu_node = GpuNode(
        name,
        meta.generation or 0,
        uid=meta.uid or "",
        version=meta.resource_version or "",
        cordoned=bool(found.spec.cordoned),
    )
    if status is None or status.allocated is None:
        return name, gpu_node
    allocations = tuple(
        Allocation(each.pod, each.device or "", each.unnamed or 0, each.memory_mib or 0)
        for each in status.allocations or ()
    )
    # Other writers may add conditions of other types.
    ready = [each for each in status.conditions or () if each.type == names.CONDITION_READY]
    return name, replace(gpu_node, occupied=Allocations(status.allocated, allocations, _condition_values(ready)))


def status_object(status: WorkloadStatus) -> WorkloadStatusObject:
    """Return a workload's status as its API object."""
    return WorkloadStatusObject(
        phase=status.phase,
        node=status.node or None,
        devices=list(status.devices) or None,
        uuids=list(status.uuids) or None,
        pod_name=status.pod or None,
        attempts=status.attempts,
        reason=status.reason or None,
        message=status.message or None,
        start_time=status.started_at or None,
        completion_time=status.completed_at or None,
        observed_generation=status.observed_generation,
        conditions=_condition_objects(status.conditions),
    )


def occupied_object(occupied: Allocations) -> GpuNodeStatus:
    """Return the controller's part of a GPUNode's status as its API object."""
    return GpuNodeStatus(
        allocated=occupied.allocated,
        allocations=[
            AllocationObject(
                pod=each.pod,
                device=each.device or None,
                unnamed=each.unnamed or None,
                memory_mib=each.memory or None,
            )
            for each in occupied.allocations
        ],
        conditions=_condition_objects(occupied.conditions),
    )


def _status_value(status: WorkloadStatusObject) -> WorkloadStatus:
    return WorkloadStatus(
        phase=status.phase or Phase.PENDING,
        node=status.node or "",
        devices=tuple(status.devices or ()),
        uuids=tuple(status.uuids or ()),
        pod=status.pod_name or "",
        attempts=status.attempts or 0,
        reason=(status.reason or "")[:MAX_MESSAGE],
        message=(status.message or "")[:MAX_MESSAGE],
        started_at=status.start_time or "",
        completed_at=status.completion_time or "",
        observed_generation=status.observed_generation or 0,
        conditions=_condition_values(status.conditions or ()),
    )


def _condition_values(conditions: Iterable[StatusConditionObject]) -> tuple[StatusCondition, ...]:
    return tuple(
        StatusCondition(
            each.type,
            each.status,
            each.reason,
            each.message,
            each.observed_generation or 0,
            each.last_transition_time,
        )
        for each in conditions
    )


def _condition_objects(conditions: Iterable[StatusCondition]) -> list[StatusConditionObject]:
    return [
        StatusConditionObject(
            type=each.type,
            status=each.status,
            reason=each.reason,
            message=each.message,
            last_transition_time=each.since,
            observed_generation=each.observed_generation,
        )
        for each in conditions
    ]


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _terminated(end: _End) -> Iterable[tuple[str, _Terminated]]:
    parts = (end.init_container_statuses, end.container_statuses)
    found = (decode_part(_container_statuses, bytes(raw)[: MAX_CONTAINERS * MAX_MESSAGE]) for raw in parts)
    for each in chain.from_iterable(statuses or () for statuses in found):
        if each.state is not None and each.state.terminated is not None:
            yield each.name, each.state.terminated


def _fault(end: _End) -> tuple[str, str]:
    """Return why a pod failed, as (reason, details): the pod's own, else those of its first failed container.

    The pod has a reason of its own if Kubernetes ended it, for example by eviction.
    """
    if end.reason or end.message:
        return (end.reason or "")[:MAX_MESSAGE], (end.message or "")[:MAX_MESSAGE]
    for name, each in _terminated(end):
        if each.exit_code:
            detail = f": {each.message[:MAX_MESSAGE].strip()}" if each.message else ""
            return (each.reason or "")[:MAX_MESSAGE], f"container {name} ended with exit code {each.exit_code}{detail}"
    return "", ""
