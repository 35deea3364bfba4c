"""The writes that only the leader may send: a Binding, a claim's selected node, and the confirmation of cordons."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.text import sentence
from gpu_scheduler.kube.http.client import (
    APPLY,
    MERGE,
    UNAUTHORIZED,
    NoResponseError,
    NotSentError,
    segment,
    status_message,
)
from gpu_scheduler.kube.lists import read_object
from gpu_scheduler.kube.objects.agentaflow import API, GROUP, VERSION
from gpu_scheduler.kube.objects.decoding import UNREADABLE
from gpu_scheduler.kube.objects.pod_objects import PodObject
from gpu_scheduler.kube.timestamps import micro_time_of, time_of
from gpu_scheduler.scheduler.ports import (
    Binder,
    BindResult,
    Bound,
    CordonStatus,
    Dropped,
    Failed,
    NotSent,
    Unknown,
    VolumeBinder,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.core.decision import Bind
    from gpu_scheduler.core.nodes.cordons import NodeCordons
    from gpu_scheduler.core.refs import PodRef
    from gpu_scheduler.kube.http.client import ApiClient, ApiResponse
    from gpu_scheduler.kube.leader_election import Fence

NOT_FOUND = 404
CONFLICT = 409
SERVER_FAULTS = 500

_pods = msgspec.json.Decoder(PodObject)

_NO_LEASE: Final = "this replica's Lease no longer allows a write"
_GONE: Final = Dropped("the pod is gone")
_PLAIN: Final[dict[int, BindResult]] = {
    UNAUTHORIZED: NotSent("the API server refused our credentials, which are read again"),
}


class ApiBinder(Binder):
    """Writes Bindings, but only while the fence lets this replica write."""

    def __init__(
        self,
        api: ApiClient,
        fence: Fence,
        identity: str,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`identity` is this replica's name in the Lease; each Binding writes it into the annotation assigned-by."""
        self._api = api
        self._fence = fence
        self._identity = identity
        self._wall = wall
        self._large = asyncio.Lock()

    async def bind(self, bind: Bind) -> BindResult:
        """Try once to bind, see Binder: at most one POST and two GETs, each with the API client's time-out."""
        body = msgspec.json.encode(self._binding(bind))
        try:
            answer = await self._api.call("POST", f"{_path(bind.pod)}/binding", body=body, guard=self._fence.may_write)
        except NotSentError:
            return NotSent(_NO_LEASE)
        except NoResponseError as error:
            return await self._resolve_by_get(bind, unbound=Unknown(str(error)))
        if answer.ok:
            return Bound()
        if answer.status in _PLAIN:
            return _PLAIN[answer.status]
        if answer.status >= SERVER_FAULTS:
            return await self._resolve_by_get(bind, unbound=Unknown(_described(answer), answer.retry_after or 0.0))
        failed = Failed(
            sentence(
                Reason.BIND_FAILED,
                f"cannot bind to {bind.placement.node}: {_described(answer)}",
                "trying again by itself",
            ),
            answer.retry_after or 0.0,
        )
        # A 409 has many causes: our own earlier request or another client has bound the pod, the pod is being deleted,
        # or another pod has its name. A 404 may come from a server on the way, and an earlier request may still arrive.
        # So the pod itself must show what is true.
        return await self._resolve_by_get(bind, unbound=failed) if answer.status in {NOT_FOUND, CONFLICT} else failed

    async def _resolve_by_get(self, bind: Bind, *, unbound: Failed | Unknown) -> BindResult:
        """Read the pod to learn the outcome. Return `unbound` if the pod is alive and has no node."""
        try:
            answer = await read_object(self._api, _path(bind.pod), self._large)
        except NoResponseError as error:
            return Unknown(str(error), unbound.retry_after)
        if answer.status == NOT_FOUND:
            return _GONE
        if not answer.ok:
            return Unknown(_described(answer), max(unbound.retry_after, answer.retry_after or 0.0))
        try:
            pod = _pods.decode(answer.body)
        except UNREADABLE as error:
            return Unknown(f"cannot read the pod: {error}", unbound.retry_after)
        return _verdict(pod, bind) or unbound

    def _binding(self, bind: Bind) -> dict[str, object]:
        return {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": bind.pod.name,
                "namespace": bind.pod.namespace,
                "uid": bind.pod.uid,
                "annotations": {
                    **bind.placement.annotations,
                    names.ASSIGNED_AT: micro_time_of(self._wall()),
                    names.ASSIGNED_BY: self._identity,
                    names.ASSIGNED_REASON: bind.assigned_reason,
                },
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": bind.placement.node},
        }


def _verdict(pod: PodObject, bind: Bind) -> BindResult | None:
    """Return the outcome that the pod itself proves; None if it is alive and has no node."""
    if pod.metadata.uid != bind.pod.uid:
        return Dropped("another pod has taken its name")
    if pod.spec.node_name:
        return Bound() if _is_ours(pod, bind) else Dropped(f"the pod is bound to {pod.spec.node_name}, not by us")
    if pod.metadata.deletion_timestamp:
        return Dropped("the pod is being deleted")
    return None


def _is_ours(pod: PodObject, bind: Bind) -> bool:
    found = pod.metadata.annotations or {}
    ours = all(found.get(key) == value for key, value in bind.placement.annotations.items())
    return ours and pod.spec.node_name == bind.placement.node


def _path(pod: PodRef) -> str:
    return f"/api/v1/namespaces/{segment(pod.namespace)}/pods/{segment(pod.name)}"


def _described(answer: ApiResponse) -> str:
    return f"HTTP {answer.status}: {status_message(answer)}"


class ApiVolumeBinder(VolumeBinder):
    """Writes the selected nodes of claims, but only while the fence lets this replica write."""

    def __init__(self, api: ApiClient, fence: Fence) -> None:
        """Create the binder; it writes nothing before `select`."""
        self._api = api
        self._fence = fence

    async def select(self, namespace: str, claim: str, node: str) -> str | None:
        """Send one PATCH, see VolumeBinder, with the API client's time-out. To write the same twice is harmless."""
        path = f"/api/v1/namespaces/{segment(namespace)}/persistentvolumeclaims/{segment(claim)}"
        body = msgspec.json.encode({"metadata": {"annotations": {names.SELECTED_NODE: node}}})
        try:
            answer = await self._api.call("PATCH", path, body=body, content_type=MERGE, guard=self._fence.may_write)
        except NotSentError:
            return _NO_LEASE
        except NoResponseError as error:
            return str(error)
        return None if answer.ok else _described(answer)


class ApiCordonStatus(CordonStatus):
    """Writes condition Cordoned of GPUNodes, but only while the fence lets this replica write."""

    def __init__(self, api: ApiClient, fence: Fence, wall: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Create the writer; it writes nothing before `confirm`."""
        self._api = api
        self._fence = fence
        self._wall = wall

    async def confirm(self, cordons: NodeCordons) -> str | None:
        """Send one server-side apply, see CordonStatus, with the API client's time-out."""
        path = f"{API}/gpunodes/{segment(cordons.node)}/status"
        body = msgspec.json.encode(
            {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": names.NODE_KIND,
                "metadata": {"name": cordons.node},
                "status": {"conditions": [self._condition(cordons)]},
            }
        )
        query = {"fieldManager": names.SCHEDULER_NAME, "force": "true"}
        try:
            answer = await self._api.call(
                "PATCH", path, query=query, body=body, content_type=APPLY, guard=self._fence.may_write
            )
        except NotSentError:
            return _NO_LEASE
        except NoResponseError as error:
            return str(error)
        return None if answer.ok or answer.status == NOT_FOUND else _described(answer)

    def _condition(self, cordons: NodeCordons) -> dict[str, object]:
        if cordons.cordons:
            status, reason, message = "True", "GpusCordoned", "no pod is bound to the cordoned GPUs from now on"
        else:
            status, reason, message = "False", "NoGpuCordoned", "all GPUs are in service"
        same = cordons.stated_since if cordons.cordons else ""
        return {
            "type": names.CONDITION_CORDONED,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": same or time_of(self._wall()),
            "observedGeneration": cordons.generation,
        }
