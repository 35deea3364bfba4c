"""Writers of the controller: pods of workloads, statuses of workloads and statuses of GPUNodes.

Each write is one try with a time-out. Every write is fenced: whether this replica leads is checked directly before the
bytes are sent. A pod's name contains the number of its attempt, so that a repeated create finds the pod. The status of
a workload is written only over the version that was read.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from gpu_scheduler import names
from gpu_scheduler.controller.gpu_workload import annotations_of, pod_name, short
from gpu_scheduler.controller.objects import TemplateMeta, WorkloadStatusObject
from gpu_scheduler.controller.ports import NodeWriter, PodMaker, WorkloadEventWriter, WorkloadWriter
from gpu_scheduler.controller.translation import occupied_object, read_template, read_workload, status_object
from gpu_scheduler.controller.workload_status import CreateFailure, excessive, refused, taken, unanswered
from gpu_scheduler.core.text import MAX_BYTES
from gpu_scheduler.kube.events import NORMAL, WARNING, Event, ObjectRef
from gpu_scheduler.kube.http.client import (
    APPLY,
    MERGE,
    UNAUTHORIZED,
    NoResponseError,
    NotSentError,
    TooLongError,
    segment,
    status_message,
)
from gpu_scheduler.kube.lists import UnlistedError, list_all, read_object
from gpu_scheduler.kube.objects.agentaflow import API, GROUP, VERSION
from gpu_scheduler.kube.objects.pod_objects import PodObject
from gpu_scheduler.kube.objects.pod_text import owners_of

if TYPE_CHECKING:
    from gpu_scheduler.controller.gpu_node_status import Allocations, GpuNode
    from gpu_scheduler.controller.gpu_workload import GpuWorkload, WorkloadStatus
    from gpu_scheduler.controller.translation import Template
    from gpu_scheduler.controller.workload_events import WorkloadEvent
    from gpu_scheduler.kube.events import Events
    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.kube.leader_election import Fence

NOT_FOUND = 404
CONFLICT = 409
# Bytes. etcd limits an object, but its JSON may be longer, because JSON escapes characters.
MAX_OBJECT = 16 * 2**20
# Bytes of the answer to a write of a status. Up to eight such answers may be in memory at once, one per worker.
MAX_ANSWER = 2**20
NOT_OURS = "this replica may not write now"

log = logging.getLogger(__name__)

_pods = msgspec.json.Decoder(PodObject)


class ApiPods(PodMaker):
    """Creates pods while the fence permits writes."""

    def __init__(self, api: ApiClient, fence: Fence, scheduler_name: str) -> None:
        """`scheduler_name` becomes the schedulerName of the pods."""
        self._api = api
        self._fence = fence
        self._scheduler_name = scheduler_name
        # One template is read at a time, so that one at most is in memory.
        self._reading = asyncio.Lock()

    async def make(self, workload: GpuWorkload, number: int) -> CreateFailure | None:
        """Implement PodMaker.make with at most three GETs and one POST, each with the API client's time-out."""
        name = pod_name(workload.name, number)
        shown = f"{workload.namespace}/{name}"
        collection = f"/api/v1/namespaces/{segment(workload.namespace)}/pods"
        try:
            body = await self._body(workload, number)
            if isinstance(body, CreateFailure):
                return body
            answer = await self._api.call("POST", collection, body=body, guard=self._fence.may_write)
            if answer.status == CONFLICT:
                return await self._resolve_by_get(workload, f"{collection}/{segment(name)}", shown)
        except NotSentError:
            return unanswered(shown, NOT_OURS)
        except NoResponseError as error:
            return unanswered(shown, str(error))
        if answer.ok:
            log.info("Created a pod", extra={"pod": shown, "workload": workload.key})
            return None
        return refused(shown, answer.status, status_message(answer))

    async def _body(self, workload: GpuWorkload, number: int) -> bytes | CreateFailure:
        """Return the pod as JSON.

        The template is read here, because the controller does not keep thousands of templates in memory.
        """
        shown = f"{workload.namespace}/{pod_name(workload.name, number)}"
        path = f"{API}/namespaces/{segment(workload.namespace)}/gpuworkloads/{segment(workload.name)}"
        if workload.excess is not None:
            return excessive(workload.excess)
        async with self._reading:
            answer = await self._api.call("GET", path, most=MAX_OBJECT)
            if not answer.ok:
                return unanswered(shown, f"HTTP {answer.status}: {status_message(answer)}")
            uid, generation, template = read_template(answer.body)
            if (uid, generation) != (workload.uid, workload.generation):
                return unanswered(shown, "its GPUWorkload has changed")
            return msgspec.json.encode(pod_of(workload, template, number, self._scheduler_name))

    async def _resolve_by_get(self, workload: GpuWorkload, path: str, shown: str) -> CreateFailure | None:
        """Read the pod that already has this name. Return None if this workload owns it."""
        answer = await read_object(self._api, path, self._reading)
        if answer.status == NOT_FOUND:
            return unanswered(shown, "another pod of that name has just been deleted")
        if not answer.ok:
            return unanswered(shown, f"HTTP {answer.status}: {status_message(answer)}")
        meta = _pods.decode(answer.body).metadata
        if any(owner.controller and owner.uid == workload.uid for owner in owners_of(meta)[0]):
            return None
        return taken(shown, deleting=meta.deletion_timestamp is not None)


class ApiWorkloadEvents(WorkloadEventWriter):
    """Creates events of workloads."""

    def __init__(self, events: Events) -> None:
        """`events` creates them."""
        self._events = events

    async def record(self, workload: GpuWorkload, event: WorkloadEvent) -> None:
        """Implement WorkloadEventWriter.record."""
        regarding = ObjectRef(
            f"{GROUP}/{VERSION}", names.WORKLOAD_KIND, workload.namespace, workload.name, workload.uid
        )
        # Kubelets and other programs wrote parts of it.
        note = event.note.encode(errors="replace")[:MAX_BYTES].decode(errors="ignore")
        kind = WARNING if event.warning else NORMAL
        await self._events.create(regarding, Event(kind, event.reason, event.action, note))


class _Statuses:
    """Writes statuses while the fence permits writes."""

    def __init__(self, api: ApiClient, fence: Fence) -> None:
        """Send no request: the first one is sent by `write`."""
        self._api = api
        self._fence = fence

    async def _patch(
        self, path: str, body: object, content_type: str, query: dict[str, str] | None = None
    ) -> bytes | bytearray | None:
        """Send one PATCH and return the JSON of the changed object.

        Return b"" if the answer is longer than MAX_ANSWER, and None if the write failed or was not sent.
        """
        data, may_write = msgspec.json.encode(body), self._fence.may_write
        try:
            answer = await self._api.call(
                "PATCH", path, body=data, content_type=content_type, query=query, most=MAX_ANSWER, guard=may_write
            )
        except TooLongError:
            # An error message is never this long, so the answer is the object and the write succeeded.
            return b""
        except NotSentError:
            return None
        except NoResponseError as error:
            log.warning("A status write got no answer", extra={"path": path, "error": str(error)})
            return None
        if answer.ok:
            return answer.body
        # The object was changed or deleted meanwhile, or our credentials have expired and are read again. That is
        # normal: the watch reports the change, and the object is reconciled again.
        if answer.status not in {NOT_FOUND, CONFLICT, UNAUTHORIZED}:
            fields = {"path": path, "status": answer.status, "error": status_message(answer)}
            log.error("A status was refused", extra=fields)
        return None


class ApiWorkloads(_Statuses, WorkloadWriter):
    """Writes the statuses of workloads."""

    async def write(self, workload: GpuWorkload, status: WorkloadStatus) -> GpuWorkload | None:
        """Implement WorkloadWriter.write with one PATCH. The API server refuses it if the workload has changed."""
        path = f"{API}/namespaces/{segment(workload.namespace)}/gpuworkloads/{segment(workload.name)}/status"
        written = msgspec.to_builtins(status_object(status))
        # A merge patch removes a field only if the patch names it, so every field without a value is sent as null.
        gone = dict.fromkeys((field.encode_name for field in msgspec.structs.fields(WorkloadStatusObject)), None)
        meta = {"uid": workload.uid, "resourceVersion": workload.version}
        answer = await self._patch(path, {"metadata": meta, "status": {**gone, **written}}, MERGE)
        # An empty answer was too long to read: the watch delivers the new version.
        return read_workload(answer)[1] if answer else None


class ApiGpuNodes(_Statuses, NodeWriter):
    """Applies the controller's part of the status of GPUNodes."""

    async def write(self, name: str, occupied: Allocations) -> bool:
        """Implement NodeWriter.write with one server-side apply, which keeps the fields of other managers."""
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": names.NODE_KIND,
            "metadata": {"name": name},
            "status": occupied_object(occupied),
        }
        query = {"fieldManager": names.CONTROLLER, "force": "true"}
        return await self._patch(f"{API}/gpunodes/{segment(name)}/status", body, APPLY, query) is not None

    async def delete(self, gpu_node: GpuNode) -> bool:
        """Implement NodeWriter.delete with a list of the one node and one DELETE.

        The watch of GPUNodes may show a new node's before the watch of nodes shows the node. A cordon that was written
        meanwhile is another version.
        """
        path = f"{API}/gpunodes/{segment(gpu_node.name)}"
        body = {"preconditions": {"uid": gpu_node.uid, "resourceVersion": gpu_node.version}}
        try:
            # The controller has no right to get nodes.
            if await list_all(self._api, "nodes", "/api/v1/nodes", bytes, selector=f"metadata.name={gpu_node.name}"):
                return True
            answer = await self._api.call("DELETE", path, body=msgspec.json.encode(body), guard=self._fence.may_write)
        except (NotSentError, NoResponseError, UnlistedError) as error:
            log.warning("A GPUNode could not be deleted", extra={"node": gpu_node.name, "error": str(error)})
            return False
        if answer.ok:
            log.info("Deleted the GPUNode of a node that is gone", extra={"node": gpu_node.name})
        # After a conflict the watch brings the newer version.
        return answer.ok or answer.status in {NOT_FOUND, CONFLICT}


def pod_of(workload: GpuWorkload, template: Template, number: int, scheduler_name: str) -> dict[str, Any]:
    """Return the pod to create as JSON data: the template's pod, with the workload's request as annotations."""
    meta = template.metadata or TemplateMeta()
    annotations = {**(meta.annotations or {}), **annotations_of(workload.request)}
    if names.MAP in annotations:
        # The scheduler reads a number at the end of a pod's name as its index. Here that number counts attempts, and
        # every attempt has the map's line of index 0.
        annotations.setdefault(names.INDEX, "0")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(workload.name, number),
            "namespace": workload.namespace,
            "labels": {**(meta.labels or {}), names.WORKLOAD: short(workload.name)},
            "annotations": annotations,
            "ownerReferences": [
                {
                    "apiVersion": f"{GROUP}/{VERSION}",
                    "kind": names.WORKLOAD_KIND,
                    "name": workload.name,
                    "uid": workload.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        # Kubernetes' default, Always, restarts containers for ever, so the workload would never finish.
        "spec": {"restartPolicy": "Never", **template.spec, "schedulerName": scheduler_name},
    }
