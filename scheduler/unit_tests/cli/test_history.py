"""The verb history: what it reads, with which rights, and what it prints."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpu_scheduler.cli.options import FailedError, Options, Output, RefusedInputError
from gpu_scheduler.cli.verbs.history import history
from tests.messages import text_of
from unit_tests.cli.scripted_cluster import Capsys, cluster, items, pod
from unit_tests.cli.stored import FORBIDDEN
from unit_tests.kube.server import Reply

if TYPE_CHECKING:
    from pathlib import Path

    from tests.objects import Object
    from unit_tests.kube.server import FakeServer

EVENTS = "/api/v1/namespaces/ml/events"
REPLICAS = "/api/v1/namespaces/gpu-scheduler-system/pods"
LOG = f"{REPLICAS}/gpu-scheduler-0/log"
HELD = "GPU 0 of node1 is held by ml/first-0; wait"


def event(minute: int, reason: str, message: str, name: str = "train-0", **more: object) -> Object:
    """Return an event as the core API shows it."""
    return {
        "metadata": {
            "name": f"{name}.{minute}",
            "namespace": "ml",
            "creationTimestamp": f"2026-01-01T12:{minute:02}:00Z",
        },
        "involvedObject": {"kind": "Pod", "namespace": "ml", "name": name, "uid": f"uid-{name}"},
        "reason": reason,
        "message": message,
        "eventTime": f"2026-01-01T12:{minute:02}:00.500000Z",
        "reportingComponent": "gpu-scheduler",
        "reportingInstance": "gpu-scheduler-0_1",
        **more,
    }


def placed() -> Object:
    """Return pod train-0, which was bound at 12:02."""
    found = pod("train-0", "node1", "0,1")
    given = {"at": "2026-01-01T12:02:00.100000Z", "by": "gpu-scheduler-0_1", "node": "node1", "reason": "map: index 0"}
    found["metadata"]["annotations"] |= {f"agentaflow.gpu/assigned-{key}": value for key, value in given.items()}
    return found


def log_of(*lines: Object) -> Reply:
    """Return a log with these lines, among others."""
    texts = ["not JSON", "[]", '{"event":"It leads"}', *map(json.dumps, lines), b'{"event":"cut'.decode()]
    return Reply(body="\n".join(texts))


def with_past(server: FakeServer) -> None:
    """Add a pod that waited and was bound, and one that is gone."""
    reported = (
        event(2, "Scheduled", "Successfully assigned ml/train-0 to node1 with GPUs 0,1 (index 0)"),
        event(1, "FailedScheduling", f"GpuHeld: {HELD}"),
        event(0, "Scheduled", "Successfully assigned ml/first-0 to node1 with GPU 0 (index 0)", "first-0"),
    )
    server.on("GET", EVENTS, items(*reported))
    server.on("GET", REPLICAS, items({"metadata": {"name": "gpu-scheduler-0"}}))
    waits = {"event": f"ml/train-0 waits: GpuHeld: {HELD}", "pod": "ml/train-0", "timestamp": "2026-01-01T12:01:00.4Z"}
    other = {"event": "Bound lab/x to node2", "pod": "lab/x", "node": "node2", "timestamp": "2026-01-01T12:03:00Z"}
    server.on("GET", LOG, log_of(waits, other))


@pytest.mark.promise("history-1")
async def test_a_wait_and_the_bind(tmp_path: Path, capsys: Capsys) -> None:
    """Each decision once, oldest first, also of a pod that is gone."""
    async with cluster(tmp_path, mine=items(placed())) as (server, options):
        with_past(server)
        assert await history(options) == 0
        out, err = capsys.readouterr()
        assert await history(replace(options, output=Output.JSON)) == 0
        data = json.loads(capsys.readouterr().out)["items"]
        assert await history(replace(options, output=Output.WIDE, namespace="ml")) == 0
        wide = capsys.readouterr().out

    assert out.splitlines() == [
        "TIME                   POD       WHAT      NODE    GPUS   REASON    SOURCE      MESSAGE",
        "2026-01-01T12:00:00Z   first-0   Bound     node1   0      -         event       index 0",
        f"2026-01-01T12:01:00Z   train-0   Waiting   -       -      GpuHeld   event,log   {HELD}",
        "2026-01-01T12:02:00Z   train-0   Bound     node1   0,1    -         event,pod   map: index 0",
    ]
    assert err == ""
    assert data[2] == {
        "apiVersion": "cli.agentaflow.io/v1",
        "kind": "Decision",
        "time": "2026-01-01T12:02:00.100000Z",
        "namespace": "ml",
        "pod": "train-0",
        "uid": "uid-train-0",
        "what": "Bound",
        "node": "node1",
        "devices": ["0", "1"],
        "observer": False,
        "reason": None,
        "message": "map: index 0",
        "count": 1,
        "lastTime": "2026-01-01T12:02:00.100000Z",
        "by": "gpu-scheduler-0_1",
        "sources": ["event", "pod"],
    }
    assert "COUNT" in wide.splitlines()[0]


async def test_what_is_asked_of_the_api_server(tmp_path: Path, capsys: Capsys) -> None:
    """Only the scheduler's events, and the last lines of the logs."""
    async with cluster(tmp_path) as (server, options):
        with_past(server)
        assert await history(options, "train-0", since="80000h") == 0

    selectors = {each.path: each.query.get("fieldSelector") for each in server.asked("GET")}
    assert selectors[EVENTS] == "involvedObject.kind=Pod,reportingComponent=gpu-scheduler,involvedObject.name=train-0"
    assert selectors["/api/v1/namespaces/ml/pods"] == "spec.schedulerName=gpu-scheduler,metadata.name=train-0"
    (log,) = server.asked("GET", LOG)
    assert log.query == {"tailLines": "10000", "limitBytes": "16777216", "sinceSeconds": "288000000"}
    (replicas,) = server.asked("GET", REPLICAS)
    assert (
        replicas.query["labelSelector"] == "app.kubernetes.io/name=gpu-scheduler,app.kubernetes.io/component=scheduler"
    )
    capsys.readouterr()


async def test_all_namespaces(tmp_path: Path, capsys: Capsys) -> None:
    """With a column for the namespace. A log line alone is a row too."""
    async with cluster(tmp_path, pods=items(placed())) as (server, options):
        with_past(server)
        server.on("GET", "/api/v1/events", items())
        assert await history(replace(options, all_namespaces=True)) == 0

    rows = capsys.readouterr().out.splitlines()
    assert rows[0].split()[:3] == ["TIME", "NAMESPACE", "POD"]
    assert [row.split()[1:4] for row in rows[1:]] == [
        ["ml", "train-0", "Waiting"],
        ["ml", "train-0", "Bound"],
        ["lab", "x", "Bound"],
    ]


@pytest.mark.promise("history-2")
async def test_each_missing_right_is_named(tmp_path: Path, capsys: Capsys) -> None:
    """What may be read is shown, and what may not is a sentence."""
    denied = dict.fromkeys(("mine", "deployment"), FORBIDDEN)
    async with cluster(tmp_path, **denied) as (server, options):
        server.on("GET", EVENTS, FORBIDDEN)
        server.on("GET", REPLICAS, items({"metadata": {"name": "gpu-scheduler-0"}}))
        server.on("GET", LOG, FORBIDDEN)
        assert await history(options) == 0
        warnings = capsys.readouterr().err.splitlines()
    async with cluster(tmp_path) as (server, options):
        server.on("GET", EVENTS, items())
        server.on("GET", REPLICAS, FORBIDDEN)
        assert await history(options, "train-0") == 1
        less = capsys.readouterr().err.splitlines()
        assert await history(replace(options, output=Output.JSON), "train-0") == 1
        data, sentence = capsys.readouterr()

    rights = [each.rpartition("can-i ")[2].rstrip(")") for each in warnings[:-1]]
    assert rights == [
        "get deployments/gpu-scheduler -n gpu-scheduler-system",
        "list events -n ml",
        "list pods -n ml",
        "get pods --subresource=log -n gpu-scheduler-system",
    ]
    assert warnings[-1] == text_of("history: nothing is found", what="any pod", ns="ml")
    assert "can-i list pods -n gpu-scheduler-system" in less[0]
    assert less[1] == text_of("history: nothing is found", what="pod train-0", ns="ml")
    assert (json.loads(data)["items"], sentence) == ([], f"{less[0]}\n")


async def test_a_log_that_cannot_be_read_now_is_named(tmp_path: Path, capsys: Capsys) -> None:
    """The rest is shown."""
    async with cluster(tmp_path) as (server, options):
        server.on("GET", EVENTS, items())
        names = [{"metadata": {"name": name}} for name in ("gpu-scheduler-0", "gpu-scheduler-1")]
        server.on("GET", REPLICAS, items(*names))
        server.on("GET", LOG, Reply(400, {"message": "container is waiting to start"}))
        server.on("GET", LOG.replace("-0/", "-1/"), Reply(body="x" * 2**26))
        assert await history(options) == 0

    first, second, _ = capsys.readouterr().err.splitlines()
    assert first.startswith(
        "Warning: cannot read the log of gpu-scheduler-0: HTTP 400: container is waiting to start; try"
    )
    assert second.startswith("Warning: cannot read the log of gpu-scheduler-1: GET ")


async def test_another_error_of_a_list_is_an_error(tmp_path: Path) -> None:
    """Only a missing right is reported beside an answer."""
    async with cluster(tmp_path) as (server, options):
        with_past(server)
        server.on("GET", f"{EVENTS}?fieldSelector=x", items())
        server.on("GET", "/api/v1/namespaces/lab/events", Reply(500, {"message": "etcd is slow"}))
        server.on("GET", "/api/v1/namespaces/lab/pods", items())
        with pytest.raises(FailedError, match=r"^cannot list events: HTTP 500: etcd is slow"):
            await history(replace(options, namespace="lab"))


WRONG = {
    "a duration that is none": ({"since": "yesterday"}, '^cannot use --since "yesterday": '),
    "a duration below zero": ({"since": "-1h"}, '^cannot use --since "-1h"'),
    "a duration beyond all logs": ({"since": "9999999h"}, '^cannot use --since "9999999h"'),
    "a name that selects more": ({"pod": "a,status.phase=Failed"}, '^cannot find pod "a,status.phase=Failed": a name'),
}


@pytest.mark.parametrize(("given", "expected"), WRONG.values(), ids=WRONG)
async def test_a_wrong_call_is_refused(given: dict[str, str], expected: str) -> None:
    """Before any request."""
    with pytest.raises(RefusedInputError, match=expected):
        await history(Options(), **given)
