"""What one pod may say at most: more is named, and what it takes of its node is counted still."""

from typing import Any

import msgspec
import pytest

from gpu_scheduler import names
from gpu_scheduler.core.pods.bounds import Excess
from gpu_scheduler.core.pods.pod import EVERY_PORT, Pod
from gpu_scheduler.kube.objects.pods import read_pod, read_resident

NODE_AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"


def body(meta: dict[str, Any] | None = None, *, container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod with what a row is about."""
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
EXCESSIVE: dict[str, tuple[dict[str, Any], str]] = {
    "a map": (
        annotated(names.MAP, "0=node1:0\n" + "#" * 65_536),
        "MapInvalid: cannot read placement map: it must have at most 65536 bytes (example: 1=node2:0,1); ",
    ),
    "a map that is short in characters": (
        annotated(names.MAP, "0=node1:0\n#" + "\u2603" * 22_000),
        "MapInvalid: cannot read placement map: it must have at most 65536 bytes (example: 1=node2:0,1); ",
    ),
    "a word": (
        annotated(names.SHARING, "x" * 64),
        "RequestInvalid: cannot read annotation agentaflow.gpu/sharing: it has 64 bytes, and must have at most 63; ",
    ),
    "a word in few characters": (
        annotated(names.OBSERVER, "x" * 63 + "\u00e9"),
        "RequestInvalid: cannot read annotation agentaflow.gpu/observer: it has 65 bytes, and must have at most 63; ",
    ),
    "a value": (
        body(container=variable(value="0," * 2049)),
        "EnvConflict: cannot read CUDA_VISIBLE_DEVICES: it has 4098 bytes, and must have at most 4096; ",
    ),
    "a value of megabytes": (
        body(container=variable(value="x" * 1_400_000)),
        "EnvConflict: cannot read CUDA_VISIBLE_DEVICES: it has 1400000 bytes, and must have at most 4096; ",
    ),
    "a value that takes six bytes a character": (
        body(container=variable(value="\u0001" * 100_000)),
        "EnvConflict: cannot read CUDA_VISIBLE_DEVICES: it has 600000 bytes",
    ),
    "variables beside one of ours": (
        body(container={"env": [{"name": names.VISIBLE_DEVICES, "value": "0"}, *[{"name": "A"}] * 30_000]}),
        "RequestInvalid: cannot read env of a container: it has 3900",
    ),
    "different values": (
        body(initContainers=[{"name": f"c{each}", **variable(value=f"{each}," * 800)} for each in range(10, 18)]),
        "RequestInvalid: cannot read all values of CUDA_VISIBLE_DEVICES: it has 16800 bytes",
    ),
    "entries of our variables": (
        body(initContainers=[{"name": f"c{each}", **ENTRIES} for each in range(999)]),
        "RequestInvalid: cannot read the pod: it has 4995 entries of CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, ",
    ),
    "containers": (
        body(initContainers=[{"name": f"c{number}"} for number in range(1000)]),
        "RequestInvalid: cannot read the pod: it has 1001 containers, and must have at most 1000; ",
    ),
    "resources": (
        body(container={"resources": {"requests": dict(list(MANY.items())[:65])}}),
        "RequestInvalid: cannot read the resources of the pod: it has 65 resources, and must have at most 64; ",
    ),
    "thousands of resources": (
        body(container={"resources": {"requests": MANY}}),
        "RequestInvalid: cannot read the resources of the pod: ",
    ),
    "ports": (
        body(container={"ports": [{"hostPort": number} for number in range(1, 66)]}),
        "RequestInvalid: cannot read the host ports of the pod: it has 65 ports or more, and must have at most 64; ",
    ),
    "thousands of ports": (
        body(container={"ports": [{"hostPort": number} for number in range(1, 9000)]}),
        "RequestInvalid: cannot read the host ports of the pod: ",
    ),
    "tolerations": (
        body(tolerations=[{"operator": "Exists"}] * 400),
        "RequestInvalid: cannot read what the pod says of its node: it has 8801 bytes, and must have at most 8192; ",
    ),
    "claims": (
        body(volumes=[{"name": f"v{each}", "persistentVolumeClaim": {"claimName": "a"}} for each in range(129)]),
        "RequestInvalid: cannot read spec.volumes: it has 129 claims, and must have at most 128; ",
    ),
    "volumes": (
        body(volumes=[{"name": "x" * 262_144}]),
        "RequestInvalid: cannot read spec.volumes: it has 2621",
    ),
    "owners": (
        body({"ownerReferences": [{"kind": "Job", "name": "x" * 65_536, "uid": "u", "controller": True}]}),
        "RequestInvalid: cannot read metadata.ownerReferences: it has 655",
    ),
}


@pytest.mark.parametrize(("given", "message"), EXCESSIVE.values(), ids=EXCESSIVE)
def test_a_pod_that_says_too_much_is_told_of_what(given: dict[str, Any], message: str) -> None:
    """It is never placed, and little of it is kept."""
    pod = read(given)
    fault = pod.request.fault

    assert fault is not None
    assert fault.message.startswith(message)
    assert len(str(pod)) < 20_000


OURS = sorted(key for key in names.POD_ANNOTATIONS - {names.MAP} if not key.startswith("agentaflow.gpu/assigned-"))


@pytest.mark.parametrize("key", OURS)
def test_no_annotation_is_longer_than_it_needs(key: str) -> None:
    """Whether it is read or not: it would stay in every scheduler's memory as long as the pod does."""
    fault = read(annotated(key, "1" * 64)).request.fault

    word = "IndexUnknown" if key.endswith("index") else "RequestInvalid"
    assert fault is not None
    assert fault.message.startswith(
        f"{word}: cannot read annotation {key}: it has 64 bytes, and must have at most 63; "
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
def test_what_says_nothing_to_us_may_be_long(given: dict[str, Any]) -> None:
    """It is read past."""
    pod = read(given)

    assert pod.excess is None
    assert pod.request.fault is None
    assert len(str(pod)) < 20_000


def test_of_many_containers_that_are_alike_one_is_kept() -> None:
    """What the bind gate asks of one holds for all."""
    pod = read(body(initContainers=[{"name": f"c{each}", **variable(value=str(each % 2))} for each in range(100)]))

    assert [each.name for each in pod.environment.containers] == ["main", "c0", "c1"]


def test_limits_of_cards_in_many_containers_count_together() -> None:
    """The first is named, and that it is not the only one."""
    limit = {"resources": {"limits": {names.GPU_RESOURCE: "1"}}}
    pod = read(body(initContainers=[{"name": f"c{number}", **limit} for number in range(20)]))

    assert pod.gpu_limits == (("c0", 1), ("c1", 19))
    assert pod.gpu_limit == 20


def test_what_others_pods_take_is_counted_however_much_they_say() -> None:
    """Processor, memory and cards before thousands of names, and too many ports as all of them."""
    requests = {**MANY, "cpu": "2", "memory": "1Gi", names.GPU_RESOURCE: "1", "ephemeral-storage": "1"}
    container = {"resources": {"requests": requests}, "ports": [{"hostPort": number} for number in range(1, 9000)]}
    small = {"resources": {"requests": {"cpu": "1"}}}
    crowd = [{"name": f"c{number}", **small} for number in range(3000)]
    given = body(container=container, nodeName="node1")
    given["spec"]["containers"] += crowd

    _, found = read_resident(msgspec.json.encode(given))

    taken = {"cpu": 3_002_000, "memory": 2**30, names.GPU_RESOURCE: 1, "ephemeral-storage": 1}
    assert found.resource_request.requests == taken
    assert found.resource_request.ports == {EVERY_PORT}


def test_sidecars_with_many_resources_are_counted_in_time() -> None:
    """Each init container that follows looks at what they have."""
    asked = dict(list(MANY.items())[:60])
    sidecars = [
        {"restartPolicy": "Always", "resources": {"requests": {f"{key}-{each}": "1" for key in asked}}}
        for each in range(50)
    ]
    given = body(initContainers=[{"name": f"c{number}", **each} for number, each in enumerate(sidecars)])

    assert read(given).excess == Excess("the resources of the pod", 3000, 64, "resources")


def test_a_condition_is_cut() -> None:
    """One word longer than ours can be, so that it is not taken for one of ours."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "x" * 9999, "message": "y" * 999_999}
    pod = read({**body(), "status": {"conditions": [condition]}})

    assert pod.scheduled_condition is not None
    assert len(pod.scheduled_condition.message) == len(pod.scheduled_condition.reason) == 1001
