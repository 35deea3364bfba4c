"""What holds for every text: lint ends, names lines of the file, and says what admission says."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from gpu_scheduler.cli.lint.check import check
from gpu_scheduler.cli.lint.formats import LintOutput
from gpu_scheduler.cli.lint.report import report
from gpu_scheduler.core.reasons import REFUSED_AT_ADMISSION
from gpu_scheduler.webhook import admission
from gpu_scheduler.webhook.metrics import WebhookMetrics
from tests import objects
from unit_tests.cli.lint.manifests import checked
from unit_tests.webhook.reviews import ODD

KINDS = {
    "Pod": "v1",
    "StatefulSet": "apps/v1",
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
    "GPUWorkload": "agentaflow.io/v1",
    "PyTorchJob": "kubeflow.org/v1",
    "MPIJob": "kubeflow.org/v1",
}
FIELDS = st.sampled_from(
    [
        *("metadata", "name", "generateName", "namespace", "annotations", "labels", "spec", "template", "podTemplate"),
        *("replicas", "completions", "completionMode", "parallelism", "jobTemplate", "strategy", "updateStrategy"),
        *("rollingUpdate", "maxUnavailable", "maxSurge", "ordinals", "start", "volumeClaimTemplates", "volumes"),
        *("pytorchReplicaSpecs", "mpiReplicaSpecs", "Worker", "Launcher", "schedulerName", "containers", "env"),
        *("initContainers", "resources", "limits", "requests", "nvidia.com/gpu", "tolerations", "gpuRequirements"),
        *("gpu-scheduling-map", "agentaflow.gpu/count", "agentaflow.gpu/index", "agentaflow.gpu/memroy", "type"),
    ]
)
VALUES = st.one_of(ODD, st.sampled_from(["0=node1:0\n1=node1:x", "gpu-scheduler", "Indexed", "25%", 10**30, -1, 1.5]))
TREES = st.recursive(
    VALUES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(FIELDS, inner, max_size=6)),
    max_leaves=15,
)
BODIES = st.dictionaries(FIELDS, TREES, min_size=3, max_size=8)


def every_format(*texts: str) -> None:
    found = check([(f"{number}.yaml", text) for number, text in enumerate(texts)], "ml")
    for output in LintOutput:
        report(found.findings, output, headers=True)
    commands = report(found.findings, LintOutput.GITHUB, headers=True)
    assert len(commands.splitlines()) == len(found.findings)
    assert all(line.startswith(("::error file=", "::warning file=")) for line in commands.splitlines())
    for each in found.findings:
        assert each.line is None or 1 <= each.line <= len(texts[int(each.source[:-5])].splitlines()) + 1


@pytest.mark.promise("lint-3")
@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_no_text_ends_in_a_traceback(text: str) -> None:
    """Whatever it is."""
    every_format(f"gpu: 1\n{text}", text)


@pytest.mark.promise("lint-3")
@given(st.sampled_from(list(KINDS)), BODIES, st.booleans())
def test_no_object_ends_in_a_traceback(kind: str, body: dict[str, Any], block: bool) -> None:  # noqa: FBT001 - drawn
    """Whatever its fields are."""
    whole = {"metadata": {"name": "gpu"}, **body, "kind": kind, "apiVersion": KINDS[kind]}
    every_format(yaml.safe_dump(whole, allow_unicode=True) if block else json.dumps(whole))


@pytest.mark.parametrize(
    "text",
    ["a: &a [*a]\ngpu: 1\n", "? [1]\n: gpu\n", "{gpu: {null: 1}}", "kind: List\nitems: {gpu: 1}\n", "gpu: !!set {a}\n"],
)
def test_odd_yaml_ends_in_no_traceback(text: str) -> None:
    """Recursion, keys that are no texts, tags."""
    every_format(text, f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {{{text.strip(chr(10))!r}: 1}}\n")


MAPS = st.one_of(
    st.none(),
    st.sampled_from(
        ["0=node1:0\n", "0=node1:0,1\n1=node2:2\n", "", "0=node1:x\n", "0=node1:0\n0=node1:1\n", "7=node1:\n", "# only"]
    ),
)
ANNOTATIONS = st.dictionaries(
    st.sampled_from(
        [
            *("index", "count", "memory", "exclusive", "type", "scheduling-strategy", "priority", "sharing"),
            *("observer", "keep-env", "memroy"),
        ]
    ).map("agentaflow.gpu/{}".format),
    st.sampled_from(["0", "1", "9", "-1", "true", "false", "any", "best_fit", "", "x" * 70]),
    max_size=4,
)
ENV = st.one_of(
    st.none(),
    st.sampled_from(["0", "0,1", "-1", "+0", ""]).map(lambda value: [{"name": "CUDA_VISIBLE_DEVICES", "value": value}]),
)


@pytest.mark.promise("lint-4")
@given(
    st.sampled_from(["train-0", "train-1", "train", "train-9"]),
    MAPS,
    ENV,
    ANNOTATIONS,
    st.sampled_from([None, {"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 2}]),
    st.sampled_from([{}, {"resourceClaims": [{"name": "a"}]}]),
)
def test_lint_refuses_what_admission_refuses(  # noqa: PLR0913, PLR0917 - drawn
    name: str, text: str | None, env: Any, annotations: dict[str, str], limits: Any, spec: Any
) -> None:
    """And nothing else: only a pod that asks for nothing is admitted although it has an error."""
    body = objects.pod(name, text, env, annotations=annotations, limits=limits, **spec)
    webhook = admission.Webhook("gpu-scheduler", WebhookMetrics(CollectorRegistry()))
    asked = bytearray(json.dumps(objects.review(body)).encode())
    outcome, _ = admission._decoded(admission._Path(webhook._mutate, admission._deny), asked, 0)

    found = checked(json.dumps({"apiVersion": "v1", "kind": "Pod", **body})).findings

    errors = {each.word for each in found if each.severity == "error"} - {"NothingRequested"}
    assert errors == ({outcome} if outcome in REFUSED_AT_ADMISSION else set())
