"""What admission leaves of a pod: the defaults that a decision reads, and the webhook's variables, or a refusal.

LAW: pure. Quotas, LimitRanges, priority classes and webhooks of others are not repeated here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpu_scheduler.cli.manifests.patches import patched
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.text import sentence
from gpu_scheduler.kube.objects.decoding import UNREADABLE
from gpu_scheduler.kube.objects.pod_objects import PodObject
from gpu_scheduler.kube.objects.pods import pod_value
from gpu_scheduler.webhook.review import Admit, Deny, review_pod

if TYPE_CHECKING:
    from gpu_scheduler.cli.manifests.controllers import ExpectedPod
    from gpu_scheduler.core.pods.pod import Pod

_TOLERATED: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Taints that admission plugin DefaultTolerationSeconds lets every pod tolerate for five minutes."""

_pods = msgspec.json.Decoder(PodObject)


def admitted(expected: ExpectedPod, uid: str, created: str, scheduler_name: str) -> Pod | Deny:
    """Return the pod as the scheduler would read it, or the webhook's refusal.

    `uid` and `created` (RFC 3339) are those that the API server would give it. A pod of another scheduler is returned
    unchanged. A pod that is no pod of the API is refused with RequestInvalid.
    """
    if expected.refusal is not None:
        return expected.refusal
    body = _with_defaults(expected.body, uid, created)
    try:
        pod = pod_value(_pods.decode(msgspec.json.encode(body)))
        verdict = review_pod(replace(pod, ref=replace(pod.ref, uid="")), "", scheduler_name)
        if isinstance(verdict, Admit) and verdict.patches:
            pod = pod_value(_pods.decode(msgspec.json.encode(patched(body, verdict.patches))))
    except UNREADABLE as error:
        return Deny(
            Reason.REQUEST_INVALID,
            sentence(Reason.REQUEST_INVALID, f"cannot read the pod: {error}", "see kubectl explain pod --recursive"),
        )
    return verdict if isinstance(verdict, Deny) else pod


def _with_defaults(body: dict[str, Any], uid: str, created: str) -> dict[str, Any]:
    meta, spec = body["metadata"], body.get("spec") or {}
    if not isinstance(spec, dict):
        # The decoder refuses it.
        return body
    given = spec.get("tolerations") or []
    tolerations = [*given, *map(_tolerated, _TOLERATED)] if isinstance(given, list) else given
    containers = {
        key: [_with_requests(each) for each in spec[key]]
        for key in ("containers", "initContainers")
        if isinstance(spec.get(key), list)
    }
    return {
        **body,
        "metadata": {**meta, "uid": uid, "creationTimestamp": created},
        "spec": {**spec, **containers, "tolerations": tolerations},
    }


def _with_requests(container: Any) -> Any:
    """Return the container with a request for each limit that has none, as the API server writes it."""
    resources = container.get("resources") if isinstance(container, dict) else None
    limits = resources.get("limits") if isinstance(resources, dict) else None
    if not isinstance(limits, dict) or not isinstance(resources, dict):
        return container
    requests = resources.get("requests") or {}
    requests = {**limits, **requests} if isinstance(requests, dict) else requests
    return {**container, "resources": {**resources, "requests": requests}}


def _tolerated(key: str) -> dict[str, object]:
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
