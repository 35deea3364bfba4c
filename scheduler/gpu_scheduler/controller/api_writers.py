"""What the controller writes: pods of workloads, statuses of workloads and of GPUNodes; each one bounded try.

Every write is fenced: a controller that no longer leads writes nothing. A pod is made under a name of its own try, so
that making it again finds it; a status is written over the version that was read.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from gpu_scheduler import names
from gpu_scheduler.controller.gpu_workload import annotations_of, pod_name, short
from gpu_scheduler.controller.objects import TemplateMeta, WorkloadStatusObject
from gpu_scheduler.controller.ports import NodeWriter, PodMaker, WorkloadWriter
from gpu_scheduler.controller.translation import occupied_object, read_template, read_workload, status_object
from gpu_scheduler.controller.workload_status import CreateFailure, excessive, refused, taken, unanswered
from gpu_scheduler.kube.http.client import APPLY, MERGE, NoResponseError, TooLongError, segment, status_message
from gpu_scheduler.kube.lists import read_object
from gpu_scheduler.kube.objects.agentaflow import API, GROUP, VERSION
from gpu_scheduler.kube.objects.pod_objects import PodObject
from gpu_scheduler.kube.objects.pod_text import owners_of
from gpu_scheduler.process.logs import get_logger

if TYPE_CHECKING:
    from gpu_scheduler.controller.gpu_node_status import Allocations
    from gpu_scheduler.controller.gpu_workload import GpuWorkload, WorkloadStatus
    from gpu_scheduler.controller.translation import Template
    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.kube.leader_election import Fence

NOT_FOUND = 404
CONFLICT = 409
# An object of etcd's size is longer as JSON, where characters are escaped.
MAX_OBJECT = 16 * 2**20
# What a write of a status is answered by: eight of them may be here at once.
MAX_ANSWER = 2**20
NOT_OURS = "this replica may not write now"

log = get_logger(__name__)

_pods = msgspec.json.Decoder(PodObject)


class ApiPods(PodMaker):
    """Makes pods, only while the fence is open."""

    def __init__(self, api: ApiClient, fence: Fence, scheduler_name: str) -> None:
        """The pods are for the scheduler of this name."""
        self._api = api
        self._fence = fence
        self._scheduler_name = scheduler_name
        # Templates that are read at once would be in memory at once.
        self._reading = asyncio.Lock()

    async def make(self, workload: GpuWorkload, number: int) -> CreateFailure | None:
        """See PodMaker. At most three GETs and a POST, each with the API's time-out."""
        name = pod_name(workload.name, number)
        shown = f"{workload.namespace}/{name}"
        collection = f"/api/v1/namespaces/{segment(workload.namespace)}/pods"
        try:
            body = await self._body(workload, number)
            if isinstance(body, CreateFailure):
                return body
            answer = await self._api.call("POST", collection, body=body)
            if answer.status == CONFLICT:
                return await self._look(workload, f"{collection}/{segment(name)}", shown)
        except NoResponseError as error:
            return unanswered(shown, str(error))
        if answer.ok:
            log.info("Made a pod", pod=shown, workload=workload.key)
            return None
        return refused(shown, answer.status, status_message(answer))

    async def _body(self, workload: GpuWorkload, number: int) -> bytes | CreateFailure:
        """The pod as JSON; its template is read now, since nobody keeps thousands of them."""
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
            body = msgspec.json.encode(pod_of(workload, template, number, self._scheduler_name))
        return body if self._fence.may_bind() else unanswered(shown, NOT_OURS)

    async def _look(self, workload: GpuWorkload, path: str, shown: str) -> CreateFailure | None:
        """Whose pod it is that is there already."""
        answer = await read_object(self._api, path, self._reading)
        if answer.status == NOT_FOUND:
            return unanswered(shown, "another pod of that name has just gone")
        if not answer.ok:
            return unanswered(shown, f"HTTP {answer.status}: {status_message(answer)}")
        meta = _pods.decode(answer.body).metadata
        if any(owner.controller and owner.uid == workload.uid for owner in owners_of(meta)[0]):
            return None
        return taken(shown, going=meta.deletion_timestamp is not None)


class _Statuses:
    """Writes statuses, only while the fence is open."""

    def __init__(self, api: ApiClient, fence: Fence) -> None:
        """Nothing is written before `write`."""
        self._api = api
        self._fence = fence

    async def _patch(
        self, path: str, body: object, content_type: str, query: dict[str, str] | None = None
    ) -> bytes | bytearray | None:
        """One PATCH; the object as it is then, empty where it is too long, None where it did not come to that."""
        data = msgspec.json.encode(body)
        if not self._fence.may_bind():
            return None
        try:
            answer = await self._api.call(
                "PATCH", path, body=data, content_type=content_type, query=query, most=MAX_ANSWER
            )
        except TooLongError:
            # No refusal is so long: it is the object, with what was written.
            return b""
        except NoResponseError as error:
            log.warning("A status had no answer", path=path, error=str(error))
            return None
        if answer.ok:
            return answer.body
        # What changed or went meanwhile is no fault: the watch tells of it, and then it is looked at again.
        if answer.status not in {NOT_FOUND, CONFLICT}:
            log.error("A status was refused", path=path, status=answer.status, error=status_message(answer))
        return None


class ApiWorkloads(_Statuses, WorkloadWriter):
    """Writes statuses of workloads."""

    async def write(self, workload: GpuWorkload, status: WorkloadStatus) -> GpuWorkload | None:
        """See WorkloadWriter. One PATCH, refused where the workload is another by now."""
        path = f"{API}/namespaces/{segment(workload.namespace)}/gpuworkloads/{segment(workload.name)}/status"
        told = msgspec.to_builtins(status_object(status))
        # What is told no longer is taken away by name.
        gone = dict.fromkeys((field.encode_name for field in msgspec.structs.fields(WorkloadStatusObject)), None)
        meta = {"uid": workload.uid, "resourceVersion": workload.version}
        answer = await self._patch(path, {"metadata": meta, "status": {**gone, **told}}, MERGE)
        # Of one too long to be read the watch is about to tell.
        return read_workload(answer)[1] if answer else None


class ApiGpuNodes(_Statuses, NodeWriter):
    """Applies the controller's part of GPUNodes' statuses."""

    async def write(self, name: str, occupied: Allocations) -> bool:
        """See NodeWriter. One server-side apply: the fields of other managers stay theirs."""
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": names.NODE_KIND,
            "metadata": {"name": name},
            "status": occupied_object(occupied),
        }
        query = {"fieldManager": names.CONTROLLER, "force": "true"}
        return await self._patch(f"{API}/gpunodes/{segment(name)}/status", body, APPLY, query) is not None


def pod_of(workload: GpuWorkload, template: Template, number: int, scheduler_name: str) -> dict[str, Any]:
    """The pod as it is asked for: the template's, with what the workload asks for written on it."""
    meta = template.metadata or TemplateMeta()
    annotations = {**(meta.annotations or {}), **annotations_of(workload.request)}
    if names.MAP in annotations:
        # The number at the end of its name counts tries; each of them has the map's first line.
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
        # Kubernetes' own default starts a container again for ever, and then nothing is ever finished.
        "spec": {"restartPolicy": "Never", **template.spec, "schedulerName": scheduler_name},
    }
