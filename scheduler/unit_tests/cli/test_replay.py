"""The verbs snapshot and replay: what leaves the cluster, what comes out otherwise, and their exit codes."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from gpu_scheduler.cli.options import FailedError, Options, Output, RefusedInputError
from gpu_scheduler.cli.verbs.replay import replay, snapshot
from gpu_scheduler.scheduler.journal import FORMAT
from gpu_scheduler.scheduler.ports import InputKind
from tests.objects import Object, reading
from unit_tests.cli.scripted_cluster import Capsys, cluster, device, items, node, pod
from unit_tests.cli.stored import FORBIDDEN, VOLUMES, with_storage
from unit_tests.scheduler.recorded import CLUSTER, changed, journal_of, snapshot_of, waiting

ROOM = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"pods": "110"}, "capacity": {}}
HELD = "GpuHeld: GPU 0 of node1 is held by ml/a-0; wait until it ends"


def asking(name: str, message: str = HELD) -> Object:
    """Return a pending pod that asks for one GPU, and has parts that nobody else should read."""
    found = pod(name, message=message, count="1")
    found["metadata"]["annotations"]["example.com/token"] = "hunter2-annotation"
    found["metadata"]["labels"] = {"team": "hunter2-label"}
    secret = {"name": "PASSWORD", "value": "hunter2-environment"}
    found["spec"]["containers"] = [
        {
            "name": "main",
            "image": "registry.example/hunter2-image",
            "command": ["run", "hunter2-command"],
            "args": ["--token=hunter2-argument"],
            "env": [*reading(), secret, {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "hunter2-secret"}}}],
            "envFrom": [{"secretRef": {"name": "hunter2-from"}}],
        }
    ]
    found["spec"]["volumes"] = [{"name": "v", "secret": {"secretName": "hunter2-volume"}}]
    return found


def written(capfdbinary: pytest.CaptureFixture[bytes]) -> tuple[list[Any], str]:
    """Return the printed lines, and what was printed on standard error."""
    out, err = capfdbinary.readouterr()
    return [json.loads(line) for line in out.splitlines()], err.decode()


@pytest.mark.promise("replay-1")
async def test_a_snapshot_has_what_decisions_read_and_no_secret(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The first line has the policy. No environment, command, image, label or annotation of others is in the file."""
    listed = node("node1", device(0), status=ROOM)
    listed["metadata"]["annotations"]["example.com/token"] = "hunter2-node"
    async with cluster(tmp_path, nodes=items(listed), pods=items(pod("a-0", "node1", "0"), asking("b-0"))) as (
        server,
        options,
    ):
        with_storage(server)
        assert await snapshot(options) == 0

    sys.stdout.flush()
    (first, *lines), err = written(capfdbinary)
    assert err == ""
    assert (first["snapshot"], first["format"], first["unread"]) == (len(lines), FORMAT, [])
    assert first["policy"]["scheduler_name"] == "gpu-scheduler"
    kinds = [line["received"] for line in lines]
    assert kinds[0] == "node"
    assert kinds[-2:] == ["pod", "pod"]
    assert {"claim", "volume", "class", "limits", "strategy", "foreign_pod"} <= set(kinds)
    assert "hunter2" not in json.dumps(lines)


@pytest.mark.promise("replay-1")
async def test_a_snapshot_says_what_is_missing(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """In its first line and on standard error; the exit code is 1, and the replay says it too."""
    async with cluster(tmp_path, nodes=items(node("node1", device(0), status=ROOM)), limits=FORBIDDEN) as (
        server,
        options,
    ):
        with_storage(server)
        assert await snapshot(options) == 1

    out, err = capfdbinary.readouterr()
    (missing,) = json.loads(out.splitlines()[0])["unread"]
    assert "kubectl auth can-i get configmaps/gpu-scheduler-limits" in missing
    assert err.decode() == f"Warning: {missing}\n"
    (tmp_path / "file").write_bytes(out)
    assert await replay(Options(), str(tmp_path / "file")) == 0
    assert f"Warning: {tmp_path}/file lacks what its author could not read: {missing}" in (
        capfdbinary.readouterr().err.decode()
    )


async def test_a_snapshot_is_written_to_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal would get what users wrote; and a snapshot has one format."""
    with pytest.raises(RefusedInputError, match=r'^cannot write a snapshot as "yaml": it has one format'):
        await snapshot(Options(output=Output.YAML))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with pytest.raises(RefusedInputError, match=r"^cannot write a snapshot to a terminal: it must be a file or a pipe"):
        await snapshot(Options())


async def test_a_full_disk_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing fails at the exit."""
    kept = os.dup(1)
    async with cluster(tmp_path) as (server, options):
        with_storage(server)
        server.on("GET", VOLUMES, items())
        with Path("/dev/full").open("w", encoding="utf-8") as full:  # noqa: ASYNC230 - no disk answers
            monkeypatch.setattr(sys, "stdout", full)
            with pytest.raises(FailedError, match=r"^cannot write the snapshot: No space left on device; what was"):
                await snapshot(options)
            monkeypatch.undo()
    os.dup2(kept, 1)
    os.close(kept)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A snapshot: one pod that would be placed now, one that waits as before, one that was not decided on."""
    pods = (waiting("late-0", namespace="lab", owner=None), waiting("new-0", owner=None, condition=None))
    lines = snapshot_of(*CLUSTER, *((InputKind.POD, each) for each in pods))
    # The holder's line is gone, as after the holder's end.
    lines[0] = changed(lines[0], snapshot=5)
    del lines[3]
    path = tmp_path / "cluster.snapshot"
    path.write_bytes(b"".join(lines))
    return path


@pytest.mark.promise("replay-2")
async def test_a_replay_prints_what_comes_out_otherwise(file: Path, capsys: Capsys) -> None:
    """The first pod gets the GPU. What is as before is not printed. The exit code is 1."""
    assert await replay(Options(), str(file)) == 1

    out, err = capsys.readouterr()
    header, *rows = [re.split("   +", line) for line in out.splitlines()]
    assert header == ["POD", "BEFORE", "NOW", "MESSAGE"]
    assert [row[:3] for row in rows] == [["default/second-0", "GpuHeld", "node1:0"], ["default/new-0", "-", "GpuHeld"]]
    placed, waits = (row[3] for row in rows)
    assert placed == "Successfully assigned default/second-0 to node1 with GPU 0 (index 0)"
    assert waits.startswith("GPU 0 of node1 is held by default/second-0; wait until it ends")
    assert err == "3 decisions: 1 as before, 1 otherwise, 1 for the first time\n"


@pytest.mark.promise("replay-2")
async def test_a_replay_as_data(file: Path, capsys: Capsys) -> None:
    """Every decision with --all, the old beside the new one; with -n those of one namespace."""
    assert await replay(Options(output=Output.JSON, namespace="lab"), str(file), everything=True) == 0

    (item,) = json.loads(capsys.readouterr().out)["items"]
    assert (item["namespace"], item["name"], item["line"], item["differs"]) == ("lab", "late-0", 5, False)
    assert (item["before"]["reason"], item["now"]["reason"]) == ("GpuHeld", "GpuHeld")
    assert await replay(Options(output=Output.WIDE), str(file), everything=True) == 1
    titles = capsys.readouterr().out.splitlines()[0]
    assert " ".join(titles.split()) == "POD BEFORE NOW MESSAGE LINE MESSAGE BEFORE"


async def test_a_journal_from_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: Capsys) -> None:
    """Its last line may be cut. A decision without a placement or a reason is shown by its verdict."""
    lines = journal_of(*CLUSTER)
    text = b"".join([*lines[:-1], changed(lines[-1], verdict="nothing", reason=None, message=None), lines[1][:9]])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))

    assert await replay(Options(), "-") == 1

    out, err = capsys.readouterr()
    assert out.splitlines()[1].startswith("default/second-0   nothing   GpuHeld   GPU 0 of node1 is held by")
    assert err.splitlines() == [
        "Warning: the last line of standard input has no end: it was left out",
        "2 decisions: 1 as before, 1 otherwise",
    ]


WRONG: dict[str, tuple[bytes | None, str]] = {
    "a file that is not there": (None, "^cannot read .*: No such file or directory; name a file"),
    "no JSON": (b"hello\n", "^cannot replay .*: line 1 is no JSON: .*; write the file again"),
}


@pytest.mark.promise("replay-3")
@pytest.mark.parametrize(("text", "expected"), WRONG.values(), ids=WRONG)
async def test_a_file_that_cannot_be_read_is_one_sentence(text: bytes | None, expected: str, tmp_path: Path) -> None:
    """The exit code is that of a wrong call."""
    path = tmp_path / "file"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(RefusedInputError, match=expected) as caught:
        await replay(Options(), str(path))

    assert caught.value.code == 2
