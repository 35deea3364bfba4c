"""Reads the pods that `explain` is asked about, and when the holders of GPUs are expected to end."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.cli.installation import missing_right
from gpu_scheduler.cli.options import FailedError, RefusedInputError
from gpu_scheduler.cli.snapshot import pods_of, read_workload, workloads_of
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.text import quote
from gpu_scheduler.kube.http.client import segment
from gpu_scheduler.kube.lists import UnlistedError, get_one
from gpu_scheduler.kube.objects.agentaflow import API
from gpu_scheduler.kube.objects.pod_objects import PodObject
from gpu_scheduler.kube.objects.pods import pod_value
from gpu_scheduler.kube.timestamps import time_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.kube.http.client import ApiClient

_KINDS: Final = ("pod/", "pods/", "gpuworkload.agentaflow.io/", "gpuworkload/", "gpuworkloads/")
"""How names begin that kubectl and our verbs print with `-o name`."""

_pods = msgspec.json.Decoder(PodObject)


@immutable
class FoundPod:
    """A pod, and all its annotations: a decision reads only some."""

    pod: Pod
    annotations: Mapping[str, str]


def split_name(given: str, namespace: str) -> tuple[str, str]:
    """Return namespace and name of `NAME`, `NAMESPACE/NAME` or `pod/NAME`. RefusedInputError if it is none of them."""
    rest = next((given.removeprefix(kind) for kind in _KINDS if given.startswith(kind)), given)
    parts = (namespace, rest) if "/" not in rest else tuple(rest.split("/"))
    if len(parts) != 2 or not all(parts):  # noqa: PLR2004 - a namespace and a name
        raise RefusedInputError(
            f"cannot explain {quote(given)}: it must be NAME or NAMESPACE/NAME "
            "(example: gpu-scheduler explain ml/train-0)"
        )
    return parts[0], parts[1]


async def read_pod(api: ApiClient, namespace: str, name: str, scheduler_name: str) -> FoundPod:
    """Return the pod of this name, else the newest pod of the GPUWorkload of this name.

    FailedError if there is neither, or if the workload has no pod yet.
    """
    found = await _get(api, namespace, name)
    if found is not None:
        return found
    path = f"{API}/namespaces/{segment(namespace)}/gpuworkloads/{segment(name)}"
    workload = await get_one(api, f"GPUWorkload {namespace}/{name}", path, read_workload)
    if workload is None:
        raise FailedError(
            f"cannot find pod {namespace}/{name}, nor a {names.WORKLOAD_KIND} of that name; "
            f"name one that exists (example: gpu-scheduler workloads -n {namespace})"
        )
    made = [each for each in await pods_of(api, scheduler_name, namespace) if _is_made_for(each, name)]
    newest = max(made, key=lambda each: (each.created, each.ref.name), default=None)
    found = None if newest is None else await _get(api, namespace, newest.ref.name)
    if found is None:
        why = workload.status and (workload.status.message or workload.status.reason)
        raise FailedError(
            f"cannot explain {names.WORKLOAD_KIND} {namespace}/{name}: it has no pod"
            f"{f' ({why})' if why else ''}; see it (example: kubectl describe gpuworkload -n {namespace} {name})"
        )
    return found


async def _get(api: ApiClient, namespace: str, name: str) -> FoundPod | None:
    path = f"/api/v1/namespaces/{segment(namespace)}/pods/{segment(name)}"
    return await get_one(api, f"pod {namespace}/{name}", path, _found_pod)


def _found_pod(data: bytes) -> FoundPod:
    body = _pods.decode(data)
    return FoundPod(pod_value(body), body.metadata.annotations or {})


def _is_made_for(pod: Pod, workload: str) -> bool:
    return pod.owner is not None and (pod.owner.kind, pod.owner.name) == (names.WORKLOAD_KIND, workload)


async def expected_ends(api: ApiClient, pods: Iterable[Pod]) -> tuple[dict[str, str], str]:
    """Return by uid when pods end, as `estimatedDuration` of their GPUWorkloads says (RFC 3339).

    Return also the missing right as a sentence, if the GPUWorkloads may not be listed.
    """
    made = {
        (pod.ref.namespace, pod.owner.name): pod
        for pod in pods
        if pod.owner is not None and pod.owner.kind == names.WORKLOAD_KIND and pod.assignment.at and not pod.finished
    }
    if not made:
        return {}, ""
    try:
        workloads = await workloads_of(api)
    except UnlistedError as error:
        return {}, missing_right(error, "list gpuworkloads.agentaflow.io -A")
    ends = {}
    for workload in workloads:
        pod = made.get((workload.metadata.namespace or "", workload.metadata.name or ""))
        if pod is not None and workload.spec.estimated_duration:
            ends[pod.ref.uid] = end_of(pod.assignment.at, workload.spec.estimated_duration)
    return ends, ""


def end_of(bound: str, duration: str) -> str:
    """Return the end (RFC 3339, UTC) of what was bound at `bound` and takes a Go duration; empty if it is too long."""
    import durationpy

    try:
        end = datetime.fromisoformat(bound) + durationpy.from_str(duration)
    except (durationpy.DurationError, OverflowError):
        return ""
    return time_of(end)
