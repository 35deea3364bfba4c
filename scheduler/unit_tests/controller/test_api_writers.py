import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gpu_scheduler.controller.api_writers import (
    MAX_ANSWER,
    ApiGpuNodes,
    ApiPods,
    ApiWorkloadEvents,
    ApiWorkloads,
    pod_of,
)
from gpu_scheduler.controller.gpu_node_status import Allocations, GpuNode
from gpu_scheduler.controller.gpu_workload import GpuWorkload, Phase, WorkloadStatus
from gpu_scheduler.controller.translation import read_template
from gpu_scheduler.controller.workload_events import WorkloadEvent
from gpu_scheduler.controller.workload_status import CreateFailure
from gpu_scheduler.core.pods.bounds import Excess
from gpu_scheduler.core.pods.count_request import CountRequest
from gpu_scheduler.kube.events import Events
from gpu_scheduler.kube.http.client import ApiClient
from tests.messages import text_of
from tests.objects import Object
from unit_tests.fakes import Gate
from unit_tests.kube.server import Reply, connected

PODS = "/api/v1/namespaces/default/pods"
POD = f"{PODS}/train-0"
WORKLOAD = "/apis/agentaflow.io/v1/namespaces/default/gpuworkloads/train"
STATUS = "/apis/agentaflow.io/v1/namespaces/default/gpuworkloads/train/status"
NODE = "/apis/agentaflow.io/v1/gpunodes/node1/status"
NODES = "/api/v1/nodes"
NO_NODE = Reply(body={"metadata": {}, "items": []})
GPU_NODE = GpuNode("node1", 1, uid="uid-1", version="7")
SPEC = {"containers": [{"name": "main", "image": "x"}]}


def workload(**others: Any) -> GpuWorkload:
    made = GpuWorkload("default", "train", "uid-1", "7", 2, CountRequest(1, 8192, exclusive=False), 0)
    return replace(made, **others)


def body(template: object = None, uid: str = "uid-1", generation: int = 2) -> Object:
    return {"metadata": {"uid": uid, "generation": generation}, "spec": {"podTemplate": template or {"spec": SPEC}}}


def made(template: object) -> Any:
    read = read_template(json.dumps(body(template)).encode())[2]
    return json.loads(msgspec.json.encode(pod_of(workload(), read, 2, "gpu-scheduler")))


def owned(uid: str, **meta: object) -> Reply:
    owner = {"kind": "GPUWorkload", "name": "train", "uid": uid, "controller": True}
    return Reply(body={"metadata": {"name": "train-0", "ownerReferences": [owner], **meta}, "spec": {}})


@pytest.mark.promise("order-3")
def test_a_pod_is_built_from_the_template() -> None:
    """With our scheduler, the request, and the owner reference."""
    template = {
        "metadata": {"labels": {"app": "a"}, "annotations": {"note": "n", "agentaflow.gpu/count": "9"}},
        "spec": {**SPEC, "schedulerName": "another", "nodeSelector": {"zone": "a"}},
    }

    assert made(template) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "train-2",
            "namespace": "default",
            "labels": {"app": "a", "agentaflow.gpu/workload": "train"},
            "annotations": {
                "note": "n",
                "agentaflow.gpu/count": "1",
                "agentaflow.gpu/memory": "8192",
                "agentaflow.gpu/exclusive": "false",
            },
            "ownerReferences": [
                {
                    "apiVersion": "agentaflow.io/v1",
                    "kind": "GPUWorkload",
                    "name": "train",
                    "uid": "uid-1",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {**SPEC, "restartPolicy": "Never", "schedulerName": "gpu-scheduler", "nodeSelector": {"zone": "a"}},
    }


def test_restart_policy_and_map_of_the_template_are_kept() -> None:
    """Each attempt of a pod with a map has the map's first line, unless the template names another."""
    spec = {**SPEC, "restartPolicy": "OnFailure"}
    mapped = {"gpu-scheduling-map": "0=node1:0"}
    one = made({"spec": spec, "metadata": {"annotations": mapped}})
    other = made({"spec": spec, "metadata": {"annotations": {**mapped, "agentaflow.gpu/index": "4"}}})

    assert one["spec"]["restartPolicy"] == "OnFailure"
    assert one["metadata"]["annotations"]["agentaflow.gpu/index"] == "0"
    assert other["metadata"]["annotations"]["agentaflow.gpu/index"] == "4"


TAKEN = {
    "by an attempt whose response was lost": (owned("uid-1"), None),
    "by a terminating pod of an earlier workload": (owned("uid-0", deletionTimestamp="now"), ""),
    "by a pod of another owner": (owned("uid-0"), "RequestInvalid"),
    "by a bare pod": (Reply(body={"metadata": {"name": "train-0"}, "spec": {}}), "RequestInvalid"),
    "by a pod that was deleted since": (Reply(404), "SchedulerError"),
    "by a pod that may not be read": (Reply(403, {"message": "forbidden"}), "SchedulerError"),
}


@pytest.mark.promise("order-3")
@pytest.mark.parametrize(("there", "reason"), TAKEN.values(), ids=TAKEN)
async def test_a_taken_name_is_reported(there: Reply, reason: str | None) -> None:
    """An existing pod of this workload counts as created."""
    async with connected() as (server, api):
        server.on("GET", WORKLOAD, Reply(body=body()))
        server.on("POST", PODS, Reply(409, {"message": "exists"}))
        server.on("GET", POD, there)

        failure = await ApiPods(api, Gate(), "gpu-scheduler").make(workload(), 0)
        assert (failure and failure.reason) == reason


UNKNOWN = text_of("it is unknown whether a pod was made", pod="default/train-0").partition(" {")[0]
UNMADE = {
    "of a template that is too long": (
        {"excess": Excess("spec.podTemplate", 300_000, 262_144)},
        Reply(500),
        f"RequestInvalid: {Excess('spec.podTemplate', 300_000, 262_144)}; ",
    ),
    "of a workload that is gone": (
        {},
        Reply(404, {"message": "not found"}),
        f"{UNKNOWN} HTTP 404: not found",
    ),
    "of another workload of its name": ({}, Reply(body=body(uid="uid-2")), UNKNOWN),
    "of a workload that has changed": ({}, Reply(body=body(generation=3)), UNKNOWN),
}


@pytest.mark.parametrize(("others", "there", "message"), UNMADE.values(), ids=UNMADE)
async def test_no_pod_is_created(others: dict[str, Any], there: Reply, message: str) -> None:
    """Only the workload that was checked gets a pod. The watch will report a newer one."""
    async with connected() as (server, api):
        server.on("GET", WORKLOAD, there)

        failure = await ApiPods(api, Gate(), "gpu-scheduler").make(workload(**others), 0)

        assert failure is not None
        assert failure.message.startswith(message)
        assert not server.asked("POST")


async def test_a_refusal_is_reported() -> None:
    """With the message of the API server."""
    async with connected() as (server, api):
        server.on("GET", WORKLOAD, Reply(body=body()))
        server.on("POST", PODS, Reply(422, {"message": "Pod is invalid: x"}))

        failure = await ApiPods(api, Gate(), "gpu-scheduler").make(workload(), 0)
        assert failure is not None
        assert failure.message.startswith("RequestInvalid: cannot make pod default/train-0: Pod is invalid: x")


async def test_a_timeout_is_reported_and_never_raised() -> None:
    """The next attempt finds out whether the pod was created. A status is written again."""
    async with connected() as (server, api):
        server.on("GET", WORKLOAD, Reply(body=body()))
        server.on("POST", PODS, Reply(hang=True))
        server.on("PATCH", STATUS, Reply(hang=True))

        failure = await ApiPods(api, Gate(), "gpu-scheduler").make(workload(), 0)
        assert failure is not None
        assert failure.reason == "SchedulerError"
        assert await ApiWorkloads(api, Gate()).write(workload(), WorkloadStatus()) is None


WRITES: dict[str, Callable[[ApiClient, Gate], Awaitable[object]]] = {
    "a pod": lambda api, gate: ApiPods(api, gate, "gpu-scheduler").make(workload(), 0),
    "the status of a workload": lambda api, gate: ApiWorkloads(api, gate).write(workload(), WorkloadStatus()),
    "the status of a GPUNode": lambda api, gate: ApiGpuNodes(api, gate).write("node1", Allocations(0, (), ())),
    "the deletion of a GPUNode": lambda api, gate: ApiGpuNodes(api, gate).delete(GPU_NODE),
}


@pytest.mark.promise("order-8")
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_a_fence_that_closes_while_a_write_is_prepared_stops_it(
    write: Callable[[ApiClient, Gate], Awaitable[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading the token and opening a connection take time. Only the check at the send counts."""
    async with connected() as (server, api):
        server.on("GET", WORKLOAD, Reply(body=body()))
        server.on("GET", NODES, NO_NODE)
        gate, healthy = Gate(), api._ask

        async def slow(method: str, *others: Any) -> Any:
            gate.open = method == "GET"
            return await healthy(method, *others)  # type: ignore[arg-type]

        monkeypatch.setattr(api, "_ask", slow)
        result = await write(api, gate)

        assert "may not write now" in result.message if isinstance(result, CreateFailure) else not result
        assert {each.method for each in server.requests} <= {"GET"}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_expired_credentials_cost_one_try(
    write: Callable[[ApiClient, Gate], Awaitable[object]], caplog: pytest.LogCaptureFixture
) -> None:
    """A fenced write is never sent twice. The next reconcile sends it with the credentials that were read again."""
    async with connected("old", "new") as (server, api):
        server.on("GET", WORKLOAD, Reply(body=body()))
        server.on("GET", NODES, NO_NODE)
        deleted = NODE.removesuffix("/status")
        for method, path in (("POST", PODS), ("PATCH", STATUS), ("PATCH", NODE), ("DELETE", deleted)):
            server.on(method, path, Reply(401))

        result = await write(api, Gate())

        assert result.reason == "SchedulerError" if isinstance(result, CreateFailure) else not result
        assert len([each for each in server.requests if each.method != "GET"]) == 1
        assert "A status was refused" not in caplog.text


async def test_a_status_is_written_over_the_one_that_was_read() -> None:
    """Fields without a value are removed. Uid and version identify the workload that was reconciled."""
    async with connected() as (server, api):
        meta = {"name": "train", "namespace": "default", "uid": "uid-1", "resourceVersion": "8", "generation": 2}
        fresh = {"metadata": meta, "spec": {"podTemplate": {"spec": SPEC}}, "status": {"phase": "Running"}}
        server.on("PATCH", STATUS, Reply(body=fresh))

        written = await ApiWorkloads(api, Gate()).write(
            workload(), WorkloadStatus(Phase.RUNNING, "node1", ("0",), attempts=1)
        )
        assert written is not None
        assert (written.version, written.status) == ("8", WorkloadStatus(Phase.RUNNING))
        (sent,) = server.requests
        assert sent.headers["Content-Type"] == "application/merge-patch+json"
        assert sent.body["metadata"] == {"uid": "uid-1", "resourceVersion": "7"}
        assert sent.body["status"] == {
            **dict.fromkeys(("uuids", "podName", "reason", "message", "startTime", "completionTime")),
            "phase": "Running",
            "node": "node1",
            "devices": ["0"],
            "attempts": 1,
            "observedGeneration": 0,
            "conditions": [],
        }


@pytest.mark.parametrize("reply", [Reply(409, {"message": "changed"}), Reply(404), Reply(403), Reply(500, "")])
async def test_a_refused_status_is_reported_as_not_written(reply: Reply) -> None:
    """The next reconcile finds the same difference."""
    async with connected() as (server, api):
        server.on("PATCH", STATUS, reply)
        server.on("PATCH", NODE, reply)

        assert await ApiWorkloads(api, Gate()).write(workload(), WorkloadStatus()) is None
        assert not await ApiGpuNodes(api, Gate()).write("node1", Allocations(0, (), ()))


async def test_the_controllers_part_of_a_gpu_node_is_applied() -> None:
    """With its own field manager: the monitor keeps its own part. An empty list removes the last entry."""
    async with connected() as (server, api):
        server.on("PATCH", NODE, Reply(body={}))

        assert await ApiGpuNodes(api, Gate()).write("node1", Allocations(0, (), ()))
        (sent,) = server.requests
        assert sent.query == {"fieldManager": "gpu-scheduler-controller", "force": "true"}
        assert sent.headers["Content-Type"] == "application/apply-patch+yaml"
        assert sent.body == {
            "apiVersion": "agentaflow.io/v1",
            "kind": "GPUNode",
            "metadata": {"name": "node1"},
            "status": {"allocated": 0, "allocations": [], "conditions": []},
        }


async def test_a_response_of_megabytes_is_not_read() -> None:
    """Eight concurrent writes would hold eight of them in memory. The watch delivers what was written."""
    async with connected() as (server, api):
        long = Reply(body={"metadata": {"x": "x" * 2 * MAX_ANSWER}})
        server.on("PATCH", STATUS, long)
        server.on("PATCH", NODE, long)

        assert await ApiWorkloads(api, Gate()).write(workload(), WorkloadStatus()) is None
        assert await ApiGpuNodes(api, Gate()).write("node1", Allocations(0, (), ()))


@pytest.mark.promise("cordon-3")
@pytest.mark.parametrize(("status", "gone"), [(200, True), (404, True), (409, True), (403, False), (500, False)])
async def test_only_the_version_that_was_read_is_deleted(status: int, gone: bool) -> None:  # noqa: FBT001
    """A cordon that an operator wrote meanwhile is another version, and the watch brings it."""
    async with connected() as (server, api):
        server.on("GET", NODES, NO_NODE)
        server.on("DELETE", NODE.removesuffix("/status"), Reply(status))

        assert await ApiGpuNodes(api, Gate()).delete(GPU_NODE) is gone

        asked, sent = server.requests
        assert (asked.method, asked.query["fieldSelector"]) == ("GET", "metadata.name=node1")
        assert sent.body == {"preconditions": {"uid": "uid-1", "resourceVersion": "7"}}


NOT_DELETED = {
    "the node exists, and only the watch is late": (
        Reply(body={"metadata": {}, "items": [{"metadata": {"name": "node1"}}]}),
        True,
    ),
    "nobody says whether the node exists": (Reply(500), False),
}


@pytest.mark.promise("order-9")
@pytest.mark.parametrize(("answer", "done"), NOT_DELETED.values(), ids=NOT_DELETED)
async def test_a_gpu_node_is_kept_unless_its_node_is_certainly_gone(answer: Reply, done: bool) -> None:  # noqa: FBT001
    """A new node's GPUNode may be seen before the node, because two watches show them."""
    async with connected() as (server, api):
        server.on("GET", NODES, answer)

        assert await ApiGpuNodes(api, Gate()).delete(GPU_NODE) is done
        assert {each.method for each in server.requests} == {"GET"}


@pytest.mark.parametrize(("warning", "kind"), [(True, "Warning"), (False, "Normal")])
async def test_an_event_of_a_workload_is_about_it_and_short(warning: bool, kind: str) -> None:  # noqa: FBT001
    """The API server refuses notes of more than 1,024 bytes; a kubelet may have written this one."""
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    async with connected() as (server, api):
        server.on("POST", path, Reply(201, body={}))
        events = Events(api, controller="c", instance="i", wall=lambda: datetime.now(UTC))
        event = WorkloadEvent("Failed", "Completing", "ä" * 900, warning=warning)
        await ApiWorkloadEvents(events).record(workload(), event)
        (sent,) = (request.body for request in server.asked("POST"))

    assert (sent["type"], sent["note"]) == (kind, "ä" * 500)
    about = sent["regarding"]
    assert (about["kind"], about["namespace"], about["name"], about["uid"]) == (
        "GPUWorkload",
        "default",
        "train",
        "uid-1",
    )
