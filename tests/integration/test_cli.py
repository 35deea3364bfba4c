"""The verbs of the command line show what the API server has."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.accounts import allow, rights
from tests.integration.command import LEASE
from tests.integration.installed import TEMPLATE, Installed, fields_of_view, interrupted, pods_of, read_until, seen_of
from tests.integration.policies import allow_use
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace
    from tests.integration.workloads import Workloads


@pytest.mark.promise("cli-1")
def test_status_is_what_the_api_server_shows(cli: Installed, populated: Namespace) -> None:
    """GPUs, nodes, workloads and leader, as text and as JSON."""
    (shown,) = cli.items("status")

    lease = populated.kube.get(LEASE)
    assert lease is not None
    assert shown["leader"] == {"holder": lease["spec"]["holderIdentity"], "since": lease["spec"]["acquireTime"]}
    held = [seen_of(pod)[5] for pod in pods_of(populated)]
    assert shown["gpus"] == {"total": 16, "held": sum(map(len, held)), "available": 13, "unhealthy": 0}
    assert shown["nodes"] == {"total": 4, "ready": 4, "withGpus": 4, "stale": []}
    condition = populated.condition("late-0")
    why = {"reason": "GpuHeld", "message": condition["message"], "since": condition["lastTransitionTime"]}
    waiting = {"namespace": populated.name, "name": "late-0", "observer": False, **why}
    assert shown["workloads"] == {"pending": 1, "running": 2, "waiting": [waiting]}
    assert shown["conflicts"] == []
    screen = " ".join(cli.run("gpu-scheduler", "status").split())
    assert "GPUs 16 known, 3 held, 13 free Nodes 4, 4 ready" in screen
    assert re.search(
        rf"{populated.name} late-0 GpuHeld \d+s GPU 1 of node1 is held by {populated.name}/train-0", screen
    )
    held_by = f"{populated.name}/train-0"
    assert f"NODE 0 1 2 3 node1 {held_by} {held_by} free free node2 free free {populated.name}/train-1 free" in screen


@pytest.mark.promise("cli-1")
def test_nodes_are_what_the_api_server_shows(cli: Installed, populated: Namespace) -> None:
    """Each device as its monitor lists it, with the pods that hold it."""
    shown = {each["name"]: each for each in cli.items("nodes")}

    _, answer = populated.kube.call("GET", "/api/v1/nodes")
    for node in answer["items"]:
        name = node["metadata"]["name"]
        listed = json.loads(node["metadata"]["annotations"]["agentaflow.gpu/devices"])
        assert [
            (each["device"], each["uuid"], each["model"], each["memoryTotalMiB"]) for each in shown[name]["cards"]
        ] == [(str(each["index"]), each["uuid"], each["model"], each["memoryTotalMiB"]) for each in listed]
        holders = {
            device: pod["metadata"]["name"]
            for pod in pods_of(populated)
            if pod["spec"].get("nodeName") == name
            for device in seen_of(pod)[5]
        }
        assert {
            device["device"]: device["holders"][0]["name"] for device in shown[name]["cards"] if device["holders"]
        } == holders
    assert shown["node3"]["alias"] == "small"
    assert cli.run("gpu-scheduler", "nodes", "-o", "name") == cli.run("kubectl", "get", "nodes", "-o", "name")


@pytest.mark.promise("cli-1")
def test_workloads_are_what_the_api_server_shows(cli: Installed, populated: Namespace, workloads: Workloads) -> None:
    """Pods and GPUWorkloads, of one namespace or of all."""
    workloads.place("job", template=TEMPLATE, schedulingStrategy="best_fit", gpuRequirements={"gpuCount": 2})
    workloads.wait("job", "Scheduled")
    pending_request = workloads.read("job")

    shown = cli.items("workloads")

    assert [fields_of_view(each) for each in shown if each["objectKind"] == "Pod"] == [
        seen_of(pod) for pod in pods_of(populated)
    ]
    (mine,) = [each for each in shown if each["objectKind"] == "GPUWorkload"]
    assert (mine["name"], mine["uid"], mine["strategy"]) == ("job", pending_request["metadata"]["uid"], "best_fit")
    assert (mine["phase"], mine["node"], mine["devices"]) == tuple(
        pending_request["status"][key] for key in ("phase", "node", "devices")
    )
    (made,) = [each for each in shown if each["workload"] == "job"]
    assert (made["name"], made["strategy"], made["priority"]) == ("job-0", "best_fit", 0)
    names = cli.run("gpu-scheduler", "workloads", "-o", "name").split()
    assert len(cli.run("kubectl", "get", *names, "-o", "name").split()) == len(names) == 5
    assert cli.items("workloads", "-n", "kube-system") == []
    assert cli.items("workloads", "-A") == shown


@pytest.mark.promise("share-8")
def test_an_observer_is_marked(cli: Installed, populated: Namespace) -> None:
    """A GPU that an observer sees is not shown as held twice."""
    held = next(pod for pod in pods_of(populated) if seen_of(pod)[5])
    node, device = held["spec"]["nodeName"], seen_of(held)[5][0]
    watching = {"agentaflow.gpu/observer": "true"}
    allow_use(populated.kube, populated.name, "observers")
    populated.pod("looks-0", f"0={node}:{device}", device, annotations=watching)
    populated.wait_bound("looks-0", node)

    shown = {each["name"]: each for each in cli.items("workloads")}
    rows = cli.run("gpu-scheduler", "workloads").splitlines()
    devices = {
        device["device"]: device for each in cli.items("nodes") if each["name"] == node for device in each["cards"]
    }

    assert (shown["looks-0"]["observer"], shown["looks-0"]["devices"]) == (True, [device])
    assert [name for name, each in shown.items() if each["observer"]] == ["looks-0"]
    assert [row.split()[0] for row in rows if f"{device} (observer)" in row] == ["looks-0"]
    assert [holder["name"] for holder in devices[device]["holders"]] == [held["metadata"]["name"]]


def _last(printed: str, name: str) -> Any:
    """Return what the last of these JSON lines about this object says of it."""
    items = (json.loads(line)["object"] for line in printed.splitlines())
    return [item for item in items if item["name"] == name][-1]


@pytest.mark.promise("cli-5")
def test_watch_shows_each_change(cli: Installed, populated: Namespace) -> None:
    """It prints all objects, then each change. Ctrl-C ends it with exit code 0."""
    lines, objects = cli.start("gpu-scheduler", "watch"), cli.start("gpu-scheduler", "watch", "-o", "json")
    waiting = ("node1", "train-0", "train-1", "late-0")
    begun = [read_until(lines, *waiting), read_until(objects, *waiting)]
    populated.delete("train-0")
    begun[0] += read_until(lines, "Scheduled on node1, GPU 1\n", "gone\n")
    begun[1] += read_until(objects, "DELETED")
    while _last(begun[1], "late-0")["node"] != "node1":
        begun[1] += read_until(objects, "late-0")

    (code, text, complaints), (other_code, data, _) = interrupted(lines), interrupted(objects)

    assert (code, other_code, complaints) == (0, 0, "")
    shown = [" ".join(line.split()[1:]) for line in (begun[0] + text).splitlines()]
    assert "node node1 Ready, 4 GPUs, 2 held, 2 free, 0% busy, healthy" in shown
    assert f"workload {populated.name}/train-0 gone" in shown
    assert f"workload {populated.name}/late-0 Scheduled on node1, GPU 1" in shown
    events = [json.loads(line) for line in (begun[1] + data).splitlines()]
    assert {event["type"] for event in events} == {"ADDED", "MODIFIED", "DELETED"}
    last = _last(begun[1] + data, "late-0")
    (pod,) = [pod for pod in pods_of(populated) if pod["metadata"]["name"] == "late-0"]
    assert fields_of_view(last)[:6] == seen_of(pod)[:6]


@pytest.mark.promise("cli-7")
def test_the_right_to_list_one_namespace_is_enough_for_its_workloads(
    kinds: ControlPlane, populated: Namespace, tmp_path: Path
) -> None:
    """A user who may list only pods and GPUWorkloads of one namespace gets these, and an error for the nodes."""
    rules = (rights("pods", "list", group=""), rights("gpuworkloads", "list"))
    allow(populated.kube, populated.name, "jane", "look", *rules)
    jane = Installed(tmp_path, kinds, kinds.service_account_token(populated.name, "jane"), populated.name)

    assert [fields_of_view(each) for each in jane.items("workloads")] == [seen_of(pod) for pod in pods_of(populated)]
    output = jane.refused("gpu-scheduler", "nodes", code=1)
    assert re.match("cannot list (nodes|pods): HTTP 403: .* is forbidden: .*; ask for the right", output)


@pytest.mark.promise("cli-12")
def test_names_of_what_exists_are_completed(cli: Installed, populated: Namespace, workloads: Workloads) -> None:
    """By bash, zsh, fish and kubectl: namespaces, nodes, workloads and contexts, and no file names in their place."""
    workloads.place("train-job", template=TEMPLATE, gpuRequirements={"gpuCount": 1})
    workloads.wait("train-job", "Scheduled")

    def offers(words: tuple[str, ...], *expected: str) -> None:
        # On a busy machine the one request may take longer than a shell should wait.
        asked = ("kubectl", "__complete", "gpu-scheduler", *words)
        eventually(f"{words} offers {expected}", lambda: cli.run(*asked).split() == list(expected))

    offers(("nodes", "node"), "node1", "node2", "node3", "node4", ":4")
    offers(("nodes", "node1", "node4"), "node4", ":4")
    offers(("workloads", "train"), "train-0", "train-1", "train-job", "train-job-0", ":4")
    offers(("workloads", "-n", "kube-system", "train"), ":4")
    offers(("workloads", "-n", populated.name), populated.name, ":4")
    offers(("status", "--context", "t"), "test", ":4")
    offers(("generate-gpu-mapping", "--nodes", "node1,node2"), "node1,node2", ":4")
    offers(("nodes", "--context", "nowhere", "node"), ":4")
    offers(("submit", "x"), ":0")
    for shell in ("bash", "zsh", "fish"):
        asked = {"_GPU_SCHEDULER_COMPLETE": f"{shell}_complete", "COMP_WORDS": "gpu-scheduler nodes node1"}
        asked |= {"COMP_CWORD": "node1" if shell == "fish" else "2"}
        words = ("env", *(f"{key}={text}" for key, text in asked.items()), "gpu-scheduler")
        eventually(f"{shell} offers node1", lambda words=words: "node1" in cli.run(*words))  # type: ignore[misc]
