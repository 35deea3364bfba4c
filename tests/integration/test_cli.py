"""The verbs as processes before a real API server: what they tell is what the API server tells."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest

from tests import objects
from tests.integration.command import LEASE
from tests.integration.installed import TEMPLATE, Installed, interrupted, pods_of, seen_of, told_of
from tests.integration.manifests import allow_use

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.bench import Bench
    from tests.integration.control_plane import ControlPlane
    from tests.integration.workshop import Orders


@pytest.mark.promise("cli-1")
def test_status_is_what_the_api_server_tells(cli: Installed, town: Bench) -> None:
    """GPUs, nodes, workloads, leader: in one screen, and as data."""
    (told,) = cli.items("status")

    lease = town.kube.get(LEASE)
    assert lease is not None
    assert told["leader"] == {"holder": lease["spec"]["holderIdentity"], "since": lease["spec"]["acquireTime"]}
    held = [seen_of(pod)[5] for pod in pods_of(town)]
    assert told["gpus"] == {"total": 16, "held": sum(map(len, held)), "available": 13, "unhealthy": 0}
    assert told["nodes"] == {"total": 4, "ready": 4, "withGpus": 4, "stale": []}
    condition = town.condition("late-0")
    why = {"reason": "GpuHeld", "message": condition["message"]}
    waiting = {"namespace": town.namespace, "name": "late-0", "observer": False, **why}
    assert told["workloads"] == {"pending": 1, "running": 2, "waiting": [waiting]}
    assert told["conflicts"] == []
    screen = " ".join(cli.run("gpu-scheduler", "status").split())
    assert "GPUs 16 known, 3 held, 13 free Nodes 4, 4 ready" in screen
    assert f"{town.namespace} late-0 GpuHeld GPU 1 of node1 is held by {town.namespace}/train-0" in screen


@pytest.mark.promise("cli-1")
def test_nodes_are_what_the_api_server_tells(cli: Installed, town: Bench) -> None:
    """Each card by what its monitor lists, with the pods that hold it."""
    told = {each["name"]: each for each in cli.items("nodes")}

    _, answer = town.kube.call("GET", "/api/v1/nodes")
    for node in answer["items"]:
        name = node["metadata"]["name"]
        listed = json.loads(node["metadata"]["annotations"]["agentaflow.gpu/devices"])
        assert [
            (each["device"], each["uuid"], each["model"], each["memoryTotalMiB"]) for each in told[name]["cards"]
        ] == [(str(each["index"]), each["uuid"], each["model"], each["memoryTotalMiB"]) for each in listed]
        holders = {
            device: pod["metadata"]["name"]
            for pod in pods_of(town)
            if pod["spec"].get("nodeName") == name
            for device in seen_of(pod)[5]
        }
        assert {
            card["device"]: card["holders"][0]["name"] for card in told[name]["cards"] if card["holders"]
        } == holders
    assert told["node3"]["alias"] == "small"
    assert cli.run("gpu-scheduler", "nodes", "-o", "name") == cli.run("kubectl", "get", "nodes", "-o", "name")


@pytest.mark.promise("cli-1")
def test_workloads_are_what_the_api_server_tells(cli: Installed, town: Bench, orders: Orders) -> None:
    """Pods and GPUWorkloads, of a namespace or of all."""
    orders.place("wish", template=TEMPLATE, schedulingStrategy="best_fit", gpuRequirements={"gpuCount": 2})
    orders.wait("wish", "Scheduled")
    wish = orders.read("wish")

    told = cli.items("workloads")

    assert [told_of(each) for each in told if each["objectKind"] == "Pod"] == [seen_of(pod) for pod in pods_of(town)]
    (mine,) = [each for each in told if each["objectKind"] == "GPUWorkload"]
    assert (mine["name"], mine["uid"], mine["strategy"]) == ("wish", wish["metadata"]["uid"], "best_fit")
    assert (mine["phase"], mine["node"], mine["devices"]) == tuple(
        wish["status"][key] for key in ("phase", "node", "devices")
    )
    (made,) = [each for each in told if each["workload"] == "wish"]
    assert (made["name"], made["strategy"], made["priority"]) == ("wish-0", "best_fit", 0)
    names = cli.run("gpu-scheduler", "workloads", "-o", "name").split()
    assert len(cli.run("kubectl", "get", *names, "-o", "name").split()) == len(names) == 5
    assert cli.items("workloads", "-n", "kube-system") == []
    assert cli.items("workloads", "-A") == told


@pytest.mark.promise("share-8")
def test_an_observer_is_marked(cli: Installed, town: Bench) -> None:
    """A GPU that it sees does not seem to be held twice."""
    held = next(pod for pod in pods_of(town) if seen_of(pod)[5])
    node, device = held["spec"]["nodeName"], seen_of(held)[5][0]
    watching = {"agentaflow.gpu/observer": "true"}
    allow_use(town.kube, town.namespace, "observers")
    town.pod("looks-0", f"0={node}:{device}", device, annotations=watching)
    town.wait_bound("looks-0", node)

    told = {each["name"]: each for each in cli.items("workloads")}
    rows = cli.run("gpu-scheduler", "workloads").splitlines()
    cards = {card["device"]: card for each in cli.items("nodes") if each["name"] == node for card in each["cards"]}

    assert (told["looks-0"]["observer"], told["looks-0"]["devices"]) == (True, [device])
    assert [name for name, each in told.items() if each["observer"]] == ["looks-0"]
    assert [row.split()[0] for row in rows if f"{device} (observer)" in row] == ["looks-0"]
    assert [holder["name"] for holder in cards[device]["holders"]] == [held["metadata"]["name"]]


@pytest.mark.promise("cli-6")
def test_a_map_of_the_free_gpus_places_every_pod(cli: Installed, town: Bench) -> None:
    """What is generated is valid where it counts."""
    text = cli.run("gpu-scheduler", "generate-gpu-mapping", "--free", "--per-pod", "2", "--nodes", "node1,small")

    assert text == "0=node1:2,3\n1=node3:0,1\n2=node3:2,3\n"
    for index, (node, devices) in enumerate((("node1", "2,3"), ("node3", "0,1"), ("node3", "2,3"))):
        town.pod(f"made-{index}", text, devices)
        town.wait_bound(f"made-{index}", node)


@pytest.mark.promise("cli-1", "cli-2")
def test_health_is_an_exit_code(cli: Installed, town: Bench) -> None:
    """0 where all is well, 1 where one card is not."""
    assert {each["health"] for each in cli.items("health")} == {"healthy"}
    cards = [{**objects.card(index), "memoryTotalMiB": 16384} for index in range(4)]
    cards[2] |= {"health": "unhealthy", "temperature": 91}
    town.patch_node("node3", {"metadata": {"annotations": objects.inventory(*cards)}})

    told = [each for each in cli.items("health", code=1) if each["health"] != "healthy"]

    assert [(each["node"], each["device"], each["temperature"]) for each in told] == [("node3", "2", 91)]
    assert cli.items("status")[0]["gpus"]["unhealthy"] == 1


@pytest.mark.promise("cli-5")
def test_watch_tells_each_change(cli: Installed, town: Bench) -> None:
    """What there is, then what happens; Ctrl-C ends it well."""
    lines, objects = cli.start("gpu-scheduler", "watch"), cli.start("gpu-scheduler", "watch", "-o", "json")
    assert lines.stdout is not None
    assert objects.stdout is not None
    # Both have begun when they have said something.
    begun = [lines.stdout.readline(), objects.stdout.readline()]
    time.sleep(2)
    town.delete("train-0")
    town.wait_bound("late-0", "node1")
    time.sleep(2)

    (code, text, complaints), (other_code, data, _) = interrupted(lines), interrupted(objects)

    assert (code, other_code, complaints) == (0, 0, "")
    told = [" ".join(line.split()[1:]) for line in (begun[0] + text).splitlines()]
    assert "node node1 Ready, 4 GPUs, 2 held, 2 free, 0% busy, healthy" in told
    assert f"workload {town.namespace}/train-0 gone" in told
    assert f"workload {town.namespace}/late-0 Scheduled on node1, GPU 1" in told
    events = [json.loads(line) for line in (begun[1] + data).splitlines()]
    assert {event["type"] for event in events} == {"ADDED", "MODIFIED", "DELETED"}
    last = [event["object"] for event in events if event["object"]["name"] == "late-0"][-1]
    (pod,) = [pod for pod in pods_of(town) if pod["metadata"]["name"] == "late-0"]
    assert told_of(last)[:6] == seen_of(pod)[:6]


@pytest.mark.promise("cli-5")
def test_watch_draws_a_screen_on_a_terminal(cli: Installed, town: Bench) -> None:
    """Nodes and workloads, with the cursor back when it ends."""
    code, drawn = cli.on_terminal("gpu-scheduler", "watch", until="late-0")

    assert code == 0
    assert "16 GPUs known, 3 held, 13 free; 3 workloads, 1 pending; Ctrl-C ends" in drawn
    assert drawn.rstrip().endswith("\x1b[?25h")


@pytest.mark.promise("cli-7")
def test_one_namespace_is_enough_for_its_workloads(kinds: ControlPlane, town: Bench, tmp_path: Path) -> None:
    """Somebody who may only look at the pods and GPUWorkloads of a namespace is told of them, and of nothing else."""
    space = f"namespaces/{town.namespace}"
    town.kube.create(f"/api/v1/{space}/serviceaccounts", {"metadata": {"name": "jane"}})
    rights = f"/apis/rbac.authorization.k8s.io/v1/{space}"
    rules = [{"apiGroups": ["", "agentaflow.io"], "resources": ["pods", "gpuworkloads"], "verbs": ["list"]}]
    town.kube.create(f"{rights}/roles", {"metadata": {"name": "look"}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "jane", "namespace": town.namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "look"}
    binding = {"metadata": {"name": "look"}, "roleRef": reference, "subjects": [subject]}
    town.kube.create(f"{rights}/rolebindings", binding)
    jane = Installed(tmp_path, kinds, kinds.service_account_token(town.namespace, "jane"), town.namespace)

    assert [told_of(each) for each in jane.items("workloads")] == [seen_of(pod) for pod in pods_of(town)]
    said = jane.refused("gpu-scheduler", "nodes", code=1)
    assert re.match("cannot list (nodes|pods): HTTP 403: .* is forbidden: .*; ask for the right", said)


@pytest.mark.promise("cli-2")
def test_nobody_leads_is_an_exit_code(cli: Installed, town: Bench) -> None:
    """In a namespace where no scheduler is."""
    (told,) = cli.items("status", "--system-namespace", town.namespace, code=1)

    assert told["leader"] is None


@pytest.mark.promise("cli-8")
def test_kubectl_completes_words(cli: Installed) -> None:
    """By the script that kubectl asks."""
    words = cli.run("kubectl", "__complete", "gpu-scheduler", "st").splitlines()

    assert {"status", "strategy"} <= set(words)
