"""Evicts pods through the API, which keeps disruption budgets, and waits until they are gone."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final

from gpu_scheduler.cli.options import FailedError
from gpu_scheduler.kube.http.client import segment, status_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.core.refs import PodRef
    from gpu_scheduler.kube.http.client import ApiClient

_NOT_FOUND, _CONFLICT, _TOO_MANY = 404, 409, 429
PAUSE: Final = 1.0
"""Seconds between two looks at a pod that is being deleted."""
RETRY: Final = 5.0
"""Seconds after which a pod is evicted again that its disruption budget has kept."""


async def evict(api: ApiClient, pod: PodRef, say: Callable[[str], None]) -> None:
    """Evict the pod and wait until it is gone. `say` gets what keeps it. FailedError if the API server refuses."""
    path = f"/api/v1/namespaces/{segment(pod.namespace)}/pods/{segment(pod.name)}"
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": pod.namespace, "name": pod.name},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    kept = ""
    while True:
        answer = await api.call("POST", f"{path}/eviction", body=json.dumps(body).encode())
        if answer.ok:
            break
        # A 409 means that another pod has the name: this one is gone.
        if answer.status in {_NOT_FOUND, _CONFLICT}:
            return
        message = status_message(answer)
        if answer.status != _TOO_MANY:
            raise FailedError(
                f"cannot evict {pod}: HTTP {answer.status}: {message}; "
                f"see what you may do (example: kubectl auth can-i create pods/eviction -n {pod.namespace})"
            )
        if message != kept:
            say(f"{pod} stays for now: {message}")
            kept = message
        await asyncio.sleep(answer.retry_after or RETRY)
    while True:
        answer = await api.call("GET", path)
        another = answer.ok and json.loads(answer.body)["metadata"].get("uid") != pod.uid
        if another or answer.status == _NOT_FOUND:
            return
        await asyncio.sleep(PAUSE)
