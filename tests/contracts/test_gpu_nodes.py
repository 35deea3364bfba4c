"""A map compared with the nodes of a cluster, and the map that `make fix-nodes` writes of them."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest

from tests import objects
from tests.contracts.cluster_modules import load_part
from tests.contracts.loading import load

facts = load_part("node_facts")
gpu_nodes = load("plugins", "filter", "gpu_nodes.py")

GPU: Final = "nvidia.com/gpu"
TAINT: Final = {"key": GPU, "effect": "NoSchedule"}
TOLERATED: Final = [{"key": GPU, "operator": "Exists"}]


def node(name: str, devices: int | None = 4, **given: Any) -> Any:
    """Return what is read of a node. `devices` are listed by a monitor; None if nobody lists them."""
    listed = [] if devices is None else [objects.device(index) for index in range(devices)]
    for index in given.pop("ill", ()):
        listed[index]["health"] = "unhealthy"
    for index in given.pop("worn", ()):
        listed[index]["health"] = "degraded"
    alias, arch, plugin = given.pop("alias", None), given.pop("arch", "amd64"), given.pop("plugin", None)
    labels = {"gpu-node-name": alias} if alias else {}
    if given.pop("control_plane", False):
        labels["node-role.kubernetes.io/control-plane"] = ""
    holders = [{"limit": 0, "values": [value], "map": ""} for value in given.pop("held", ())]
    holders += given.pop("holders", ())
    body = objects.node(name, labels=labels, **given)
    if devices is not None:
        body["metadata"]["annotations"] = objects.inventory(*listed)
    if plugin is not None:
        body["status"]["allocatable"] = {GPU: str(plugin)}
    body["status"]["nodeInfo"] = {"architecture": arch}
    return {**facts.node_facts(json.loads(json.dumps(body))), "holders": holders}


def limited(number: int, *values: str) -> Any:
    """Return a pod whose limit asks a device plugin for so many devices, as it is read; `values` name those it has."""
    return {"limit": number, "values": list(values), "map": ""}


GONE: Final = [node(f"n{number}") for number in range(12)]
TWINS: Final = [node("a", alias="gpu"), node("b", alias="gpu")]
SKU: Final = {"key": "sku", "value": "gpu", "effect": "NoExecute"}
CORDONED: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
# case → (the map, the nodes, what each sentence names)
PROBLEMS: Final[dict[str, tuple[str, list[Any], list[str]]]] = {
    "all is there": ("0=a:0,1\n1=gpu-b:3\n", [node("a"), node("b", alias="gpu-b")], []),
    "nodes are missing": ("0=node1:0\n1=node2:0\n2=n10:0\n", GONE, ["names node1, node2, .* n4 and 7 more"]),
    "one alias on two nodes": (
        "0=gpu:0\n",
        TWINS,
        ["gpu-node-name=gpu is on a, b: .*kubectl label node b gpu-node-name-"],
    ),
    "a node is not ready, another cordoned": (
        "0=a:0\n1=b:0\n",
        [node("a", ready=False), node("b", unschedulable=True, taints=(CORDONED,))],
        ["node a is not Ready: .*kubectl describe node a", "node b is cordoned: kubectl uncordon b"],
    ),
    "a taint that is not tolerated": (
        "0=a:0\n",
        [node("a", taints=(SKU,))],
        ["sku=gpu:NoExecute of node a: .*key: sku"],
    ),
    "taints that are tolerated, or only preferred": (
        "0=a:0\n",
        [node("a", taints=(TAINT, {"key": "slow", "effect": "PreferNoSchedule"}))],
        [],
    ),
    "more GPUs than the monitor lists": (
        "0=a:1,4\n",
        [node("a")],
        ["line 0=a:1,4, and node a has no GPU 4: it has 0, 1"],
    ),
    "nothing is known of the node's GPUs": ("0=a:7\n", [node("a", None)], []),
    "images for another machine": ("0=a:0\n", [node("a", arch="arm64")], ["names a, a node for arm64, .* for amd64"]),
}


@pytest.mark.promise("up-8")
@pytest.mark.parametrize("case", PROBLEMS)
def test_map_that_does_not_fit_is_named(case: str) -> None:
    """Each sentence names the variable, the node and the remedy."""
    text, nodes, named = PROBLEMS[case]
    cluster = {"nodes": nodes, "node_names": [each["name"] for each in nodes]}

    problems = gpu_nodes.map_problems(text, cluster, TOLERATED, "x86_64")

    assert len(problems) == len(named)
    for problem, part in zip(problems, named, strict=True):
        assert problem.startswith("gpu_scheduling_map ")
        assert re.search(part, problem)


def test_images_that_are_not_built_here_may_be_for_any_machine() -> None:
    """There is no machine of a builder to compare with."""
    cluster = {"nodes": [node("a", arch="arm64")], "node_names": ["a"]}

    assert gpu_nodes.map_problems("0=a:0\n", cluster, [], "") == []


def test_unknown_images_are_a_warning_only_on_other_machines() -> None:
    """Nothing is said where all nodes are of the usual kind."""
    assert gpu_nodes.map_warnings({"nodes": [node("a")]}) == []
    (warning,) = gpu_nodes.map_warnings({"nodes": [node("a"), node("b", arch="arm64")]})
    assert warning.startswith(
        "The map has nodes for arm64: scheduler_image and check_image must be images for that too"
    )


UNKNOWN: Final = (
    "No node says which GPUs it has, by a monitor or a device plugin: one line for each worker, with GPU 0."
)
# case → (the nodes, the present map, the map that is written)
MAPS: Final[dict[str, tuple[list[Any], str, str]]] = {
    "a map that can be fulfilled stays, with its comments": (
        [node("node1"), node("node2")],
        "# ours\n0=node1:0,1\n1=node2:3\n2=node2:3\n",
        "# ours\n0=node1:0,1\n1=node2:3\n2=node2:3\n",
    ),
    "unknown nodes are replaced, on the nodes with the most free GPUs": (
        [node("gpu-b", 2), node("gpu-a", 4)],
        "0=node1:0,1\n1=node2:2\n2=node3:0,1,2\n",
        "0=gpu-a:0,1\n1=gpu-a:2\n2=gpu-b:0,1\n",
    ),
    "lines that can be fulfilled keep their GPUs": (
        [node("gpu-a", 2)],
        "0=node1:0\n1=gpu-a:0\n",
        "0=gpu-a:1\n1=gpu-a:0\n",
    ),
    "a device that shows wear is left out": ([node("gpu-a", 2, worn=[0])], "0=gpu-a:0\n", "0=gpu-a:1\n"),
    "names of each kind are of one device": (
        [node("gpu-a", 4, held=[objects.gpu(0), "1,+2"])],
        "0=gpu-a:0,1,2\n",
        "0=gpu-a:3\n",
    ),
    "a UUID where only numbers are known may be any device": (
        [node("gpu-a", None, plugin=4, held=[objects.gpu(0)]), node("gpu-b", None, plugin=1)],
        "0=gpu-a:0\n",
        "0=gpu-b:0\n",
    ),
    "of a pod that says nothing else its map counts, by name and by alias": (
        [node("gpu-a", 4, alias="big", holders=[{"limit": 0, "values": [], "map": "0=big:0\n1=gpu-a:1\n2=gpu-b:2"}])],
        "0=node1:0\n",
        "0=gpu-a:2\n",
    ),
    "a limit is only a count where no device plugin is": (
        [node("gpu-a", 4, holders=[limited(2, "0,1")])],
        "0=node1:0\n",
        "0=gpu-a:2\n",
    ),
    "where a device plugin is, the devices of a pod with a limit have numbers of its container": (
        [node("gpu-a", 4, plugin=4, holders=[limited(1, "0")])],
        "0=gpu-a:0\n",
        "0=gpu-a:0\n",
    ),
    "a line without GPUs stays on a node that takes pods": (
        [node("gpu-a", 1), node("cpu", None), node("off", None, ready=False)],
        "0=node1:0\n1=cpu:\n2=off:\n",
        "0=gpu-a:0\n1=cpu:\n2=gpu-a:\n",
    ),
    "nodes that take no check pods are left out": (
        [
            node("a", taints=({"key": "dedicated", "effect": "NoSchedule"},)),
            node("b", ready=False),
            node("c", unschedulable=True),
            node("d", 1, taints=(TAINT,)),
        ],
        "0=node1:0\n",
        "0=d:0\n",
    ),
    "held and ill devices are left out": (
        [node("gpu-a", 4, held=["0"], ill=[2])],
        "0=node1:0\n1=node1:1\n2=node1:2\n",
        "0=gpu-a:1\n1=gpu-a:3\n",
    ),
    "what a device plugin has handed out is left out": (
        [node("gpu-a", None, plugin=3, holders=[limited(1), limited(1)])],
        "0=node1:0\n1=node1:1\n",
        "0=gpu-a:0\n",
    ),
    "nothing is known of any GPU": (
        [node("control", None, control_plane=True), node("b", None), node("a", None)],
        "0=node1:0,1\n1=node2:0\n2=node3:0\n",
        "0=a:0\n1=b:0\n",
    ),
}


@pytest.mark.promise("up-9")
@pytest.mark.parametrize("case", MAPS)
def test_map_is_of_nodes_that_exist(case: str) -> None:
    """The map has free and healthy GPUs alone, and a second run leaves it as it is. What is missing is said."""
    nodes, present, text = MAPS[case]
    made = gpu_nodes.map_of_nodes(nodes, present, 0, TOLERATED)
    fewer, asked = (f"There are free GPUs for {len(text.splitlines())} lines; ", len(present.splitlines()))

    assert (made["map"], made["differs"], made["error"]) == (text, text != present, "")
    assert bool(made["change"]) == made["differs"]
    assert [each for each in made["notes"] if each != UNKNOWN] == (
        [f"{fewer}{asked} were asked for."] if len(text.splitlines()) < asked else []
    )
    assert (UNKNOWN in made["notes"]) is (case == "nothing is known of any GPU")
    again = gpu_nodes.map_of_nodes(nodes, text, 0, TOLERATED)
    assert (again["map"], again["differs"]) == (text, False)


def test_more_lines_may_be_asked_for() -> None:
    """They get GPUs that are free."""
    assert gpu_nodes.map_of_nodes([node("a", 3)], "0=a:2\n", 3, TOLERATED)["map"] == "0=a:2\n1=a:0\n2=a:1\n"


def test_no_map_is_made_where_no_node_takes_a_pod() -> None:
    """The sentence says why each node cannot, and how to tolerate a taint."""
    nodes = [node("a", taints=({"key": "sku", "value": "gpu", "effect": "NoSchedule"},)), node("b", 1, held=["0"])]
    made = gpu_nodes.map_of_nodes(nodes, "0=node1:0\n", 0, [])

    assert not made["differs"]
    assert made["error"].startswith(
        "Cannot write a map: no node can take a check pod (a is tainted sku=gpu:NoSchedule, b is without a free GPU)."
    )


def test_no_map_is_made_where_every_gpu_is_held() -> None:
    """A worker of whose GPUs nothing is known takes no line while other nodes say what they have."""
    made = gpu_nodes.map_of_nodes([node("gpu-a", 1, held=["0"]), node("cpu", None)], "0=node1:0\n", 0, [])

    assert not made["differs"]
    assert "(cpu is without a free GPU, gpu-a is without a free GPU)" in made["error"]


def test_change_has_the_lines_of_both_maps() -> None:
    """A line that stays has no mark; comments are no change."""
    made = gpu_nodes.map_of_nodes([node("gpu-a")], "# ours\n0=node1:0\n1=gpu-a:3\n", 0, [])

    assert made["change"] == ["- 0=node1:0", "+ 0=gpu-a:0", "  1=gpu-a:3"]


def test_present_map_that_is_none_is_an_error() -> None:
    """The parser's own sentence is returned."""
    made = gpu_nodes.map_of_nodes([node("a")], "node1", 0, [])

    assert made["error"].startswith("gpu_scheduling_map: cannot read placement map, line 1")


ASSIGNED: Final = {"agentaflow.gpu/assigned-devices": "0,2"}
KEEP: Final = {**ASSIGNED, "agentaflow.gpu/keep-env": "true"}
NAMED: Final = "0=a:1\n"
# case → (the pod, what it says of its devices; nothing where it holds none)
HOLDERS: Final[dict[str, tuple[Any, dict[str, Any]]]] = {
    "what the scheduler assigned": (objects.pod("p", NAMED, annotations=ASSIGNED), {"values": ["0,2"]}),
    "what it assigned goes before the environment": (
        objects.pod("p", NAMED, objects.literal("7"), annotations=ASSIGNED),
        {"values": ["0,2"]},
    ),
    "what a pod keeps comes on top": (
        objects.pod("p", NAMED, objects.literal("7"), annotations=KEEP),
        {"values": ["0,2", "7"]},
    ),
    "the map and what a pod keeps, where another scheduler has bound it": (
        objects.pod("p", NAMED, objects.literal("7"), annotations={"agentaflow.gpu/keep-env": "true"}),
        {"values": ["7"], "map": NAMED},
    ),
    "the map, where nothing else names its devices": (objects.pod("p", NAMED), {"map": NAMED}),
    "a limit": (objects.pod("p", scheduler="default-scheduler", limits={GPU: "2"}), {"limit": 2}),
    "a limit of an init container": (
        objects.pod(
            "p",
            scheduler="default-scheduler",
            limits={GPU: "1"},
            initContainers=[
                {"name": "setup", "resources": {"limits": {GPU: "3"}}},
                {"name": "sidecar", "restartPolicy": "Always", "resources": {"limits": {GPU: "1"}}},
            ],
        ),
        {"limit": 3},
    ),
    "a limit of a sidecar": (
        objects.pod(
            "p",
            scheduler="default-scheduler",
            limits={GPU: "1"},
            initContainers=[{"name": "sidecar", "restartPolicy": "Always", "resources": {"limits": {GPU: "1"}}}],
        ),
        {"limit": 2},
    ),
    "an observer": (objects.pod("p", NAMED, annotations={**ASSIGNED, "agentaflow.gpu/observer": "true"}), {}),
    "a pod that reads an annotation which it does not have": (objects.pod("p", NAMED, objects.reading()), {}),
    "a pod of another scheduler": (objects.pod("p", NAMED, annotations=ASSIGNED, scheduler="default-scheduler"), {}),
}


@pytest.mark.promise("up-9")
@pytest.mark.parametrize("case", HOLDERS)
def test_pods_hold_devices_by_the_rule_of_the_scheduler(case: str) -> None:
    """A terminating pod holds too; a pod that has finished or has no node holds nothing."""
    pod, held = HOLDERS[case]
    bound = {**pod, "spec": {**pod["spec"], "nodeName": "a"}}
    ending = {**bound, "metadata": {**bound["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    finished = {**bound, "status": {"phase": "Succeeded"}}
    expected = {"limit": 0, "values": [], "map": "", **held}

    assert facts.holders([pod, finished]) == {}
    assert facts.holders([bound, ending]) == ({"a": [expected, expected]} if held else {})


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"index": null}]', "7"])
def test_list_of_devices_that_cannot_be_read_is_unknown(text: str) -> None:
    """A node with such an annotation has no known devices."""
    body = objects.node("a", annotations={"agentaflow.gpu/devices": text})

    assert facts.node_facts(body)["devices"] is None
