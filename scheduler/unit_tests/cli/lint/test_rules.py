"""Bad texts, and exactly what lint finds in them."""

from __future__ import annotations

import pytest

from unit_tests.cli.lint.manifests import TWO, checked, controller, pod, shown, stateful_set, template

ROLLING = "strategy:\n  rollingUpdate:\n    maxUnavailable: {}\n    maxSurge: 1\n"
PARALLEL = "parallelism: 3\ncompletions: {}\n"
NO_POD_GOES = ("error", "RolloutDeadlock")
TORCH = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: net
  annotations:
    {annotations}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: {replicas}
      template: {{spec: {{containers: [{{name: main}}]}}}}
"""

GOOD = {
    "a StatefulSet with a line for each replica": stateful_set(TWO, "replicas: 2\n"),
    "spare lines": stateful_set(TWO, "replicas: 1\n"),
    "a pod with a count": pod(template(None, annotations='agentaflow.gpu/count: "2"\n')),
    "a Deployment that ends old pods first": controller("Deployment", template(), f"replicas: 2\n{ROLLING.format(1)}"),
    "a Deployment that ends half of them": controller(
        "Deployment", template(), f"replicas: 2\n{ROLLING.format('50%')}"
    ),
    "a Deployment with a spare line": controller("Deployment", template(), "replicas: 1\n"),
    "a Deployment that is recreated": controller("Deployment", template(), "replicas: 2\nstrategy: {type: Recreate}\n"),
    "a Deployment of which neither surge nor unavailable is left": controller(
        "Deployment", template(), "replicas: 2\nstrategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 25%}}\n"
    ),
    "a Job whose pods take lines one after the other": controller("Job", template("0=node1:0\n"), "completions: 5\n"),
    "a job of Kubeflow with a map": TORCH.format(annotations='gpu-scheduling-map: "0=node1:0"', replicas=1),
    "a GPUWorkload": (
        "apiVersion: agentaflow.io/v1\nkind: GPUWorkload\nmetadata: {name: a}\n"
        "spec: {podTemplate: {spec: {containers: [{name: main}]}}}\n"
    ),
    "a pod of another scheduler": pod(template(None, None)),
    "an object of another kind": "apiVersion: v1\nkind: ConfigMap\ndata: {gpu-scheduling-map: x}\n",
    "an object without metadata, of another kind": "apiVersion: kustomize.config.k8s.io/v1\nkind: Kustomization\n",
    "values of Helm": "gpu: {count: 2}\n",
    "a list of numbers": "- 1\n- 2\n",
    "a foreign pod that Kubernetes would refuse": "apiVersion: v1\nkind: Pod\nmetadata: {name: 7}\n",
    "nothing": "",
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_what_is_right_has_no_finding(text: str) -> None:
    """So that whoever reads a finding may trust it."""
    assert checked(text).findings == ()


BAD = {
    "a line of the map that is no line": (
        pod(template("# nodes\n0=node1:0\n1=node2:x\n")),
        [("error", "MapInvalid", "1=node2:x")],
    ),
    "an invalid map in quotes": (
        pod(template(None, annotations='gpu-scheduling-map: "0=node1"\n')),
        [("error", "MapInvalid", 'gpu-scheduling-map: "0=node1"')],
    ),
    "an annotation with a value that is not allowed": (
        pod(template(annotations="agentaflow.gpu/sharing: all\n")),
        [("error", "RequestInvalid", "agentaflow.gpu/sharing: all")],
    ),
    "a strategy that does not exist": (
        pod(template(None, annotations='agentaflow.gpu/count: "1"\nagentaflow.gpu/scheduling-strategy: fastest\n')),
        [("error", "RequestInvalid", "agentaflow.gpu/scheduling-strategy: fastest")],
    ),
    "a count that is a number of YAML": (
        pod(template(None, annotations="agentaflow.gpu/count: 1\n")),
        [("error", "RequestInvalid", "name: train-0")],
    ),
    "an index that is no number": (
        controller("StatefulSet", template(annotations="agentaflow.gpu/index: first\n")),
        [("error", "IndexUnknown", "agentaflow.gpu/index: first")],
    ),
    "a container that sets the variable itself": (
        pod(template()) + '    env:\n    - {name: A, value: b}\n    - {name: CUDA_VISIBLE_DEVICES, value: "3"}\n',
        [("error", "EnvConflict", '- {name: CUDA_VISIBLE_DEVICES, value: "3"}')],
    ),
    "a limit that differs from the line": (
        pod(template()) + "    resources: {limits: {nvidia.com/gpu: 3}}\n",
        [("error", "RequestInvalid", "- name: main")],
    ),
    "a spread that is not supported": (
        pod(
            template(
                spec="topologySpreadConstraints:\n- {maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}\n"
            )
        ),
        [("error", "Unsupported", "topologySpreadConstraints:")],
    ),
    "our schedulerName and nothing else": (
        pod(template(None)),
        [("error", "NothingRequested", "schedulerName: gpu-scheduler")],
    ),
    "a map and no schedulerName": (
        controller("Deployment", template(scheduler=None), "replicas: 1\n"),
        [("error", "OtherScheduler", "spec:")],
    ),
    "a count and another schedulerName": (
        pod(template(None, "volcano", annotations='agentaflow.gpu/count: "1"\n')),
        [("error", "OtherScheduler", "schedulerName: volcano")],
    ),
    "a map with a fault and no schedulerName": (
        pod(template("0=node1:x\n", None)),
        [("error", "MapInvalid", "0=node1:x"), ("error", "OtherScheduler", "spec:")],
    ),
    "a misspelt annotation": (
        pod(template(None, annotations='agentaflow.gpu/count: "1"\nagentaflow.gpu/memroy: "8192"\n')),
        [("warning", "UnknownAnnotation", 'agentaflow.gpu/memroy: "8192"')],
    ),
    "a misspelt map": (
        pod(template(None, annotations="gpu-schedulng-map: 0=node1:0\n")),
        [
            ("error", "NothingRequested", "schedulerName: gpu-scheduler"),
            ("warning", "UnknownAnnotation", "gpu-schedulng-map: 0=node1:0"),
        ],
    ),
    "a map on the Deployment in place of its template": (
        controller(
            "Deployment", template(None, None), "replicas: 1\n", meta='annotations:\n  gpu-scheduling-map: "0=a:0"\n'
        ),
        [("error", "MisplacedAnnotation", 'gpu-scheduling-map: "0=a:0"')],
    ),
    "replicas of a StatefulSet without a line": (
        stateful_set(TWO, "replicas: 4\n"),
        [("error", "IndexNotInMap", "replicas: 4")],
    ),
    "a pod without a line": (pod(template(), name="train-7"), [("error", "IndexNotInMap", "gpu-scheduling-map: |")]),
    "completions of an Indexed Job that start later, without a line": (
        controller("Job", template(), "completionMode: Indexed\ncompletions: 3\nparallelism: 1\n"),
        [("error", "IndexNotInMap", "completions: 3")],
    ),
    "more replicas of a Deployment than lines": (
        controller("Deployment", template(), "replicas: 3\nstrategy: {type: Recreate}\n"),
        [("error", "NoFreeIndex", "replicas: 3")],
    ),
    "more pods of a Job at once than lines": (
        controller("Job", template(), PARALLEL.format(9)),
        [("warning", "NoFreeIndex", "completions: 9")],
    ),
    "more replicas of a job of Kubeflow than lines": (
        TORCH.format(annotations='gpu-scheduling-map: "0=node1:0"', replicas=2),
        [("error", "NoFreeIndex", 'gpu-scheduling-map: "0=node1:0"')],
    ),
    "a job of Kubeflow with a map that is none": (
        TORCH.format(annotations='gpu-scheduling-map: "0=node1"', replicas=1),
        [("error", "MapInvalid", 'gpu-scheduling-map: "0=node1"')],
    ),
    "an index on a job of Kubeflow": (
        TORCH.format(annotations='{gpu-scheduling-map: "0=node1:0", agentaflow.gpu/index: "0"}', replicas=1),
        [("warning", "MisplacedAnnotation", "annotations:")],
    ),
    "a roll-out of a Deployment with Kubernetes' default": (
        controller("Deployment", template(), "replicas: 2\n"),
        [(*NO_POD_GOES, "spec:")],
    ),
    "a roll-out with maxUnavailable 0": (
        controller("Deployment", template(), f"replicas: 2\n{ROLLING.format(0)}"),
        [(*NO_POD_GOES, "maxUnavailable: 0")],
    ),
    "a roll-out whose percentage rounds to 0": (
        controller("Deployment", template(), f"replicas: 2\n{ROLLING.format('49%')}"),
        [(*NO_POD_GOES, "maxUnavailable: 49%")],
    ),
    "a roll-out of a Deployment with an index, even with spare lines": (
        controller("Deployment", template(annotations='agentaflow.gpu/index: "0"\n'), "replicas: 1\n"),
        [(*NO_POD_GOES, "spec:")],
    ),
    "one index for all replicas": (
        controller("StatefulSet", template(annotations='agentaflow.gpu/index: "1"\n'), "replicas: 3\n"),
        [("error", "IndexHeld", 'agentaflow.gpu/index: "1"')],
    ),
    "a template without replicas": (
        stateful_set("0=node1:x\n", "replicas: 0\n"),
        [("error", "MapInvalid", "0=node1:x")],
    ),
}


@pytest.mark.promise("lint-1")
@pytest.mark.parametrize(("text", "expected"), BAD.values(), ids=BAD)
def test_a_fault_is_found_where_it_stands(text: str, expected: list[tuple[str, str, str]]) -> None:
    """Each fault once, and nothing else."""
    assert shown(checked(text), text) == expected


DEVICE = "agentaflow.gpu/sharing: any\n"
BUSY = stateful_set("0=node1:0,1\n", name="first")
TOGETHER = {
    "two StatefulSets on one GPU": (
        (BUSY, stateful_set("0=node2:0\n1=node1:1\n", "replicas: 2\n")),
        [("error", "GpuHeld", "1=node1:1")],
    ),
    "a spare line on a GPU of another": ((BUSY, stateful_set("0=node2:0\n1=node1:1\n")), []),
    "a line that a Deployment has to spare": (
        (BUSY, controller("Deployment", template("0=node2:0\n1=node1:1\n"))),
        [("warning", "GpuHeld", "1=node1:1")],
    ),
    "a Job beside a StatefulSet": (
        (BUSY, controller("Job", template("0=node1:1\n"))),
        [("warning", "GpuHeld", "0=node1:1")],
    ),
    "two that share": (
        (
            controller("StatefulSet", template("0=node1:0\n", annotations=DEVICE), name="first"),
            controller("StatefulSet", template("0=node1:0\n", annotations=DEVICE)),
        ),
        [],
    ),
    "two of which one shares": (
        (BUSY, controller("StatefulSet", template("0=node1:0\n", annotations=DEVICE))),
        [("error", "GpuHeld", "0=node1:0")],
    ),
    "an observer": (
        (BUSY, controller("StatefulSet", template("0=node1:0\n", annotations='agentaflow.gpu/observer: "true"\n'))),
        [],
    ),
    "a pod whose devices a plugin may choose": (
        (BUSY, pod(template("0=node1:0\n")) + "    resources: {limits: {nvidia.com/gpu: 1}}\n"),
        [],
    ),
    "lines of one map": ((stateful_set("0=node1:0\n1=node1:0\n", "replicas: 2\n"),), []),
    "the same GPU number of another node": ((BUSY, stateful_set("0=node2:0\n")), []),
    "the same object in two files": ((BUSY, BUSY.replace("node1:0,1", "node1:1")), []),
    "two pods of one map with the same number": (
        (pod(template(), name="a-0"), pod(template(), name="b-0")),
        [("error", "IndexHeld", "name: b-0")],
    ),
    "pods of one map with different numbers": ((pod(template(), name="a-0"), pod(template(), name="b-1")), []),
}


@pytest.mark.promise("lint-2")
@pytest.mark.parametrize(("texts", "expected"), TOGETHER.values(), ids=TOGETHER)
def test_pods_of_all_files_are_compared(texts: tuple[str, ...], expected: list[tuple[str, str, str]]) -> None:
    """A device has one workload at a time, and an index one pod of its workload."""
    assert shown(checked(*texts), *texts) == expected


def test_a_conflict_names_the_other_line() -> None:
    """With its file."""
    (found,) = checked(BUSY, stateful_set("0=node1:1\n")).findings

    assert "cannot give GPU 1 of node1 to two workloads: StatefulSet/first (a.yaml:10) names it too" in found.message
    assert (found.source, found.namespace, found.name) == ("b.yaml", "ml", "train")


def test_a_fault_of_many_replicas_is_one_finding() -> None:
    """With their number."""
    (found,) = checked(stateful_set(TWO, "replicas: 200\n")).findings

    assert found.message.startswith("198 of 200 pods have no line: cannot find index 2 in the map")


UNREADABLE = {
    "no YAML": ("a: [\n", 2, "cannot read a.yaml: line 2: "),
    "a template of Helm": (
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {{ .Values.name }}\n",
        4,
        "render it first (example: helm template . | gpu-scheduler lint -)",
    ),
    "a template in quotes": (
        controller("Deployment", template(), 'replicas: "{{ .Values.replicas }}"\n'),
        4,
        'its replicas is "{{ .Values.replicas }}"; if it is a template of Helm, render it first',
    ),
    "replicas that are no number": (
        controller("Deployment", template(), "replicas: many\n"),
        4,
        'cannot read document 1 (Deployment train) of a.yaml: its replicas is "many"',
    ),
    "more pods than any map has lines": (
        stateful_set(TWO, "replicas: 1000000000\n"),
        4,
        "it makes more than 10000 pods; write fewer replicas",
    ),
}


@pytest.mark.promise("lint-3")
@pytest.mark.parametrize(("text", "line", "sentence"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_text_that_cannot_be_read_is_one_finding(text: str, line: int, sentence: str) -> None:
    """And the other files are checked all the same."""
    found = checked(text, pod(template(None)))

    first, *others = found.findings
    assert (first.word, first.line, first.source) == ("Unreadable", line, "a.yaml")
    assert sentence in first.message
    assert "\n" not in first.message
    assert found.unread
    assert [each.word for each in others] == ["NothingRequested"]
