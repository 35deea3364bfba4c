"""Size limits of one pod: a pod over a limit is reported, and its resource requests still count on its node."""

from typing import Any

import msgspec
import pytest

from gpu_scheduler import names
from gpu_scheduler.core.pods.bounds import Excess
from gpu_scheduler.core.pods.pod import EVERY_PORT, Pod
from gpu_scheduler.kube.objects.pods import read_foreign_pod, read_pod
from tests.messages import says


def body(meta: dict[str, Any] | None = None, *, container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    meta = {
        "name": "train-0",
        "namespace": "default",
        "uid": "u",
        "annotations": {names.MAP: "0=node1:0"},
        **(meta or {}),
    }
    return {"metadata": meta, "spec": {"containers": [{"name": "main", **(container or {})}], **spec}}


def read(value: dict[str, Any]) -> Pod:
    return read_pod(msgspec.json.encode(value))[1]


def annotated(key: str, text: str) -> dict[str, Any]:
    return body({"annotations": {names.MAP: "0=node1:0", key: text}})


def variable(**entry: Any) -> dict[str, Any]:
    return {"env": [{"name": names.VISIBLE_DEVICES, **entry}]}


ENTRIES = {"env": [{"name": names.DEVICE_ORDER, "value": "PCI_BUS_ID"}] * 5}
MANY = {f"a.b/c{number}": "1" for number in range(10_000)}
EXCESSIVE: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a map": (annotated(names.MAP, "0=node1:0\n" + "#" * 65_536), ("MapInvalid", "65536 bytes", "1=node2:0,1")),
    "a map that is short in characters": (
        annotated(names.MAP, "0=node1:0\n#" + "\u2603" * 22_000),
        ("MapInvalid", "65536 bytes", "1=node2:0,1"),
    ),
    "an annotation": (
        annotated(names.SHARING, "x" * 64),
        ("RequestInvalid", "agentaflow.gpu/sharing", "64 bytes", "63"),
    ),
    "an annotation of few characters": (
        annotated(names.OBSERVER, "x" * 63 + "\u00e9"),
        ("RequestInvalid", "agentaflow.gpu/observer", "65 bytes", "63"),
    ),
    "a value": (
        body(container=variable(value="0," * 2049)),
        ("EnvConflict", "CUDA_VISIBLE_DEVICES", "4098 bytes", "4096"),
    ),
    "a value of megabytes": (
        body(container=variable(value="x" * 1_400_000)),
        ("EnvConflict", "CUDA_VISIBLE_DEVICES", "1400000 bytes", "4096"),
    ),
    "a value that takes six bytes a character": (
        body(container=variable(value="\u0001" * 100_000)),
        ("EnvConflict", "CUDA_VISIBLE_DEVICES", "600000 bytes"),
    ),
    "variables beside one of ours": (
        body(container={"env": [{"name": names.VISIBLE_DEVICES, "value": "0"}, *[{"name": "A"}] * 30_000]}),
        ("RequestInvalid", "390045 bytes"),
    ),
    "different values": (
        body(initContainers=[{"name": f"c{each}", **variable(value=f"{each}," * 800)} for each in range(10, 18)]),
        ("RequestInvalid", "CUDA_VISIBLE_DEVICES", "16800 bytes"),
    ),
    "entries of our variables": (
        body(initContainers=[{"name": f"c{each}", **ENTRIES} for each in range(999)]),
        ("RequestInvalid", "4995 entries", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"),
    ),
    "containers": (
        body(initContainers=[{"name": f"c{number}"} for number in range(1000)]),
        ("RequestInvalid", "1001 containers", "1000"),
    ),
    "resources": (
        body(container={"resources": {"requests": dict(list(MANY.items())[:65])}}),
        ("RequestInvalid", "65 resources", "64"),
    ),
    "thousands of resources": (body(container={"resources": {"requests": MANY}}), ("RequestInvalid",)),
    "ports": (
        body(container={"ports": [{"hostPort": number} for number in range(1, 66)]}),
        ("RequestInvalid", "65 ports", "64"),
    ),
    "thousands of ports": (
        body(container={"ports": [{"hostPort": number} for number in range(1, 9000)]}),
        ("RequestInvalid",),
    ),
    "tolerations": (body(tolerations=[{"operator": "Exists"}] * 400), ("RequestInvalid", "8801 bytes", "8192")),
    "claims": (
        body(volumes=[{"name": f"v{each}", "persistentVolumeClaim": {"claimName": "a"}} for each in range(129)]),
        ("RequestInvalid", "spec.volumes", "129 claims", "128"),
    ),
    "volumes": (body(volumes=[{"name": "x" * 262_144}]), ("RequestInvalid", "spec.volumes", "262157 bytes")),
    "owners": (
        body({"ownerReferences": [{"kind": "Job", "name": "x" * 65_536, "uid": "u", "controller": True}]}),
        ("RequestInvalid", "metadata.ownerReferences", "65590 bytes"),
    ),
}


@pytest.mark.promise("wide-2", "text-12")
@pytest.mark.parametrize(("given", "said"), EXCESSIVE.values(), ids=EXCESSIVE)
def test_a_pod_over_a_limit_reports_the_limit(given: dict[str, Any], said: tuple[str, ...]) -> None:
    """Such a pod is never placed, and little of it is kept."""
    pod = read(given)
    fault = pod.request.fault

    assert fault is not None
    says(fault.message, *said)
    assert len(str(pod)) < 20_000


OURS = sorted(key for key in names.POD_ANNOTATIONS - {names.MAP} if not key.startswith("agentaflow.gpu/assigned-"))


@pytest.mark.promise("text-12")
@pytest.mark.parametrize("key", OURS)
def test_an_annotation_has_at_most_63_bytes(key: str) -> None:
    """Whether or not it is used: every scheduler keeps it in memory as long as the pod exists."""
    fault = read(annotated(key, "1" * 64)).request.fault

    reason = "IndexUnknown" if key.endswith("index") else "RequestInvalid"
    assert fault is not None
    assert fault.message.startswith(
        f"{reason}: cannot read annotation {key}: it has 64 bytes, and must have at most 63; "
    )


FITTING: dict[str, dict[str, Any]] = {
    "annotations and labels of others": body(
        {"annotations": {names.MAP: "0=node1:0", "a": "x" * 262_144}, "labels": MANY}
    ),
    "a comment that is no ASCII": annotated(names.MAP, "0=node1:0\n#" + "\u2603" * 1000),
    "a long list of variables": body(container={"env": [{"name": "A", "value": "x" * 300_000}]}),
    "ports of its own": body(container={"ports": [{"containerPort": number} for number in range(1, 9000)]}),
    "a long value in many containers": body(
        initContainers=[{"name": f"c{number}", **variable(value="0,1" * 1000)} for number in range(50)]
    ),
    "a thousand containers, each with four entries of our variables": body(
        initContainers=[{"name": f"c{each}", "env": ENTRIES["env"][:4]} for each in range(999)]
    ),
    "one owner": body({"ownerReferences": [{"kind": "Job", "name": "x" * 253, "uid": "u", "controller": True}]}),
    "one long owner of many": body(
        {"ownerReferences": [{"kind": "A", "name": "a", "uid": "u"}] * 50 + [{"kind": "Job", "name": "b", "uid": "u"}]}
    ),
}


@pytest.mark.parametrize("given", FITTING.values(), ids=FITTING)
def test_fields_of_others_may_be_long(given: dict[str, Any]) -> None:
    """The scheduler does not keep them."""
    pod = read(given)

    assert pod.excess is None
    assert pod.request.fault is None
    assert len(str(pod)) < 20_000


def test_equal_containers_are_kept_once() -> None:
    """The bind gate's result for one of them holds for all."""
    pod = read(body(initContainers=[{"name": f"c{each}", **variable(value=str(each % 2))} for each in range(100)]))

    assert [each.name for each in pod.environment.containers] == ["main", "c0", "c1"]


def test_gpu_limits_of_many_containers_are_summed() -> None:
    """The first container is kept by name. The others are summed, so that the first is known not to be the only one."""
    limit = {"resources": {"limits": {names.GPU_RESOURCE: "1"}}}
    pod = read(body(initContainers=[{"name": f"c{number}", **limit} for number in range(20)]))

    assert pod.gpu_limits == (("c0", 1), ("c1", 19))
    assert pod.gpu_limit == 20


def test_requests_of_a_large_foreign_pod_are_counted() -> None:
    """CPU, memory and devices are read before thousands of other resources. Too many ports count as every port."""
    requests = {**MANY, "cpu": "2", "memory": "1Gi", names.GPU_RESOURCE: "1", "ephemeral-storage": "1"}
    container = {"resources": {"requests": requests}, "ports": [{"hostPort": number} for number in range(1, 9000)]}
    small = {"resources": {"requests": {"cpu": "1"}}}
    small_containers = [{"name": f"c{number}", **small} for number in range(3000)]
    given = body(container=container, nodeName="node1")
    given["spec"]["containers"] += small_containers

    _, found = read_foreign_pod(msgspec.json.encode(given))

    taken = {"cpu": 3_002_000, "memory": 2**30, names.GPU_RESOURCE: 1, "ephemeral-storage": 1}
    assert found.resource_request.requests == taken
    assert found.resource_request.ports == {EVERY_PORT}


def test_sidecars_with_many_resources_are_counted_in_time() -> None:
    """Each later init container is added to the resources of all sidecars before it."""
    requested = dict(list(MANY.items())[:60])
    sidecars = [
        {"restartPolicy": "Always", "resources": {"requests": {f"{key}-{each}": "1" for key in requested}}}
        for each in range(50)
    ]
    given = body(initContainers=[{"name": f"c{number}", **each} for number, each in enumerate(sidecars)])

    assert read(given).excess == Excess("the resources of the pod", 3000, 64, "resources")


def test_a_condition_is_cut() -> None:
    """To 1001 characters: one more than ours can have, so that it does not equal one of ours."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "x" * 9999, "message": "y" * 999_999}
    pod = read({**body(), "status": {"conditions": [condition]}})

    assert pod.scheduled_condition is not None
    assert len(pod.scheduled_condition.message) == len(pod.scheduled_condition.reason) == 1001
