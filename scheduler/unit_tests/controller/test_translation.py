import json
from typing import Any

import msgspec
import pytest

from gpu_scheduler.controller.gpu_node_status import Allocation, Allocations, GpuNode
from gpu_scheduler.controller.gpu_workload import Phase, StatusCondition, WorkloadStatus
from gpu_scheduler.controller.translation import (
    occupied_object,
    read_gpu_node,
    read_template,
    read_watched_pod,
    read_workload,
    status_object,
)
from gpu_scheduler.core.pods.count_request import CountRequest, Strategy
from tests import objects
from tests.messages import text_of
from unit_tests.programs import stored

NOW = "2026-11-21T12:00:00Z"
META = {"name": "train", "namespace": "default", "uid": "uid-1", "resourceVersion": "7", "generation": 2}
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}
CONDITION = StatusCondition("Scheduled", "True", "Scheduled", "pod train-0 has GPU 0 of node1", 2, NOW)
STATUS = WorkloadStatus(
    phase=Phase.RUNNING,
    node="node1",
    devices=("0",),
    uuids=("GPU-a",),
    pod="train-0",
    attempts=1,
    started_at=NOW,
    observed_generation=2,
    conditions=(CONDITION,),
)


def raw(value: object) -> bytes:
    return json.dumps(value).encode()


def workload(status: object = None, meta: object = META, **spec: Any) -> bytes:
    return raw({"metadata": meta, "spec": {"podTemplate": TEMPLATE, **spec}, "status": status})


def test_a_minimal_workload_is_read() -> None:
    """One exclusive device of any type, without a retry."""
    key, found = read_workload(workload())

    assert (key, found.uid, found.version, found.generation) == ("default/train", "uid-1", "7", 2)
    assert (found.request, found.retries, found.status, found.deleting) == (CountRequest(1), 0, None, False)
    assert found.excess is None


def test_a_complete_workload_is_read() -> None:
    """The larger of two memory values counts."""
    _, found = read_workload(
        workload(
            meta={**META, "deletionTimestamp": NOW},
            priority=5,
            gpuMemoryRequired=8192,
            schedulingStrategy="best_fit",
            gpuRequirements={"minGPUMemory": 9000, "gpuCount": 2, "exclusiveAccess": False, "gpuType": "A100"},
            estimatedDuration="1h30m",
            retryPolicy={"limit": 3},
            podTemplate={"metadata": {"labels": {"a": "b"}}, **TEMPLATE},
        )
    )

    assert found.request == CountRequest(2, 9000, False, "A100", Strategy.BEST_FIT, 5)
    assert (found.retries, found.deleting) == (3, True)


def test_a_template_is_read_with_uid_and_generation() -> None:
    """They are those of its workload. Its spec is not changed."""
    template = {"metadata": {"labels": {"a": "b"}}, **TEMPLATE}

    uid, generation, found = read_template(workload(podTemplate=template))

    assert (uid, generation) == ("uid-1", 2)
    assert json.loads(msgspec.json.encode(found.spec)) == TEMPLATE["spec"]
    assert found.metadata is not None
    assert found.metadata.labels == {"a": "b"}


def test_a_template_that_is_too_long_is_reported() -> None:
    """It is not kept, and no pod is created from it."""
    spec = {"containers": [{"name": "main", "args": ["x" * 262_144]}]}

    _, found = read_workload(workload(podTemplate={"spec": spec}))

    assert found.excess is not None
    assert (found.excess.what, found.excess.most) == ("spec.podTemplate", 262144)
    assert 262_144 < found.excess.size < 263_000


@pytest.mark.parametrize(
    "status", [STATUS, WorkloadStatus(), WorkloadStatus(reason="GpuHeld", message="x", completed_at=NOW)]
)
def test_a_written_status_is_read_back(status: WorkloadStatus) -> None:
    """Unchanged, so that no status is written twice."""
    written = msgspec.to_builtins(status_object(status))

    assert read_workload(workload(status=written))[1].status == status


def test_a_new_workload_has_no_status_yet() -> None:
    """An empty status is a status without a phase."""
    assert read_workload(workload(status={}))[1].status == WorkloadStatus()


@pytest.mark.parametrize("text", [b"{}", b'{"metadata": {}, "spec": {}}', b"[" * 30_000, b"no"])
def test_an_invalid_workload_is_an_error(text: bytes) -> None:
    """The reflector continues with the next object."""
    with pytest.raises((msgspec.ValidationError, msgspec.DecodeError)):
        read_workload(text)


def pod(owner: str | None = "GPUWorkload", phase: str = "Running", **status: Any) -> bytes:
    """Return a pod's JSON; `owner` is the kind of its controller."""
    owners = [{"kind": "Other", "name": "x", "uid": "x"}]
    if owner is not None:
        owners.append({"kind": owner, "name": "train", "uid": "uid-1", "controller": True})  # type: ignore[dict-item]
    assigned = {"agentaflow.gpu/assigned-devices": "0,1", "agentaflow.gpu/assigned-uuids": "GPU-a,GPU-b"}
    body = objects.pod("train-0", annotations=assigned, nodeName="node1")
    return raw(stored(body, "pod-0", {"phase": phase, **status}, ownerReferences=owners))


@pytest.mark.parametrize("owner", [None, "StatefulSet"])
def test_a_pod_of_another_owner_is_no_attempt(owner: str | None) -> None:
    """It may hold devices, but belongs to no workload."""
    uid, seen = read_watched_pod(pod(owner))

    assert (uid, seen.attempt, seen.pod.node) == ("pod-0", None, "node1")


def test_a_pod_of_a_workload_is_an_attempt() -> None:
    """With its owner, node, devices and start time."""
    _, seen = read_watched_pod(pod(startTime=NOW))

    made = seen.attempt
    assert made is not None
    assert (made.key, made.owner_uid, made.number, made.node) == ("default/train", "uid-1", 0, "node1")
    assert (made.devices, made.uuids) == (("0", "1"), ("GPU-a", "GPU-b"))
    assert (made.phase, made.started_at, made.finished_at, made.fault) == ("Running", NOW, "", "")


def ended(name: str, code: int, at: str, **more: str) -> dict[str, object]:
    return {"name": name, "state": {"terminated": {"exitCode": code, "finishedAt": at, **more}}}


ENDED = "a container ended with an error"
FAULTS: dict[str, tuple[dict[str, Any], tuple[str, str, str]]] = {
    "its container failed": (
        {"containerStatuses": [ended("side", 0, "1"), ended("main", 3, "2", reason="Error")]},
        ("Error", text_of(ENDED, container="main", code=3), "2"),
    ),
    "its container left a message": (
        {"containerStatuses": [ended("main", 137, "2", reason="OOMKilled", message=" too much\n")]},
        ("OOMKilled", f"{text_of(ENDED, container='main', code=137)}: too much", "2"),
    ),
    "its init container failed": (
        {"initContainerStatuses": [ended("init", 1, "1")], "containerStatuses": [{"name": "main", "state": {}}]},
        ("", text_of(ENDED, container="init", code=1), "1"),
    ),
    "it was evicted": (
        {"reason": "Evicted", "message": "The node was low on memory", "containerStatuses": [{"name": "main"}]},
        ("Evicted", "The node was low on memory", ""),
    ),
    "it has only a message": ({"message": "too long"}, ("", "too long", "")),
    "it has no reason and no message": ({}, ("", "", "")),
    "its containers succeeded": ({"containerStatuses": [ended("main", 0, "2")]}, ("", "", "2")),
}


@pytest.mark.parametrize(("status", "found"), FAULTS.values(), ids=FAULTS)
def test_the_reason_of_a_failed_pod_is_read(status: dict[str, Any], found: tuple[str, str, str]) -> None:
    """The pod's own reason, or else how its first failed container ended; and when the last container ended."""
    made = read_watched_pod(pod(phase="Failed", **status))[1].attempt

    assert made is not None
    assert (made.fault, made.details, made.finished_at) == found


def test_a_gpu_node_is_read_as_it_was_written() -> None:
    """Conditions of others are left out."""
    ready = StatusCondition("Ready", "True", "NodeReady", "the node is ready", 1, NOW)
    occupied = Allocations(3, (Allocation("default/a", "0", memory=8192), Allocation("default/b", unnamed=2)), (ready,))
    ours = msgspec.to_builtins(occupied_object(occupied))
    other = {"type": "Cool", "status": "True", "reason": "x", "message": "", "lastTransitionTime": NOW}
    status = {**ours, "gpus": 4, "devices": [{"index": 0, "model": "A100"}], "conditions": [other, *ours["conditions"]]}
    node = {"metadata": {"name": "node1", "generation": 1}, "spec": {"nodeName": "node1"}, "status": status}

    assert read_gpu_node(raw(node)) == ("node1", GpuNode("node1", 1, occupied))


@pytest.mark.parametrize("status", [None, {}, {"gpus": 4, "devices": []}])
def test_a_gpu_node_that_only_its_monitor_wrote_has_no_allocations(status: object) -> None:
    """No controller has written the holders of its devices."""
    node = {"metadata": {"name": "node1"}, "spec": {"nodeName": "node1"}, "status": status}

    assert read_gpu_node(raw(node)) == ("node1", GpuNode("node1", 0))
