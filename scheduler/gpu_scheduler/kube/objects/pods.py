"""Kubernetes' objects become core values here, and nothing else does; pure.

Only what a decision reads is kept, and of one pod no more than core.bounds says: a cache of these values costs a
fraction of what the API server sent. Thousands of pods are alike, so that what they have in common is one value, which
nobody changes.
"""

from __future__ import annotations

import sys
from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec

from gpu_scheduler.core.pods.pod import ForeignPod, Pod
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.kube.objects.constraints import claims_of, constraints_of
from gpu_scheduler.kube.objects.decoding import decode_object
from gpu_scheduler.kube.objects.pod_objects import ContainerObject, ForeignPodObject, PodObject, PodStatus
from gpu_scheduler.kube.objects.pod_text import condition_of, containers_of, controller_of, kept_annotations, labels_of
from gpu_scheduler.kube.objects.resource_requests import gpu_limit_of, resource_request_of

if TYPE_CHECKING:
    from collections.abc import Iterable


_pods = msgspec.json.Decoder(PodObject)
_residents = msgspec.json.Decoder(ForeignPodObject)
_NOTHING: Final = frozenset({b"", b"null", b"[]"})
_LIMITS: Final = 16
"""Containers with a limit of cards that are kept one by one: more than one is too many."""
_WORD: Final = 253


def read_pod(raw: bytes | bytearray | msgspec.Raw) -> tuple[str, Pod]:
    """JSON of a pod to (uid, Pod). msgspec.ValidationError when it is no pod."""
    pod = pod_value(decode_object(_pods, raw), all_containers=False)
    return pod.ref.uid, pod


def read_resident(raw: bytes | bytearray | msgspec.Raw) -> tuple[str, ForeignPod]:
    """JSON of another scheduler's bound pod to (uid, Resident). msgspec.ValidationError when it is no pod."""
    pod = decode_object(_residents, raw)
    meta = pod.metadata
    ref = PodRef(sys.intern(meta.namespace or ""), meta.name or "", meta.uid or "")
    return ref.uid, ForeignPod(ref, sys.intern(pod.spec.node_name or ""), resource_request_of(pod.spec)[0])


def pod_value(pod: PodObject, namespace: str = "", *, all_containers: bool = True) -> Pod:
    """A pod as placement sees it; `namespace` stands in for the one that a pod under admission may not carry yet.

    Of many containers that are alike one is enough to tell whether the pod may be bound, not to complete each of them.
    """
    meta, spec = pod.metadata, pod.spec
    status = pod.status or PodStatus()
    annotations, too_long = kept_annotations(meta.annotations)
    owner, too_many_owners = controller_of(meta)
    containers, too_many_containers = containers_of(spec, all_of_them=all_containers)
    resource_request, too_much = resource_request_of(spec)
    wishes, too_many_wishes = constraints_of(spec)
    claims, too_many_claims = claims_of(meta.name or "", spec)
    return Pod(
        ref=PodRef(sys.intern(meta.namespace or namespace), meta.name or "", meta.uid or ""),
        scheduler_name=sys.intern(spec.scheduler_name or ""),
        node=sys.intern(spec.node_name) if spec.node_name else None,
        phase=sys.intern(status.phase or "Pending"),
        deleting_since=meta.deletion_timestamp,
        gated=memoryview(spec.scheduling_gates)[:4].tobytes() not in _NOTHING,
        generate_name=meta.generate_name,
        owner=owner,
        annotations=annotations,
        labels=labels_of(meta),
        containers=containers,
        resource_request=resource_request,
        constraints=wishes.constraints,
        claims=claims,
        gpu_limits=_gpu_limits(chain(spec.containers or (), spec.init_containers or ())),
        unsupported=wishes.unsupported,
        scheduled_condition=condition_of(status.conditions or ()),
        excess=too_long or too_many_containers or too_much or too_many_wishes or too_many_claims or too_many_owners,
        rejected=_rejected(status),
    )


def _rejected(status: PodStatus) -> str:
    """A kubelet that rejects a pod gives the reason and no container; one that evicts it had made some."""
    rejected = status.phase == "Failed" and memoryview(status.container_statuses)[:4].tobytes() in _NOTHING
    return sys.intern((status.reason or "")[:_WORD]) if rejected else ""


def _gpu_limits(containers: Iterable[ContainerObject]) -> tuple[tuple[str, int], ...]:
    limits = ((container.name, gpu_limit_of(container.resources)) for container in containers)
    found = tuple((sys.intern(name), limit) for name, limit in limits if limit > 0)
    if len(found) <= _LIMITS:
        return found
    first, (second, _) = found[:2]
    return first, (second, sum(limit for _, limit in found[1:]))
