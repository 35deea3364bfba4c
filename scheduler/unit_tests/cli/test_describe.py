import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpu_scheduler.cli.options import FailedError, Options, Output, RefusedInputError
from gpu_scheduler.cli.verbs.describe import describe
from gpu_scheduler.cli.verbs.version import version
from unit_tests.cli.scripted_cluster import Capsys, cluster, device, items, node, pod
from unit_tests.kube.server import Reply

EVENTS = "/api/v1/namespaces/ml/events"
FORBIDDEN = Reply(403, {"message": "forbidden"})


def event(time: str, reason: str) -> dict[str, Any]:
    return {"metadata": {"name": reason}, "lastTimestamp": time, "type": "Normal", "reason": reason, "message": "m\x1b"}


async def test_a_pod_is_described_with_its_events(tmp_path: Path, capsys: Capsys) -> None:
    """A line for each fact, the oldest event first."""
    events = items(event("2026-01-01T00:00:02Z", "Second"), event("2026-01-01T00:00:01Z", "First"))
    async with cluster(tmp_path, mine=items(pod("a-0", "node1", "0,1"))) as (server, options):
        server.on("GET", EVENTS, events)
        assert await describe(options, "pod", "a-0") == 0

    selector = server.asked("GET", "/api/v1/namespaces/ml/pods")[0].query["fieldSelector"]
    assert selector == "spec.schedulerName=gpu-scheduler,metadata.name=a-0"
    assert server.asked("GET", EVENTS)[0].query["fieldSelector"] == "involvedObject.kind=Pod,involvedObject.name=a-0"
    lines = capsys.readouterr().out.splitlines()
    assert "Devices:             0,1" in lines
    assert lines[lines.index("Events:") :] == [
        "Events:",
        "  Time:              2026-01-01T00:00:01Z",
        "  Type:              Normal",
        "  Reason:            First",
        "  Message:           m\\x1b",
        "  --",
        "  Time:              2026-01-01T00:00:02Z",
        "  Type:              Normal",
        "  Reason:            Second",
        "  Message:           m\\x1b",
    ]


async def test_a_workload_is_described(tmp_path: Path, capsys: Capsys) -> None:
    """Events that may not be read are named."""
    workload = {"metadata": {"namespace": "ml", "name": "tune"}, "spec": {"podTemplate": {"spec": {}}}}
    async with cluster(tmp_path, my_workloads=items(workload)) as (server, options):
        server.on("GET", EVENTS, FORBIDDEN)
        await describe(replace(options, output=Output.NAME), "workload", "tune")

    printed = capsys.readouterr()
    assert printed.out == "gpuworkload.agentaflow.io/tune\n"
    assert printed.err.startswith("Warning: cannot list events: HTTP 403: forbidden; ask for the right")


async def test_nodes_and_their_devices_are_described(tmp_path: Path, capsys: Capsys) -> None:
    """A device by its index or its UUID."""
    async with cluster(tmp_path, nodes=items(node("node1", device(0), device(1)))) as (server, options):
        server.on("GET", "/api/v1/events", items())
        named = replace(options, output=Output.NAME)
        await describe(named, "node", "node1")
        await describe(named, "gpu", "node1:1")
        await describe(replace(options, output=Output.JSON), "gpu", f"node1:{device(0)['uuid']}")

    names, _, text = capsys.readouterr().out.partition("{")
    assert names.split() == ["node/node1", "node1/1"]
    (shown,) = json.loads("{" + text)["items"]
    assert (shown["kind"], shown["device"], shown["events"]) == ("Card", "0", [])


MISSING_THINGS = [("node", "node9"), ("gpu", "node1:7"), ("gpu", "node9:0"), ("pod", "none"), ("workload", "none")]


@pytest.mark.parametrize(("kind", "name"), [*MISSING_THINGS, ("pod", "a,spec.nodeName=x")])
async def test_what_is_not_there_is_an_error(kind: Any, name: str, tmp_path: Path) -> None:
    """With a command that lists what is."""
    async with cluster(tmp_path, nodes=items(node("node1", device(0)))) as (_, options):
        with pytest.raises(FailedError, match=f'^cannot describe {kind} "{name}": there is none; list them .ex'):
            await describe(options, kind, name)


async def test_a_gpu_is_named_with_its_node(tmp_path: Path) -> None:
    """As a map names it."""
    async with cluster(tmp_path) as (_, options):
        with pytest.raises(RefusedInputError, match=r'^cannot describe GPU "0": .* NODE:DEVICE \(ex'):
            await describe(options, "gpu", "0")


VERSIONS = {
    "the image of the Deployment": ([{"image": "registry/gpu-scheduler:0a1b2c3"}], "registry/gpu-scheduler:0a1b2c3", 0),
    "no image": ([{"name": "main"}], "not installed in namespace gpu-scheduler-system", 1),
}


@pytest.mark.parametrize(("containers", "shown", "code"), VERSIONS.values(), ids=VERSIONS)
async def test_versions(containers: list[Any], shown: str, code: int, tmp_path: Path, capsys: Capsys) -> None:
    """Of this command, of the scheduler, and of the API server."""
    deployed = Reply(body={"spec": {"template": {"spec": {"containers": containers}}}})
    async with cluster(tmp_path, deployment=deployed) as (server, options):
        server.on("GET", "/version", Reply(body={"gitVersion": "v1.36.4"}))
        assert await version(options) == code

    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert lines[1][0] == "Client"
    assert lines[2] == ["Scheduler", shown]
    assert lines[3] == ["API", "server   v1.36.4"]


async def test_a_scheduler_that_may_not_be_read_has_no_version(tmp_path: Path, capsys: Capsys) -> None:
    """The missing right is named. The command's own version needs no cluster."""
    async with cluster(tmp_path, deployment=FORBIDDEN) as (server, options):
        server.on("GET", "/version", Reply(404))
        assert await version(options) == 1
    printed = capsys.readouterr()
    assert await version(Options(kubeconfig="/nowhere"), client=True) == 0

    assert "Scheduler    unknown" in printed.out
    assert "Warning: cannot read Deployment gpu-scheduler of namespace gpu-scheduler-system: HTTP 403" in printed.err
    assert capsys.readouterr().out.count("\n") == 2
