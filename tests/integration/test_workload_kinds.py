"""The CRDs on a real API server: valid and invalid objects, defaults and printed columns."""

from __future__ import annotations

import copy
import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.control_plane import ADMIN_TOKEN
from tests.integration.programs import program
from tests.integration.workloads import API, DEFINITIONS, STRICT, Workloads, example
from tests.messages import text_of
from tests.objects import gpu_workload
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.objects import Object

NODE = {"apiVersion": "agentaflow.io/v1", "kind": "GPUNode", "metadata": {"name": "node1"}}
CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "NodeReady",
    "message": "",
    "lastTransitionTime": "2026-11-21T12:00:00Z",
}


@pytest.mark.parametrize("name", ["gpuworkloads", "gpunodes"])
def test_a_kind_is_established_without_a_complaint(kinds: ControlPlane, name: str) -> None:
    """The schema is structural, its CEL rules compile within the cost limit, and its names are free."""
    definition = kinds.kube.get(f"{DEFINITIONS}/{name}.agentaflow.io")
    assert definition is not None
    conditions = {each["type"]: each["status"] for each in definition["status"]["conditions"]}

    assert conditions == {"NamesAccepted": "True", "Established": "True"}


@pytest.mark.promise("order-1")
def test_the_example_is_accepted_and_filled_in(workloads: Workloads) -> None:
    """The example of the documentation passes strict field validation, and defaults are added."""
    body = example()
    body["metadata"]["namespace"] = workloads.namespace.name
    made = workloads.kube.create(workloads.path + STRICT, body)

    asked = body["spec"]
    assert made["spec"] == {**asked, "retryPolicy": {"limit": 0}}
    least = workloads.place("least")["spec"]
    assert {key: value for key, value in least.items() if key != "podTemplate"} == {
        "priority": 0,
        "gpuMemoryRequired": 0,
        "gpuRequirements": {"gpuCount": 1, "minGPUMemory": 0, "exclusiveAccess": True},
        "retryPolicy": {"limit": 0},
    }


SUPPORTED = 'supported values: "least_utilized", "best_fit", "priority", "round_robin"'
# Error → the invalid part of the spec, and a part of the API server's message.
WRONG: dict[str, tuple[Object, str]] = {
    "an unknown field": ({"gpuMemry": 1}, 'unknown field "spec.gpuMemry"'),
    "an unknown nested field": (
        {"gpuRequirements": {"gpus": 1}},
        'unknown field "spec.gpuRequirements.gpus"',
    ),
    "an unknown strategy": ({"schedulingStrategy": "fastest"}, f'Unsupported value: "fastest": {SUPPORTED}'),
    "an empty strategy": ({"schedulingStrategy": ""}, SUPPORTED),
    "a negative count": (
        {"gpuRequirements": {"gpuCount": -1}},
        "spec.gpuRequirements.gpuCount in body should be greater than or equal to 1",
    ),
    "a count of zero": ({"gpuRequirements": {"gpuCount": 0}}, "should be greater than or equal to 1"),
    "more GPUs than any node has": ({"gpuRequirements": {"gpuCount": 1025}}, "should be less than or equal to 1024"),
    "a negative memory": (
        {"gpuMemoryRequired": -1},
        "spec.gpuMemoryRequired in body should be greater than or equal to 0",
    ),
    "a memory as text": ({"gpuMemoryRequired": "8Gi"}, "spec.gpuMemoryRequired in body must be of type integer"),
    "a fraction as count": ({"gpuRequirements": {"gpuCount": 0.5}}, "must be of type integer"),
    "sharing without a memory": (
        {"gpuRequirements": {"exclusiveAccess": False}},
        text_of("a GPUWorkload shares GPUs without a memory"),
    ),
    "a priority above the maximum": ({"priority": 1_000_000_001}, "should be less than or equal to 1000000000"),
    "an invalid duration": ({"estimatedDuration": "soon"}, "spec.estimatedDuration in body should match"),
    "more than ten retries": ({"retryPolicy": {"limit": 11}}, "should be less than or equal to 10"),
    "a type with a newline": ({"gpuRequirements": {"gpuType": "A\n100"}}, "gpuType in body should match"),
    "a template without a container": (
        {"podTemplate": {"spec": {"containers": []}}},
        "spec.podTemplate.spec.containers in body should have at least 1 items",
    ),
    "a template without a spec": ({"podTemplate": {}}, "spec.podTemplate.spec: Required value"),
    "an annotation that is a number": (
        {"podTemplate": {"metadata": {"annotations": {"a": 1}}, "spec": {"containers": [{}]}}},
        "spec.podTemplate.metadata.annotations.a in body must be of type string",
    ),
}


@pytest.mark.promise("order-1")
@pytest.mark.parametrize(("spec", "sentence"), WRONG.values(), ids=WRONG)
def test_a_wrong_workload_is_refused(workloads: Workloads, spec: Object, sentence: str) -> None:
    """The message names field and rule, and nothing is created."""
    status, answer = workloads.kube.call("POST", workloads.path + STRICT, gpu_workload("wrong", **spec))

    assert status in {400, 422}, answer
    assert sentence in answer["message"]
    assert workloads.kube.get(f"{workloads.path}/wrong") is None


def test_sharing_with_a_memory_is_accepted(workloads: Workloads) -> None:
    """Each of the two memory fields is sufficient."""
    workloads.place("one", gpuRequirements={"exclusiveAccess": False}, gpuMemoryRequired=1)
    workloads.place("other", gpuRequirements={"exclusiveAccess": False, "minGPUMemory": 1})


FIXED: dict[str, Callable[[Object], object]] = {
    "its count": lambda spec: spec["gpuRequirements"].update(gpuCount=2),
    "its memory": lambda spec: spec.update(gpuMemoryRequired=1),
    "its priority": lambda spec: spec.update(priority=1),
    "its strategy": lambda spec: spec.update(schedulingStrategy="priority"),
    "the removal of its strategy": lambda spec: spec.pop("schedulingStrategy"),
    "its image": lambda spec: spec["podTemplate"]["spec"]["containers"][0].update(image="other"),
    "its template's labels": lambda spec: spec["podTemplate"].update(metadata={"labels": {"a": "b"}}),
}


@pytest.mark.promise("order-2")
@pytest.mark.parametrize("change", FIXED.values(), ids=FIXED)
def test_fields_that_its_pod_was_made_of_cannot_be_changed(
    workloads: Workloads, change: Callable[[Object], object]
) -> None:
    """The message says what to do. Other fields of the spec can be changed."""
    made = workloads.place("fixed", schedulingStrategy="best_fit")
    changed = copy.deepcopy(made)
    change(changed["spec"])
    status, answer = workloads.kube.call("PUT", f"{workloads.path}/fixed", changed)
    assert status == 422
    assert text_of("what a GPUWorkload's pod was made of is changed") in answer["message"]

    free = {"retryPolicy": {"limit": 3}, "estimatedDuration": "1h30m"}
    assert workloads.kube.patch(f"{workloads.path}/fixed", {"spec": free})["metadata"]["generation"] == 2


def test_a_status_is_written_by_its_own_path_only(workloads: Workloads) -> None:
    """A status in a created object is dropped, and a write of the status changes no spec."""
    body: dict[str, Any] = {**gpu_workload("honest"), "status": {"phase": "Succeeded"}}
    assert "status" not in workloads.kube.create(workloads.path, body)
    reported = workloads.kube.patch(
        f"{workloads.path}/honest/status", {"status": {"phase": "Running"}, "spec": {"priority": 9}}
    )

    assert (reported["status"]["phase"], reported["spec"]["priority"]) == ("Running", 0)
    status, answer = workloads.kube.call(
        "PATCH", f"{workloads.path}/honest/status", {"status": {"phase": "Lost"}}, "application/merge-patch+json"
    )
    assert (status, '"Pending", "Scheduled", "Running", "Succeeded", "Failed"' in answer["message"]) == (422, True)


def test_a_gpu_node_keeps_its_node(kinds: ControlPlane) -> None:
    """The field nodeName cannot be changed, and each index of a device occurs once."""
    path = f"{API}/gpunodes"
    kinds.kube.create(path + STRICT, {**NODE, "spec": {"nodeName": "node1"}})
    try:
        merge = "application/merge-patch+json"
        status, answer = kinds.kube.call("PATCH", f"{path}/node1", {"spec": {"nodeName": "node2"}}, merge)
        assert (status, text_of("a GPUNode is given to another node") in answer["message"]) == (422, True)
        twice = {"status": {"devices": [{"index": 0}, {"index": 0}]}}
        status, answer = kinds.kube.call("PATCH", f"{path}/node1/status", twice, merge)
        assert (status, "Duplicate value" in answer["message"]) == (422, True)
    finally:
        kinds.kube.delete(f"{path}/node1")


def kubectl(kinds: ControlPlane, folder: Path, *words: str, stdin: object = None) -> subprocess.CompletedProcess[str]:
    """Run kubectl as an admin."""
    config = kinds.kubeconfig(folder / "admin.kubeconfig", ADMIN_TOKEN)
    return subprocess.run(
        [str(program("kubectl")), f"--kubeconfig={config}", *words],
        input=None if stdin is None else json.dumps(stdin),
        env={"HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=limit(60),
        check=False,
    )


@pytest.mark.promise("order-1")
def test_kubectl_refuses_an_unknown_field(kinds: ControlPlane, workloads: Workloads, tmp_path: Path) -> None:
    """By default kubectl asks the API server for strict validation."""
    place = ("-n", workloads.namespace.name, "-f", "-")
    done = kubectl(kinds, tmp_path, "apply", *place, stdin=gpu_workload("typo", gpuMemry=1))

    assert done.returncode == 1
    assert 'unknown field "spec.gpuMemry"' in done.stderr
    assert workloads.kube.get(f"{workloads.path}/typo") is None


def columns(text: str) -> list[list[str]]:
    """Return the words of each line of a table that kubectl printed."""
    return [line.split() for line in text.splitlines()]


def test_kubectl_prints_our_columns(kinds: ControlPlane, workloads: Workloads, tmp_path: Path) -> None:
    """Columns, short names and the category `gpu`."""
    workloads.place("train", schedulingStrategy="best_fit")
    status = {"phase": "Running", "node": "node1", "devices": ["0", "1"], "reason": "Why"}
    workloads.kube.patch(f"{workloads.path}/train/status", {"status": status})
    node = f"{API}/gpunodes"
    kinds.kube.create(node, {**NODE, "spec": {"nodeName": "node1"}})
    try:
        body = {"status": {"gpus": 4, "allocated": 2, "conditions": [CONDITION]}}
        kinds.kube.patch(f"{node}/node1/status", body)
        space = ("-n", workloads.namespace.name)
        wide = columns(kubectl(kinds, tmp_path, "get", "gpuw", "-o", "wide", *space).stdout)
        nodes = columns(kubectl(kinds, tmp_path, "get", "gpun").stdout)
        both = kubectl(kinds, tmp_path, "get", "gpu", *space, "-o", "name").stdout.split()
    finally:
        kinds.kube.delete(f"{node}/node1")

    assert wide[0] == ["NAME", "PHASE", "NODE", "DEVICES", "STRATEGY", "AGE", "REASON"]
    assert wide[1][:5] == ["train", "Running", "node1", '["0","1"]', "best_fit"]
    assert wide[1][-1] == "Why"
    assert nodes[0] == ["NAME", "GPUS", "ALLOCATED", "CORDONED", "READY", "AGE"]
    assert nodes[1][:4] == ["node1", "4", "2", "True"]
    assert both == ["gpunode.agentaflow.io/node1", "gpuworkload.agentaflow.io/train"]
