import json
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest

from gpu_scheduler.controller.api_writers import MAX_ANSWER, ApiGpuNodes, ApiPods, ApiWorkloads, pod_of
from gpu_scheduler.controller.gpu_node_status import Allocations
from gpu_scheduler.controller.gpu_workload import GpuWorkload, Phase, WorkloadStatus
from gpu_scheduler.controller.translation import read_template
from gpu_scheduler.core.pods.bounds import Excess
from gpu_scheduler.core.pods.count_request import CountRequest
from gpu_scheduler.kube.http.client import ApiClient
from tests.kube.server import Reply, connected
from tests.objects import Object
from tests.waiting import limit

PODS = "/api/v1/namespaces/default/pods"
POD = f"{PODS}/train-0"
WORKLOAD = "/apis/agentaflow.io/v1/namespaces/default/gpuworkloads/train"
STATUS = "/apis/agentaflow.io/v1/namespaces/default/gpuworkloads/train/status"
NODE = "/apis/agentaflow.io/v1/gpunodes/node1/status"
SPEC = {"containers": [{"name": "main", "image": "x"}]}


@dataclass
class Gate:
    """A fence that can be closed."""

    open: bool = True

    def may_bind(self) -> bool:
        """See Fence."""
        return self.open


def workload(**others: Any) -> GpuWorkload:
    """A workload that shares a card."""
    made = GpuWorkload("default", "train", "uid-1", "7", 2, CountRequest(1, 8192, exclusive=False), 0)
    return replace(made, **others)


def body(template: object = None, uid: str = "uid-1", generation: int = 2) -> Object:
    """The same, as the API server gives it."""
    return {"metadata": {"uid": uid, "generation": generation}, "spec": {"podTemplate": template or {"spec": SPEC}}}


def made(template: object) -> Any:
    """The pod that is asked for by this template."""
    read = read_template(json.dumps(body(template)).encode())[2]
    return json.loads(msgspec.json.encode(pod_of(workload(), read, 2, "gpu-scheduler")))


def owned(uid: str, **meta: object) -> Reply:
    """A pod that is there already."""
    owner = {"kind": "GPUWorkload", "name": "train", "uid": uid, "controller": True}
    return Reply(body={"metadata": {"name": "train-0", "ownerReferences": [owner], **meta}, "spec": {}})


def test_a_pod_as_it_is_asked_for() -> None:
    """The template's, with our scheduler, the request, and who it belongs to."""
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


def test_what_a_template_says_of_restarts_and_of_a_map_stands() -> None:
    """And each try of a pod with a map has the map's first line, unless the template names another."""
    spec = {**SPEC, "restartPolicy": "OnFailure"}
    mapped = {"gpu-scheduling-map": "0=node1:0"}
    one = made({"spec": spec, "metadata": {"annotations": mapped}})
    other = made({"spec": spec, "metadata": {"annotations": {**mapped, "agentaflow.gpu/index": "4"}}})

    assert one["spec"]["restartPolicy"] == "OnFailure"
    assert one["metadata"]["annotations"]["agentaflow.gpu/index"] == "0"
    assert other["metadata"]["annotations"]["agentaflow.gpu/index"] == "4"


async def test_a_pod_is_made() -> None:
    """One GET, of its template, and one POST."""
    async with connected() as (server, api):
        server.on("GET", WORKLOAD, Reply(body=body()))
        server.on("POST", PODS, Reply(201, {}))

        assert await ApiPods(api, Gate(), "gpu-scheduler").make(workload(), 0) is None
        _, sent = server.requests
        assert sent.body["metadata"]["name"] == "train-0"


TAKEN = {
    "by a try whose answer was lost": (owned("uid-1"), None),
    "by a pod of an earlier workload that is going": (owned("uid-0", deletionTimestamp="now"), ""),
    "by a pod of another owner": (owned("uid-0"), "RequestInvalid"),
    "by a bare pod": (Reply(body={"metadata": {"name": "train-0"}, "spec": {}}), "RequestInvalid"),
    "by a pod that has gone since": (Reply(404), "SchedulerError"),
    "by one that nobody may see": (Reply(403, {"message": "forbidden"}), "SchedulerError"),
}


@pytest.mark.parametrize(("there", "reason"), TAKEN.values(), ids=TAKEN)
async def test_the_name_is_taken(there: Reply, reason: str | None) -> None:
    """A pod that is ours already is what was wanted."""
    async with connected() as (server, api):
        server.on("GET", WORKLOAD, Reply(body=body()))
        server.on("POST", PODS, Reply(409, {"message": "exists"}))
        server.on("GET", POD, there)

        trouble = await ApiPods(api, Gate(), "gpu-scheduler").make(workload(), 0)
        assert (trouble and trouble.reason) == reason


UNMADE = {
    "of a template that is too long": (
        {"excess": Excess("spec.podTemplate", 300_000, 262_144)},
        Reply(500),
        "RequestInvalid: cannot read spec.podTemplate: it has 300000 bytes, and must have at most 262144; let its ",
    ),
    "of a workload that is gone": (
        {},
        Reply(404, {"message": "not found"}),
        "SchedulerError: cannot tell whether pod default/train-0 was made: HTTP 404: not found",
    ),
    "of another workload of its name": ({}, Reply(body=body(uid="uid-2")), "SchedulerError: cannot tell whether pod"),
    "of a workload that has changed": ({}, Reply(body=body(generation=3)), "SchedulerError: cannot tell whether pod"),
}


@pytest.mark.parametrize(("others", "there", "message"), UNMADE.values(), ids=UNMADE)
async def test_no_pod_is_made(others: dict[str, Any], there: Reply, message: str) -> None:
    """Of what was judged alone; the watch is about to tell of another."""
    async with connected() as (server, api):
        server.on("GET", WORKLOAD, there)

        trouble = await ApiPods(api, Gate(), "gpu-scheduler").make(workload(**others), 0)

        assert trouble is not None
        assert trouble.message.startswith(message)
        assert not server.asked("POST")


async def test_a_refusal_is_told() -> None:
    """As the API server says it."""
    async with connected() as (server, api):
        server.on("GET", WORKLOAD, Reply(body=body()))
        server.on("POST", PODS, Reply(422, {"message": "Pod is invalid: x"}))

        trouble = await ApiPods(api, Gate(), "gpu-scheduler").make(workload(), 0)
        assert trouble is not None
        assert trouble.message.startswith("RequestInvalid: cannot make pod default/train-0: Pod is invalid: x")


async def test_silence_is_told_and_never_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the pod was made, the next try finds out; a status is written again."""
    monkeypatch.setattr(
        ApiClient.call, "__kwdefaults__", {**(ApiClient.call.__kwdefaults__ or {}), "timeout": limit(0.2)}
    )
    async with connected() as (server, api):
        server.on("GET", WORKLOAD, Reply(body=body()))
        server.on("POST", PODS, Reply(after=9))
        server.on("PATCH", STATUS, Reply(after=9))

        trouble = await ApiPods(api, Gate(), "gpu-scheduler").make(workload(), 0)
        assert trouble is not None
        assert trouble.reason == "SchedulerError"
        assert await ApiWorkloads(api, Gate()).write(workload(), WorkloadStatus()) is None


async def test_nothing_is_written_by_a_replica_that_does_not_lead() -> None:
    """The fence is asked right before each write."""
    async with connected() as (server, api):
        server.on("GET", WORKLOAD, Reply(body=body()))
        shut = Gate(open=False)
        trouble = await ApiPods(api, shut, "gpu-scheduler").make(workload(), 0)

        assert trouble is not None
        assert "may not write now" in trouble.message
        assert await ApiWorkloads(api, shut).write(workload(), WorkloadStatus()) is None
        assert not await ApiGpuNodes(api, shut).write("node1", Allocations(0, (), ()))
        assert [each.method for each in server.requests] == ["GET"]


async def test_a_status_is_written_over_the_one_that_was_read() -> None:
    """What is told no longer is taken away; uid and version say which workload was looked at."""
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
        assert {key: value for key, value in sent.body["status"].items() if value is not None} == {
            "phase": "Running",
            "node": "node1",
            "devices": ["0"],
            "attempts": 1,
            "observedGeneration": 0,
            "conditions": [],
        }
        assert [key for key, value in sent.body["status"].items() if value is None] == [
            "uuids",
            "podName",
            "reason",
            "message",
            "startTime",
            "completionTime",
        ]


@pytest.mark.parametrize("reply", [Reply(409, {"message": "changed"}), Reply(404), Reply(403), Reply(500, "")])
async def test_a_status_that_is_refused_is_told_as_not_written(reply: Reply) -> None:
    """The next look finds the same difference."""
    async with connected() as (server, api):
        server.on("PATCH", STATUS, reply)
        server.on("PATCH", NODE, reply)

        assert await ApiWorkloads(api, Gate()).write(workload(), WorkloadStatus()) is None
        assert not await ApiGpuNodes(api, Gate()).write("node1", Allocations(0, (), ()))


async def test_a_gpu_node_s_part_is_applied() -> None:
    """By its own field manager: the monitor's part is the monitor's."""
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


async def test_an_answer_of_megabytes_is_not_read() -> None:
    """Eight writes at once would have eight of them here; the watch shows what was written."""
    async with connected() as (server, api):
        long = Reply(body={"metadata": {"x": "x" * 2 * MAX_ANSWER}})
        server.on("PATCH", STATUS, long)
        server.on("PATCH", NODE, long)

        assert await ApiWorkloads(api, Gate()).write(workload(), WorkloadStatus()) is None
        assert await ApiGpuNodes(api, Gate()).write("node1", Allocations(0, (), ()))
