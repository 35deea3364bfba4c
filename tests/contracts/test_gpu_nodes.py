"""A map compared with the nodes of a cluster, and the map that `make fix-nodes` writes of them."""

from __future__ import annotations

import json
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
    alias, arch, plugin = given.pop("alias", None), given.pop("arch", "amd64"), given.pop("plugin", None)
    labels = {"gpu-node-name": alias} if alias else {}
    if given.pop("control_plane", False):
        labels["node-role.kubernetes.io/control-plane"] = ""
    held = {"names": list(given.pop("held", ())), "unnamed": given.pop("handed_out", 0)}
    body = objects.node(name, labels=labels, **given)
    if devices is not None:
        body["metadata"]["annotations"] = objects.inventory(*listed)
    if plugin is not None:
        body["status"]["allocatable"] = {GPU: str(plugin)}
    body["status"]["nodeInfo"] = {"architecture": arch}
    return {**facts.node_facts(json.loads(json.dumps(body))), "held": held}


# case → (the map, the nodes, tolerations, the host's machine, the sentences)
PROBLEMS: Final[dict[str, tuple[str, list[Any], list[Any], str, list[str]]]] = {
    "all is there": ("0=a:0,1\n1=gpu-b:3\n", [node("a"), node("b", alias="gpu-b")], [], "x86_64", []),
    "nodes are missing": (
        "0=node1:0\n1=node2:0\n2=n10:0\n",
        [node(f"n{number}") for number in range(12)],
        [],
        "",
        [
            (
                "gpu_scheduling_map names node1, node2, and no node has these names or label gpu-node-name with them:"
                " the cluster has n0, n1, n2, n3, n4 and 7 more."
            )
        ],
    ),
    "one alias on two nodes": (
        "0=gpu:0\n",
        [node("a", alias="gpu"), node("b", alias="gpu")],
        [],
        "",
        [
            (
                "gpu_scheduling_map names gpu, and label gpu-node-name=gpu is on a, b: leave it on one (kubectl label"
                " node b gpu-node-name-)."
            )
        ],
    ),
    "a node is not ready, another cordoned": (
        "0=a:0\n1=b:0\n",
        [node("a", ready=False), node("b", unschedulable=True)],
        [],
        "",
        [
            "gpu_scheduling_map names a, and node a is not Ready: see why (kubectl describe node a).",
            "gpu_scheduling_map names b, and node b is cordoned: kubectl uncordon b.",
        ],
    ),
    "the taint of a cordoned node is no second problem": (
        "0=a:0\n",
        [node("a", unschedulable=True, taints=({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},))],
        [],
        "",
        ["gpu_scheduling_map names a, and node a is cordoned: kubectl uncordon a."],
    ),
    "a taint that is not tolerated": (
        "0=a:0\n",
        [node("a", taints=({"key": "sku", "value": "gpu", "effect": "NoExecute"},))],
        TOLERATED,
        "",
        [
            (
                "gpu_scheduling_map names a, and check_tolerations does not tolerate the taint sku=gpu:NoExecute of"
                " node a: add it (example: check_tolerations: [{key: sku, operator: Equal, value: gpu, effect:"
                " NoExecute}])."
            )
        ],
    ),
    "taints that are tolerated, or only preferred": (
        "0=a:0\n",
        [node("a", taints=(TAINT, {"key": "slow", "effect": "PreferNoSchedule"}))],
        TOLERATED,
        "",
        [],
    ),
    "more GPUs than the monitor lists": (
        "0=a:1,4\n",
        [node("a")],
        [],
        "",
        ["gpu_scheduling_map has the line 0=a:1,4, and node a has no GPU 4: it has 0, 1, 2, 3."],
    ),
    "more GPUs than the device plugin advertises": (
        "0=a:2\n",
        [node("a", None, plugin=2)],
        [],
        "",
        ["gpu_scheduling_map has the line 0=a:2, and node a has no GPU 2: it has 0, 1."],
    ),
    "nothing is known of the node's GPUs": ("0=a:7\n", [node("a", None)], [], "", []),
    "a UUID where only a number is known": (f"0=a:{objects.gpu(1)}\n", [node("a", None, plugin=2)], [], "", []),
    "images for another machine": (
        "0=a:0\n",
        [node("a", arch="arm64")],
        [],
        "x86_64",
        [
            (
                "gpu_scheduling_map names a, a node for arm64, and the images are built on this host for amd64: install"
                " from a host of that kind, or give scheduler_image and check_image with digests of images for both."
            )
        ],
    ),
    "images that are not built here": ("0=a:0\n", [node("a", arch="arm64")], [], "", []),
}


@pytest.mark.promise("up-8")
@pytest.mark.parametrize("case", PROBLEMS)
def test_map_that_does_not_fit_is_named(case: str) -> None:
    """Each sentence names the variable, the node and the remedy."""
    text, nodes, tolerations, machine, sentences = PROBLEMS[case]
    cluster = {"nodes": nodes, "node_names": [each["name"] for each in nodes]}

    assert gpu_nodes.map_problems(text, cluster, tolerations, machine) == sentences


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
# case → (the nodes, the present map, replicas, the map that is written, what is said)
MAPS: Final[dict[str, tuple[list[Any], str, int, str, list[str]]]] = {
    "a map that can be fulfilled stays, with its comments": (
        [node("node1"), node("node2")],
        "# ours\n0=node1:0,1\n1=node2:3\n2=node2:3\n",
        0,
        "# ours\n0=node1:0,1\n1=node2:3\n2=node2:3\n",
        [],
    ),
    "unknown nodes are replaced, on the nodes with the most free GPUs": (
        [node("gpu-b", 2), node("gpu-a", 4)],
        "0=node1:0,1\n1=node2:2\n2=node3:0,1,2\n",
        0,
        "0=gpu-a:0,1\n1=gpu-a:2\n2=gpu-b:0,1\n",
        [],
    ),
    "lines that can be fulfilled keep their GPUs": (
        [node("gpu-a", 2)],
        "0=node1:0\n1=gpu-a:0\n",
        0,
        "0=gpu-a:1\n1=gpu-a:0\n",
        [],
    ),
    "held and ill devices are left out": (
        [node("gpu-a", 4, held=["0"], ill=[2])],
        "0=node1:0\n1=node1:1\n2=node1:2\n",
        0,
        "0=gpu-a:1\n1=gpu-a:3\n",
        ["There are free GPUs for 2 lines; 3 were asked for."],
    ),
    "what a device plugin has handed out is left out": (
        [node("gpu-a", None, plugin=3, handed_out=2)],
        "0=node1:0\n1=node1:1\n",
        0,
        "0=gpu-a:0\n",
        ["There are free GPUs for 1 lines; 2 were asked for."],
    ),
    "nodes that take no check pods are left out": (
        [
            node("a", taints=({"key": "dedicated", "effect": "NoSchedule"},)),
            node("b", ready=False),
            node("c", unschedulable=True),
            node("d", 1, taints=(TAINT,)),
        ],
        "0=node1:0\n",
        0,
        "0=d:0\n",
        [],
    ),
    "more lines are asked for": ([node("a", 3)], "0=a:2\n", 3, "0=a:2\n1=a:0\n2=a:1\n", []),
    "fewer lines are asked for": ([node("a")], "0=a:2\n1=a:3\n", 1, "0=a:2\n", []),
    "nothing is known of any GPU": (
        [node("control", None, control_plane=True), node("b", None), node("a", None)],
        "0=node1:0,1\n1=node2:0\n2=node3:0\n",
        0,
        "0=a:0\n1=b:0\n",
        [UNKNOWN, "There are free GPUs for 2 lines; 3 were asked for."],
    ),
}


@pytest.mark.promise("up-9")
@pytest.mark.parametrize("case", MAPS)
def test_map_is_of_nodes_that_exist(case: str) -> None:
    """The map has free and healthy GPUs alone, and a second run leaves it as it is."""
    nodes, present, replicas, text, notes = MAPS[case]
    made = gpu_nodes.map_of_nodes(nodes, present, replicas, TOLERATED)

    assert (made["map"], made["differs"], made["notes"], made["error"]) == (text, text != present, notes, "")
    again = gpu_nodes.map_of_nodes(nodes, text, 0, TOLERATED)
    assert (again["map"], again["differs"]) == (text, False)


def test_no_map_is_made_where_no_node_takes_a_pod() -> None:
    """The sentence says why each node cannot, and how to tolerate a taint."""
    nodes = [node("a", taints=({"key": "sku", "value": "gpu", "effect": "NoSchedule"},)), node("b", 1, held=["0"])]
    made = gpu_nodes.map_of_nodes(nodes, "0=node1:0\n", 0, [])

    assert not made["differs"]
    assert made["error"].startswith(
        "Cannot write a map: no node can take a check pod (a is tainted sku=gpu:NoSchedule, b is without a free GPU)."
    )


def test_present_map_that_is_none_is_an_error() -> None:
    """The parser's own sentence is returned."""
    made = gpu_nodes.map_of_nodes([node("a")], "node1", 0, [])

    assert made["error"].startswith("gpu_scheduling_map: cannot read placement map, line 1")


def test_pods_hold_what_the_scheduler_assigned_and_what_plugins_hand_out() -> None:
    """Observers and finished pods hold nothing."""
    assigned = {"agentaflow.gpu/assigned-devices": "0,2"}
    ours = objects.pod("ours", annotations=assigned, nodeName="a")
    observer = objects.pod("observer", annotations={**assigned, "agentaflow.gpu/observer": "true"}, nodeName="a")
    finished = {**objects.pod("done", annotations=assigned, nodeName="a"), "status": {"phase": "Succeeded"}}
    plugin = objects.pod("plugin", limits={GPU: "2"}, scheduler="default-scheduler", nodeName="b")

    assert facts.held_devices([ours, observer, finished, plugin]) == {
        "a": {"names": ["0", "2"], "unnamed": 0},
        "b": {"names": [], "unnamed": 2},
    }


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"index": null}]', "7"])
def test_list_of_devices_that_cannot_be_read_is_unknown(text: str) -> None:
    """A node with such an annotation has no known devices."""
    body = objects.node("a", annotations={"agentaflow.gpu/devices": text})

    assert facts.node_facts(body)["devices"] is None
