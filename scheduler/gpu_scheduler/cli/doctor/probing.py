"""Asks about what runs: replicas through the API server, and the API server by dry runs. Nothing is created."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.cli.doctor.expected import DEPLOYMENTS
from gpu_scheduler.cli.doctor.facts import Answer, Replica
from gpu_scheduler.cli.doctor.objects import read_own_pod, read_review
from gpu_scheduler.cli.doctor.reading import FORBIDDEN, refused
from gpu_scheduler.kube.http.client import NoResponseError, segment, status_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpu_scheduler.cli.doctor.objects import OwnPodObject
    from gpu_scheduler.cli.doctor.reading import ServerClock
    from gpu_scheduler.cli.doctor.rights import Account, Granted
    from gpu_scheduler.kube.http.client import ApiClient, ApiResponse

AT_ONCE: Final = 8
"""Questions that are asked at once: each needs a connection."""
MOST_METRICS: Final = 2**22
"""Most bytes of a replica's answer."""
DRY_RUN_TIMEOUT: Final = 35.0
"""Seconds. The API server waits for a webhook for up to 30."""
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_FAILED: Final = re.compile(r"^\[-\](.*)$", re.MULTILINE)
_BUILD: Final = re.compile(rf'^{names.METRIC_BUILD_INFO}{{commit="([^"]*)",version="([^"]*)"}} ', re.MULTILINE)
_EXPIRY: Final = re.compile(rf"^{names.METRIC_CERTIFICATE_EXPIRY} (\S+)$", re.MULTILINE)


async def ask_replicas(
    api: ApiClient, namespace: str, pods: Iterable[OwnPodObject], clock: ServerClock
) -> tuple[Replica, ...]:
    """Ask each running replica for its readiness and its metrics. UnlistedError if the user may not."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def ask(pod: OwnPodObject) -> Replica:
        async with slots:
            return await _ask_replica(api, namespace, pod, clock)

    found = await asyncio.gather(*(ask(pod) for pod in pods if pod.component in DEPLOYMENTS and pod.runs))
    return tuple(sorted(found, key=lambda replica: replica.pod))


async def _ask_replica(api: ApiClient, namespace: str, pod: OwnPodObject, clock: ServerClock) -> Replica:
    name = pod.metadata.name
    path = f"/api/v1/namespaces/{segment(namespace)}/pods/{segment(name)}:{pod.http_port}/proxy"
    try:
        ready, metrics = await asyncio.gather(
            api.call("GET", f"{path}/readyz", query={"verbose": ""}, most=MOST_METRICS),
            api.call("GET", f"{path}/metrics", most=MOST_METRICS),
        )
    except NoResponseError as error:
        return Replica(name, pod.component, unreachable=str(error))
    if FORBIDDEN in {ready.status, metrics.status}:
        raise refused(f"pod {name} through the API server", ready if not ready.ok else metrics, "ask")
    checks, text = _text(ready), _text(metrics)
    failed = tuple(_FAILED.findall(checks))
    if not (ready.ok or failed) or not metrics.ok:
        return Replica(name, pod.component, unreachable=status_message(metrics if ready.ok or failed else ready))
    build, expiry = _BUILD.search(text), _EXPIRY.search(text)
    return Replica(
        name,
        pod.component,
        failed=failed,
        version=build[2] if build else "",
        commit=build[1] if build else "",
        certificate_ends=clock.now() + timedelta(seconds=float(expiry[1])) if expiry else None,
    )


def _text(answer: ApiResponse) -> str:
    return bytes(answer.body).decode(errors="replace")


async def ask_rights(api: ApiClient, accounts: Iterable[Account]) -> Mapping[str, tuple[str, ...]]:
    """Return the rights that each account lacks, without accounts that lack none. UnlistedError if the user may not."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def missing(account: Account, right: Granted) -> str:
        allowed = await asyncio.gather(*(_allowed(api, slots, account, right, verb) for verb in right.verbs))
        verbs = tuple(verb for verb, granted in zip(right.verbs, allowed, strict=True) if not granted)
        return str(replace(right, verbs=verbs)) if verbs else ""

    async def denied(account: Account) -> tuple[str, ...]:
        return tuple(filter(None, await asyncio.gather(*(missing(account, right) for right in account.rights))))

    asked = tuple(accounts)
    found = await asyncio.gather(*map(denied, asked))
    return {str(account): rights for account, rights in zip(asked, found, strict=True) if rights}


async def _allowed(api: ApiClient, slots: asyncio.Semaphore, account: Account, right: Granted, verb: str) -> bool:
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{account.namespace}", "system:authenticated"]
    user = f"system:serviceaccount:{account.namespace}:{account.name}"
    spec = {"user": user, "groups": groups, "resourceAttributes": right.attributes(verb)}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    async with slots:
        answer = await api.call("POST", _REVIEWS, body=msgspec.json.encode(review))
    if not answer.ok:
        raise refused(f"the rights of {account}", answer, "ask for")
    return read_review(bytes(answer.body)).status.allowed


def our_pod(scheduler_name: str, image: str) -> dict[str, Any]:
    """Return a pod of ours, whose index and devices are known at its creation."""
    return _pod("gpu-scheduler-doctor-0", image, {names.MAP: "0=node:0"}, schedulerName=scheduler_name)


def forged_pod(image: str) -> dict[str, Any]:
    """Return a pod of another scheduler that claims to have a device of ours. The webhook is not called for it."""
    return _pod("gpu-scheduler-doctor", image, {names.ASSIGNED_DEVICES: "0"})


def _pod(name: str, image: str, annotations: dict[str, str], **spec: object) -> dict[str, Any]:
    """Return a pod that has what admission policies commonly demand, so that no other policy refuses it."""
    least = {"cpu": "1m", "memory": "1Mi"}
    container = {
        "name": "probe",
        "image": image,
        "resources": {"requests": least, "limits": least},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
            **spec,
        },
    }


async def ask_admission(api: ApiClient, namespace: str, pod: Mapping[str, Any]) -> Answer:
    """Return whether the API server would create the pod, and with our variables. UnlistedError if the user may not."""
    path, query = f"/api/v1/namespaces/{segment(namespace)}/pods", {"dryRun": "All"}
    answer = await api.call("POST", path, query=query, body=msgspec.json.encode(pod), timeout=DRY_RUN_TIMEOUT)
    message = "" if answer.ok else status_message(answer)
    # Policies refuse with the same status as a missing right.
    if answer.status == FORBIDDEN and 'cannot create resource "pods"' in message:
        raise refused("what happens to a new pod", answer, "ask")
    if not answer.ok:
        return Answer(accepted=False, message=message)
    created = read_own_pod(bytes(answer.body))
    return Answer(accepted=True, injected=created.sets(names.VISIBLE_DEVICES))
