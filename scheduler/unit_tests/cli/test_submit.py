import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_scheduler.cli.options import FailedError, Options, Output, RefusedInputError
from gpu_scheduler.cli.verbs import submit as submit_module
from gpu_scheduler.cli.verbs.strategy import strategy
from gpu_scheduler.cli.verbs.submit import submit
from gpu_scheduler.core.reasons import REFUSED_AT_ADMISSION
from unit_tests.cli.scripted_cluster import MISSING, SETTINGS, WORKLOADS, Capsys, cluster, deployment, settings
from unit_tests.kube.server import FakeServer, Reply

Facts = dict[str, Any]

MINE = WORKLOADS.replace("v1/", "v1/namespaces/ml/")
TRAIN = "apiVersion: agentaflow.io/v1\nkind: GPUWorkload\nmetadata: {name: train}\nspec: {priority: 1}\n"
SERVE = TRAIN.replace("train", "serve")


def workload(name: str = "train", generation: int = 1, **status: object) -> Facts:
    """Return a GPUWorkload as the API server sends it."""
    meta = {"namespace": "ml", "name": name, "uid": f"uid-{name}", "generation": generation}
    return {"metadata": meta, "spec": {}, "status": status}


def written(tmp_path: Path, text: str) -> str:
    """Write the text to a file, and return its path."""
    file = tmp_path / "work.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def accept(server: FakeServer, *names: str, status: int = 201) -> None:
    """Let the API server accept every patch of these workloads."""
    for name in names:
        server.on("GET", f"{MINE}/{name}", MISSING)
        server.on("PATCH", f"{MINE}/{name}", Reply(status, workload(name)))


async def test_the_strategy_is_one_key_under_a_manager_of_its_own(tmp_path: Path, capsys: Capsys) -> None:
    """So the play, which applies the rest of the ConfigMap, does not change this key."""
    async with cluster(tmp_path, settings=settings("best_fit")) as (server, options):
        server.on("PATCH", SETTINGS, Reply(200))
        assert await strategy(options, "best_fit") == 0

    sent = server.asked("PATCH", SETTINGS)[0]
    assert sent.query == {"fieldManager": "gpu-scheduler-strategy", "force": "true"}
    assert sent.headers["Content-Type"] == "application/apply-patch+yaml"
    assert sent.body == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "gpu-scheduler-settings", "namespace": "gpu-scheduler-system"},
        "data": {"strategy": "best_fit"},
    }
    assert capsys.readouterr().out.splitlines() == ["STRATEGY   FROM", "best_fit   ConfigMap gpu-scheduler-settings"]


async def test_without_a_name_the_strategy_is_only_shown(tmp_path: Path, capsys: Capsys) -> None:
    """The verb shows the strategy that applies, even if the ConfigMap has a wrong one."""
    async with cluster(tmp_path, settings=settings("fastest")) as (server, options):
        assert await strategy(replace(options, output=Output.YAML)) == 0

    assert "  name: least_utilized\n  source: default\n" in capsys.readouterr().out
    assert server.asked("PATCH") == []


DENIED = Reply(403, {"message": 'User "jane" cannot get it'})
UNREADABLE: dict[str, tuple[Reply, Reply, str]] = {
    "the ConfigMap may not be read": (
        DENIED,
        deployment(SCHEDULING_STRATEGY="priority"),
        "ConfigMap gpu-scheduler-settings .*auth can-i get configmaps/gpu-scheduler-settings -n gpu-scheduler-system",
    ),
    "the ConfigMap has none, and the Deployment may not be read": (
        MISSING,
        DENIED,
        "Deployment gpu-scheduler .*kubectl auth can-i get deployments/gpu-scheduler -n gpu-scheduler-system",
    ),
    "neither may be read": (DENIED, DENIED, "ConfigMap gpu-scheduler-settings "),
}


@pytest.mark.parametrize(("config", "owner", "what"), UNREADABLE.values(), ids=UNREADABLE)
async def test_a_strategy_that_may_not_be_read_is_no_default(
    config: Reply, owner: Reply, what: str, tmp_path: Path
) -> None:
    """The error names the object and the right. Exit code 1."""
    async with cluster(tmp_path, settings=config, deployment=owner) as (_, options):
        with pytest.raises(FailedError, match=f"^cannot read {what}") as raised:
            await strategy(options)

    assert 'of namespace gpu-scheduler-system: HTTP 403: User "jane" cannot get it; ask for the right' in str(
        raised.value
    )
    assert raised.value.code == 1


async def test_a_strategy_that_may_be_set_but_not_read_is_set(tmp_path: Path, capsys: Capsys) -> None:
    """The API server has accepted it. A Deployment that may not be read does not matter to a ConfigMap that may."""
    async with cluster(tmp_path, settings=DENIED, deployment=DENIED) as (server, options):
        server.on("PATCH", SETTINGS, Reply(200))
        assert await strategy(options, "best_fit") == 0
    async with cluster(tmp_path, settings=settings("priority"), deployment=DENIED) as (_, options):
        assert await strategy(options) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["STRATEGY", "best_fit", "STRATEGY", "priority"]


@pytest.mark.promise("cli-4")
async def test_an_unknown_strategy_is_refused_with_the_list() -> None:
    """Before any request is sent."""
    known = "least_utilized, best_fit, priority, round_robin"
    with pytest.raises(RefusedInputError, match=f'^cannot use strategy "fastest": it must be one of {known} .example'):
        await strategy(Options(), "fastest")


async def test_a_strategy_that_cannot_be_set_is_reported(tmp_path: Path) -> None:
    """With the API server's message."""
    async with cluster(tmp_path) as (server, options):
        server.on("PATCH", SETTINGS, Reply(404, {"message": 'namespaces "gpu-scheduler-system" not found'}))
        with pytest.raises(FailedError, match=r"^cannot set the strategy .*HTTP 404: namespaces .*--system-namespace"):
            await strategy(options, "priority")


@pytest.mark.promise("cli-3")
async def test_a_document_is_applied_with_every_field_checked(tmp_path: Path, capsys: Capsys) -> None:
    """With our field manager, in the context's namespace."""
    async with cluster(tmp_path) as (server, options):
        accept(server, "train")
        assert await submit(options, written(tmp_path, TRAIN)) == 0

    (sent,) = server.asked("PATCH")
    assert sent.query == {"fieldManager": "gpu-scheduler-cli", "fieldValidation": "Strict"}
    assert sent.body["metadata"] == {"name": "train", "namespace": "ml"}
    assert sent.body["spec"] == {"priority": 1}
    assert capsys.readouterr().out == "gpuworkload.agentaflow.io/train created\n"


@pytest.mark.promise("cli-3")
async def test_several_documents_are_tried_before_one_is_sent(tmp_path: Path, capsys: Capsys) -> None:
    """So a wrong document leaves no other one created."""
    async with cluster(tmp_path) as (server, options):
        accept(server, "train", "serve", status=200)
        await submit(replace(options, output=Output.JSON), written(tmp_path, f"{TRAIN}---\n{SERVE}"))

    assert [each.query.get("dryRun") for each in server.asked("PATCH")] == ["All", "All", None, None]
    found = json.loads(capsys.readouterr().out)["items"]
    assert [(each["kind"], each["name"], each["result"]) for each in found] == [
        ("Submission", "train", "configured"),
        ("Submission", "serve", "configured"),
    ]


@pytest.mark.promise("cli-3")
async def test_what_is_there_already_is_unchanged(tmp_path: Path, capsys: Capsys) -> None:
    """Its version is the same before and after."""
    same = workload()
    same["metadata"]["resourceVersion"] = "7"
    async with cluster(tmp_path) as (server, options):
        for verb in ("GET", "PATCH"):
            server.on(verb, f"{MINE}/train", Reply(200, same))
        await submit(options, written(tmp_path, TRAIN))

    assert capsys.readouterr().out == "gpuworkload.agentaflow.io/train unchanged\n"


async def test_standard_input_is_a_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys) -> None:
    """So submit can read from a pipe."""
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(TRAIN.encode())))
    async with cluster(tmp_path) as (server, options):
        accept(server, "train")
        await submit(replace(options, output=Output.WIDE), "-")

    assert capsys.readouterr().out.splitlines()[1].split() == ["ml", "train", "created"]


REFUSED = {
    "a field that is unknown": (
        400,
        'unknown field "spec.gpus"',
        RefusedInputError,
        "correct it (example: gpu-scheduler generate-template)",
    ),
    "a field that server-side apply does not know": (
        500,
        "failed to create typed patch object (ml/serve; GPUWorkload): .spec.gpus: field not declared in schema",
        RefusedInputError,
        "correct it",
    ),
    "a value that is wrong": (422, "spec.priority: Invalid value", RefusedInputError, "correct it"),
    "a missing namespace": (404, 'namespaces "ml" not found', FailedError, "kubectl create namespace ml"),
    "a cluster that does not know the kind": (404, "the server could not find", FailedError, "--tags crds"),
    "a field of another manager": (409, "conflict with kubectl", FailedError, "leave those fields"),
    "a missing right": (403, "forbidden", FailedError, "kubectl auth can-i patch gpuworkloads -n ml"),
}


@pytest.mark.parametrize(("status", "message", "kind", "remedy"), REFUSED.values(), ids=REFUSED)
async def test_a_refused_document_is_named_with_its_remedy(
    status: int, message: str, kind: type[FailedError], remedy: str, tmp_path: Path
) -> None:
    """The sentence has document, file, the API server's message and a remedy. Nothing else was sent."""
    file = written(tmp_path, f"{TRAIN}---\n{SERVE}")
    async with cluster(tmp_path) as (server, options):
        accept(server, "train")
        server.on("PATCH", f"{MINE}/serve", Reply(status, {"message": message}))
        with pytest.raises(FailedError) as raised:
            await submit(options, file)

    assert type(raised.value) is kind
    shown = f"HTTP {status}: {message}" if status != 500 else "GPUWorkload has no field .spec.gpus; correct its name"
    assert str(raised.value).startswith(f"cannot submit document 2 (GPUWorkload serve) of {file}: {shown}")
    assert remedy in str(raised.value)
    assert {each.query.get("dryRun") for each in server.asked("PATCH")} == {"All"}


FILES = {
    "no file": ("/nowhere/work.yaml", None, "No such file or directory"),
    "not UTF-8": (None, b"\xff\xfe", "it is not UTF-8"),
}


@pytest.mark.parametrize(("path", "content", "why"), FILES.values(), ids=FILES)
async def test_a_file_that_cannot_be_read(path: str | None, content: bytes | None, why: str, tmp_path: Path) -> None:
    """Before any request is sent."""
    if content is not None:
        (tmp_path / "work.yaml").write_bytes(content)
    with pytest.raises(RefusedInputError, match=f"^cannot read .*work.yaml: {why}; name a file"):
        await submit(Options(), path or str(tmp_path / "work.yaml"))


async def test_two_namespaces_for_one_document_are_refused(tmp_path: Path) -> None:
    """As kubectl does."""
    text = TRAIN.replace("{name: train}", "{name: train, namespace: ml}")
    async with cluster(tmp_path) as (_, options):
        with pytest.raises(RefusedInputError, match=r"its namespace is ml, and -n says other; leave one"):
            await submit(replace(options, namespace="other"), written(tmp_path, text))


@pytest.mark.parametrize("text", ["soon", "-3s", "0s", "1e999h"])
async def test_an_invalid_timeout_is_refused(text: str) -> None:
    """With a rule and an example."""
    with pytest.raises(RefusedInputError, match=f'^cannot use --timeout "{text}": .*example: --timeout 90s'):
        await submit(Options(), "-", wait=True, at_most=text)


async def test_waiting_ends_when_all_are_placed(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status of an older generation does not count."""
    monkeypatch.setattr(submit_module, "_PAUSE", 0.01)
    old = workload(generation=2, phase="Running", node="node9", observedGeneration=1)
    placed = workload(generation=2, phase="Scheduled", node="node1", devices=["0", "1"], observedGeneration=2)
    async with cluster(tmp_path) as (server, options):
        accept(server, "train")
        server.on("GET", f"{MINE}/train", *(Reply(body=body) for body in (workload(generation=2), old, placed)))
        assert await submit(options, written(tmp_path, TRAIN), wait=True) == 0

    assert capsys.readouterr().out == "gpuworkload.agentaflow.io/train placed on node1: GPUs 0,1\n"


ENDS = {
    "a failed workload": (
        Reply(body=workload(phase="Failed", message="OOMKilled: it took too much", observedGeneration=1)),
        "cannot run document 1 .*OOMKilled: it took too much; see kubectl describe",
    ),
    "a deleted workload": (Reply(404, {"message": "not found"}), "cannot wait for document 1 .*HTTP 404: not found"),
    "a pending workload": (
        Reply(body=workload(phase="Pending", message="GpuHeld: it is held", observedGeneration=1)),
        "longer than 0.2 s .*GpuHeld: it is held; ",
    ),
    **{
        f"{reason}, which no waiting cures": (
            Reply(body=workload(phase="Pending", reason=reason, message=f"{reason}: why; cure", observedGeneration=1)),
            f"cannot place document 1 .*, and waiting does not help: {reason}: why; cure; then recreate it .example: ",
        )
        for reason in (
            *sorted(REFUSED_AT_ADMISSION),
            *("NodeAffinityMismatch", "GpuNotFound", "InsufficientGpuMemory", "NothingRequested"),
        )
    },
    "a reason of another program": (
        Reply(body=workload(phase="Pending", reason="SchedulingGated", message="gated", observedGeneration=1)),
        "longer than 0.2 s .*gated; ",
    ),
    "an older generation's reason": (
        Reply(body=workload(generation=2, phase="Pending", reason="MapInvalid", message="x", observedGeneration=1)),
        "longer than 0.2 s ",
    ),
    "a workload without a controller": (
        Reply(body=workload()),
        "longer .*controller has not ",
    ),
}


@pytest.mark.parametrize(("reply", "sentence"), ENDS.values(), ids=ENDS)
async def test_waiting_ends_with_the_workloads_reason(
    reply: Reply, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1."""
    monkeypatch.setattr(submit_module, "_PAUSE", 0.01)
    async with cluster(tmp_path) as (server, options):
        accept(server, "train")
        server.on("GET", f"{MINE}/train", reply)
        with pytest.raises(FailedError, match=sentence) as raised:
            await submit(options, written(tmp_path, TRAIN), wait=True, at_most="200ms")

    assert raised.value.code == 1
