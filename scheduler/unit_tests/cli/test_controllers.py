"""Objects become the pods that their controllers would make, as admission leaves them."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_scheduler.cli.manifests.admission import admitted
from gpu_scheduler.cli.manifests.controllers import MOST_PODS, pods_of
from gpu_scheduler.cli.manifests.documents import Manifest, read_manifests
from gpu_scheduler.cli.options import RefusedInputError
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.webhook.review import Deny
from tests.messages import says

TEMPLATE = """
  template:
    metadata:
      annotations: {gpu-scheduling-map: "0=node1:0,1\\n1=node2:2\\n2=node3:0\\n"}
    spec:
      schedulerName: gpu-scheduler
      containers: [{name: main, image: busybox}]
"""


def manifest(text: str) -> Manifest:
    (found,) = read_manifests(text, "work.yaml")
    return found


def of(kind: str, spec: str, group: str = "apps/v1", name: str = "train") -> Manifest:
    return manifest(f"apiVersion: {group}\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n  {spec}{TEMPLATE}")


def read(expected: Any) -> Pod:
    pod = admitted(expected, "uid-1", "2026-01-01T00:00:00Z", "gpu-scheduler")
    assert isinstance(pod, Pod)
    return pod


def index_of(pod: Pod) -> int | None:
    assert pod.request.line is not None
    return pod.request.line.index


EXPANDED = {
    "a StatefulSet numbers its pods": (of("StatefulSet", "replicas: 2"), [("train-0", 0), ("train-1", 1)]),
    "a StatefulSet may start at another ordinal": (
        of("StatefulSet", "replicas: 1\n  ordinals: {start: 2}"),
        [("train-2", 2)],
    ),
    "without replicas there is one": (of("StatefulSet", "serviceName: train"), [("train-0", 0)]),
    "a Deployment's pods take any line": (of("Deployment", "replicas: 2"), [("train-?0", None), ("train-?1", None)]),
    "so do a ReplicaSet's": (of("ReplicaSet", "replicas: 1"), [("train-?0", None)]),
    "an Indexed Job numbers its pods": (
        of("Job", "completionMode: Indexed\n  completions: 3\n  parallelism: 2", "batch/v1"),
        [("train-0", 0), ("train-1", 1)],
    ),
    "a Job runs no more pods at once than it has completions": (
        of("Job", "completions: 1\n  parallelism: 5", "batch/v1"),
        [("train-?0", None)],
    ),
    "a CronJob is one run of its Job": (
        manifest(
            "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: night}\nspec:\n  jobTemplate:\n    spec:\n"
            + "".join(f"    {line}\n" for line in TEMPLATE.strip("\n").splitlines())
        ),
        [("night-?0", None)],
    ),
    "a PyTorchJob hands its map to its replicas": (
        manifest(
            "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\n"
            'metadata: {name: net, annotations: {gpu-scheduling-map: "0=node1:0\\n1=node1:1\\n"}}\n'
            "spec: {pytorchReplicaSpecs: {Master: {template: {spec: {containers: [{name: main}]}}},"
            " Worker: {replicas: 1, template: {spec: {containers: [{name: main}]}}}}}\n"
        ),
        [("net-master-0", None), ("net-worker-0", None)],
    ),
}


@pytest.mark.promise("plan-4")
@pytest.mark.parametrize(("asked", "expected"), EXPANDED.values(), ids=EXPANDED)
def test_a_controller_makes_its_pods(asked: Manifest, expected: list[tuple[str, int | None]]) -> None:
    """With the index that the webhook and the scheduler read from them."""
    pods = pods_of(asked, "ml")

    assert pods is not None
    assert [(each.shown, index_of(read(each))) for each in pods] == expected
    assert {read(each).ref.namespace for each in pods} == {"ml"}


def test_a_deployment_s_pods_are_one_workload_of_the_deployment() -> None:
    """As those of a real ReplicaSet, whose name ends in the hash of the template."""
    pods = pods_of(of("Deployment", "replicas: 2"), "ml")

    assert pods is not None
    lines = [read(each).request.line for each in pods]
    assert {str(line.workload) for line in lines if line is not None} == {"Deployment/train"}


JOB_OF_59 = "long-" + "job" * 18
PREFIXES = {
    "a Job": (of("Job", "completions: 1", "batch/v1"), "train-"),
    "an Indexed Job": (of("Job", "completionMode: Indexed\n  completions: 1", "batch/v1"), "train-0-"),
    "one whose name is long": (
        of("Job", "completionMode: Indexed\n  completions: 1", "batch/v1", JOB_OF_59),
        f"{JOB_OF_59[:55]}-0-",
    ),
    "a ReplicaSet": (of("ReplicaSet", "replicas: 1"), "train-"),
}


@pytest.mark.promise("plan-4")
@pytest.mark.parametrize(("asked", "prefix"), PREFIXES.values(), ids=PREFIXES)
def test_generated_names_have_the_prefix_of_their_controller(asked: Manifest, prefix: str) -> None:
    """As kube-controller-manager writes it: by it the pods of an Indexed Job are distinguished."""
    (expected,) = pods_of(asked, "ml") or ()

    assert read(expected).generate_name == prefix


def test_a_gpu_workload_makes_the_controller_s_pod() -> None:
    """By the controller's own function."""
    found = pods_of(
        manifest(
            "apiVersion: agentaflow.io/v1\nkind: GPUWorkload\nmetadata: {name: net}\n"
            "spec: {gpuRequirements: {gpuCount: 2}, podTemplate: {spec: {containers: [{name: main}]}}}\n"
        ),
        "ml",
    )

    assert found is not None
    (pod,) = map(read, found)
    assert (pod.request.count.count, pod.owner and pod.owner.kind) == (2, "GPUWorkload")


def test_a_claim_template_becomes_a_claim_and_a_volume_of_each_pod() -> None:
    """With the name that the StatefulSet controller gives it."""
    found = pods_of(
        of("StatefulSet", "volumeClaimTemplates: [{metadata: {name: data}, spec: {}}]\n  replicas: 1"), "ml"
    )

    assert found is not None
    (pod,) = found
    assert read(pod).claims == ("data-train-0",)
    assert [each["metadata"] for each in pod.claims] == [{"name": "data-train-0", "namespace": "ml"}]


def test_replicas_may_be_asked_for() -> None:
    """As for `plan --scale`."""
    assert len(pods_of(of("StatefulSet", "replicas: 2"), "ml", replicas=3) or ()) == 3


def test_other_kinds_make_no_pods() -> None:
    """A Service, for example."""
    assert pods_of(manifest("apiVersion: v1\nkind: Service\nmetadata: {name: a}\n"), "ml") is None


def test_admission_gives_a_pod_its_variables_and_defaults() -> None:
    """The devices of its line, a request for each limit, and tolerations of a node that fails."""
    (expected,) = (
        pods_of(
            manifest(
                "apiVersion: v1\nkind: Pod\nmetadata: {name: train-1, annotations: {gpu-scheduling-map: '1=node2:2'}}\n"
                "spec: {schedulerName: gpu-scheduler, containers: [{name: main, resources: {limits: {cpu: 2}}}]}\n"
            ),
            "ml",
        )
        or ()
    )

    pod = read(expected)

    assert pod.environment.own_devices == ("2",)
    assert pod.resource_request.requests["cpu"] == 2000
    assert len(pod.constraints.tolerations) == 2


def test_a_pod_that_the_webhook_refuses_is_refused() -> None:
    """With the same words."""
    broken = of("StatefulSet", "replicas: 4")

    *_, last = pods_of(broken, "ml") or ()

    found = admitted(last, "uid", "", "gpu-scheduler")
    assert isinstance(found, Deny)
    says(found.message, "IndexNotInMap", "index 3")


def test_the_pods_of_a_job_that_is_refused_are_refused() -> None:
    """With the webhook's words about the job, also where their template names no scheduler."""
    job = manifest(
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\n"
        "metadata: {name: net, annotations: {gpu-scheduling-map: '0=node1:x'}}\n"
        "spec: {pytorchReplicaSpecs: {Worker: {template: {spec: {containers: [{name: main}]}}}}}\n"
    )

    (worker,) = pods_of(job, "ml") or ()

    found = admitted(worker, "uid", "", "gpu-scheduler")
    assert isinstance(found, Deny)
    says(found.message, "MapInvalid")


FAULTS = {
    "replicas that are a text": (of("StatefulSet", "replicas: many"), 'its replicas is "many"'),
    "fewer than no replicas": (of("Deployment", "replicas: -1"), 'its replicas is "-1"'),
    "a template that is a text": (
        manifest("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {template: b}\n"),
        'its template is "b"; it must be an object',
    ),
    "more pods than are planned at once": (
        of("Deployment", f"replicas: {MOST_PODS + 1}"),
        "it makes more than 10000 pods",
    ),
    "a label that is a number": (
        manifest(
            "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: a}\n"
            "spec: {template: {metadata: {labels: {a: 1}}}}\n"
        ),
        'its label "a" is "1"; put it in quotes',
    ),
    "a GPUWorkload without a template": (
        manifest("apiVersion: agentaflow.io/v1\nkind: GPUWorkload\nmetadata: {name: a}\nspec: {}\n"),
        "podTemplate",
    ),
    "a PyTorchJob of another shape": (
        manifest("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec: 3\n"),
        "Expected `object | null`",
    ),
}


@pytest.mark.parametrize(("asked", "sentence"), FAULTS.values(), ids=FAULTS)
def test_a_fault_names_the_document(asked: Manifest, sentence: str) -> None:
    """In one sentence."""
    with pytest.raises(RefusedInputError) as raised:
        pods_of(asked, "ml")

    assert sentence in str(raised.value)
    assert str(raised.value).startswith(f"cannot read document 1 ({asked.kind} ")
