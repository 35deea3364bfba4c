"""Translates a pod of the API into a core value. Its author's text is read here once and then dropped. No I/O.

Only parts that a decision reads are kept, and of one pod no more than core.pods.bounds allows: a cache of these values
takes a fraction of the memory of the API objects. Thousands of pods are alike, so they share the parts that are equal.
No caller may modify a shared part.
"""

from __future__ import annotations

import sys
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from gpu_scheduler import names
from gpu_scheduler.core.pods.placement import read_assignment
from gpu_scheduler.core.pods.pod import ForeignPod, Pod
from gpu_scheduler.core.pods.pod_text import PodText
from gpu_scheduler.core.pods.request import read_request
from gpu_scheduler.core.pods.unknown_keys import unknown_keys
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.kube.objects.constraints import claims_of, constraints_of
from gpu_scheduler.kube.objects.decoding import decode_object
from gpu_scheduler.kube.objects.pod_objects import ForeignPodObject, PodObject, PodStatus
from gpu_scheduler.kube.objects.pod_text import condition_of, controller_of, environment_in, kept_annotations, labels_of
from gpu_scheduler.kube.objects.resource_claims import resource_claims_of
from gpu_scheduler.kube.objects.resource_requests import gpu_limit_of, resource_request_of

if TYPE_CHECKING:
    from gpu_scheduler.core.pods.constraints import SchedulingConstraints
    from gpu_scheduler.core.pods.pod import ResourceRequest
    from gpu_scheduler.kube.objects.pod_objects import PodSpec

_pods = msgspec.json.Decoder(PodObject)
_foreign_pods = msgspec.json.Decoder(ForeignPodObject)
_NOTHING: Final = frozenset({b"", b"null", b"[]"})
_LIMITS: Final = 16
"""Most containers with a GPU limit that are kept one by one. A pod with more than one is refused anyway."""
_MAX_REASON: Final = 253


def read_pod(raw: bytes | bytearray | msgspec.Raw) -> tuple[str, Pod]:
    """Decode a pod into (uid, Pod). Raise msgspec.ValidationError if it is not a pod."""
    pod = pod_value(decode_object(_pods, raw), all_containers=False)
    return pod.ref.uid, pod


def read_foreign_pod(raw: bytes | bytearray | msgspec.Raw) -> tuple[str, ForeignPod]:
    """Decode another scheduler's bound pod into (uid, ForeignPod). Raise msgspec.ValidationError if it is not a pod."""
    pod = decode_object(_foreign_pods, raw)
    meta = pod.metadata
    ref = PodRef(sys.intern(meta.namespace or ""), meta.name or "", meta.uid or "")
    return ref.uid, ForeignPod(ref, sys.intern(pod.spec.node_name or ""), resource_request_of(pod.spec)[0])


def pod_value(pod: PodObject, *, all_containers: bool = True) -> Pod:
    """Return the pod as a core value.

    Without `all_containers`, only the first of several equal containers is kept. This suffices to decide whether the
    pod may be bound, but not to patch each container.
    """
    meta, spec = pod.metadata, pod.spec
    status = pod.status or PodStatus()
    text, parts = _read(pod, "", all_containers=all_containers, wants_claims=None)
    return Pod(
        ref=PodRef(text.namespace, text.name, meta.uid or ""),
        scheduler_name=text.scheduler_name,
        node=sys.intern(spec.node_name) if spec.node_name else None,
        phase=sys.intern(status.phase or "Pending"),
        deleting_since=meta.deletion_timestamp,
        gated=memoryview(spec.scheduling_gates)[:4].tobytes() not in _NOTHING,
        priority=spec.priority or 0,
        # Interned: pods of one second share the text.
        created=sys.intern(meta.creation_timestamp or ""),
        generate_name=text.generate_name,
        owner=text.owner,
        request=read_request(text),
        assignment=read_assignment(text.annotations),
        environment=text.environment,
        resource_request=parts.resource_request,
        constraints=parts.constraints,
        claims=parts.claims,
        resource_claims=_carried(text),
        gpu_limits=text.gpu_limits,
        scheduled_condition=condition_of(status.conditions or ()),
        excess=text.excess,
        rejected=_rejected(status),
    )


def text_of(pod: PodObject, namespace: str, *, wants_claims: bool | None = None) -> PodText:
    """Return what a pod under admission, or a pod template, asks for. `namespace` is used if it has none.

    `wants_claims`: whether admission gives it ResourceClaims, because its namespace or the cluster demands them; None
    if it is not created now. Where admission gives none, it may have none of its own.
    """
    return _read(pod, namespace, all_containers=True, wants_claims=wants_claims)[0]


def _carried(text: PodText) -> tuple[str, ...]:
    """Return the names of the claims by which the pod gets its devices; of its own claim, if it is made already."""
    own = text.own_claim
    return text.resource_claims if own is None else tuple(filter(None, (own.name,)))


class _Parts(NamedTuple):
    """What a pod asks for besides GPUs."""

    resource_request: ResourceRequest
    constraints: SchedulingConstraints
    claims: tuple[str, ...]


def _read(pod: PodObject, namespace: str, *, all_containers: bool, wants_claims: bool | None) -> tuple[PodText, _Parts]:
    """Read all parts of the pod together: each may be too large, and the first Excess is kept."""
    meta, spec = pod.metadata, pod.spec
    annotations, too_long = kept_annotations(meta.annotations)
    owner, too_many_owners = controller_of(meta)
    carried = resource_claims_of(pod)
    # Beside a map or a count it is refused everywhere, with one message.
    is_read = wants_claims is not False or bool({names.MAP, names.COUNT} & annotations.keys())
    own_claim = carried.own if is_read else None
    isolated = bool(wants_claims or carried.ours or own_claim is not None)
    environment, too_many_containers = environment_in(spec, all_of_them=all_containers, isolated=isolated)
    resource_request, too_much = resource_request_of(spec)
    wanted, unread = constraints_of(spec)
    claims, too_many_claims = claims_of(meta.name or "", spec)
    text = PodText(
        namespace=sys.intern(meta.namespace or namespace),
        name=meta.name or "",
        generate_name=meta.generate_name,
        owner=owner,
        scheduler_name=sys.intern(spec.scheduler_name or ""),
        bound=bool(spec.node_name),
        annotations=annotations,
        unknown_keys=unknown_keys(meta.annotations or ()),
        labels=labels_of(meta),
        environment=environment,
        gpu_limits=_gpu_limits(spec),
        resource_claims=carried.ours,
        own_claim=own_claim,
        wants_claims=bool(wants_claims),
        without_grace=memoryview(spec.termination_grace_period_seconds)[:2].tobytes() == b"0",
        unsupported=(*wanted.unsupported, "spec.resourceClaims")
        if carried.unread or carried.own is not own_claim
        else wanted.unsupported,
        excess=too_long or too_many_containers or too_much or unread or too_many_claims or too_many_owners,
    )
    return text, _Parts(resource_request, wanted.constraints, claims)


def _rejected(status: PodStatus) -> str:
    """Return the kubelet's reason if it rejected the pod, else "".

    A rejected pod is Failed and has no container statuses; an evicted pod has some.
    """
    rejected = status.phase == "Failed" and memoryview(status.container_statuses)[:4].tobytes() in _NOTHING
    return sys.intern((status.reason or "")[:_MAX_REASON]) if rejected else ""


def _gpu_limits(spec: PodSpec) -> tuple[tuple[str, int], ...]:
    found = []
    for container in chain(spec.containers or (), spec.init_containers or ()):
        limit = gpu_limit_of(container.resources)
        if limit > 0:
            found.append((sys.intern(container.name), limit))
    if len(found) <= _LIMITS:
        return tuple(found)
    first, (second, _) = found[:2]
    return first, (second, sum(limit for _, limit in found[1:]))
