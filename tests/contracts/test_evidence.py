"""The verdicts of the proof, on clusters that are a few lines of data."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contracts.loading import load

Json = dict[str, Any]

MAP = """\
# replica=node:devices
0=node1:0,1
1 = node2 : 2

2=gpu-c:0, 1
"""
UID = "0b5ec1f4-0000-4000-8000-00000000000{}"


evidence = load("roles", "evidence", "filter_plugins", "evidence.py")
EXPECTED = evidence.expectations(MAP, "default", "tests")


def node(name: str, **labels: str) -> Json:
    """Return a ready node."""
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.36.3"},
        },
    }


def pod(namespace: str, name: str, on: str, number: int, *, scheduler: str = "gpu-scheduler") -> Json:
    """Return a running pod with one container."""
    return {
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "uid": UID.format(number), "labels": {"pod-revision": "7"}},
        "spec": {"nodeName": on, "schedulerName": scheduler, "containers": [{"name": "check"}]},
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {
                    "ready": True,
                    "image": "docker.io/library/check:1",
                    "imageID": "docker.io/library/import@sha256:abc",
                }
            ],
        },
    }


def cluster() -> Json:
    """Return a cluster in which everything is as in the map; node3 has the alias gpu-c."""
    places = ("node1", "node2", "node3")
    checks = [pod("default", f"gpu-scheduler-check-{i}", on, i) for i, on in enumerate(places)]
    tests = [pod("tests", f"webhook-test-{i}", on, i + 3) for i, on in enumerate(places)]
    return {"items": [node("node1"), node("node2"), node("node3", **{"gpu-node-name": "gpu-c"}), *checks, *tests]}


def answers(**changed: str) -> list[Json]:
    """Return each container's environment; `changed` is pod name (with _ for -) → its text."""
    reported = ["0,1", "2", "0,1"]
    return [
        {
            "item": asked,
            "rc": 0,
            "stdout": changed.get(
                asked["pod"].replace("-", "_"),
                f"CUDA_VISIBLE_DEVICES={reported[int(asked['pod'][-1])]}\0CUDA_DEVICE_ORDER=PCI_BUS_ID\0HOME=/\0",
            ),
        }
        for asked in evidence.containers(cluster(), EXPECTED)
    ]


def verdicts(found: Json, environments: list[Json]) -> dict[str, str]:
    """Return pod → verdict, for the pods that are not ok."""
    rows = evidence.proof(found, EXPECTED, environments, "gpu-scheduler")
    return {row["name"]: row["verdict"] for row in rows if row["verdict"] != "ok"}


def item(found: Json, name: str) -> Json:
    """Return the cluster's object of that name."""
    chosen: Json = next(each for each in found["items"] if each["metadata"]["name"] == name)
    return chosen


def test_right_placement_is_ok_also_under_an_alias() -> None:
    """Each pod of the map has a row with the node's name in the map, alias or not."""
    rows = evidence.proof(cluster(), EXPECTED, answers(), "gpu-scheduler")

    assert [row["verdict"] for row in rows] == ["ok"] * 6
    assert [row["actual"] for row in rows[:3]] == ["node1:0,1", "node2:2", "gpu-c:0,1"]
    assert [row["expected"] for row in rows] == [row["actual"] for row in rows]


def moved(found: Json, environments: list[Json]) -> None:
    """Bind a check pod to another node."""
    item(found, "gpu-scheduler-check-1")["spec"]["nodeName"] = "node3"


def pending(found: Json, environments: list[Json]) -> None:
    """Take a check pod's node and environment away."""
    del item(found, "gpu-scheduler-check-0")["spec"]["nodeName"]
    environments[0] |= {"rc": 1, "stdout": ""}


def missing(found: Json, environments: list[Json]) -> None:
    """Delete a pod."""
    found["items"].remove(item(found, "webhook-test-2"))


def placed_by_another(found: Json, environments: list[Json]) -> None:
    """Let another scheduler choose the right place."""
    item(found, "gpu-scheduler-check-2")["spec"]["schedulerName"] = "default-scheduler"


@pytest.mark.promise("up-3")
@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (moved, {"gpu-scheduler-check-1": "wrong node"}),
        (pending, {"gpu-scheduler-check-0": "wrong node, wrong devices"}),
        (missing, {"webhook-test-2": "missing"}),
        (placed_by_another, {"gpu-scheduler-check-2": "placed by default-scheduler"}),
    ],
)
def test_a_pod_that_is_not_as_its_map_says_is_wrong(change: Any, wrong: dict[str, str]) -> None:
    """A pod that is not there is a row too, and a right place proves nothing when another scheduler chose it."""
    found, environments = cluster(), answers()
    change(found, environments)

    assert verdicts(found, environments) == wrong


def test_a_pod_with_claims_is_compared_by_the_numbers_of_its_node() -> None:
    """Its container has UUIDs. Which GPU has which, its node's monitor says. There are no bare pods."""
    found, environments = cluster(), answers()
    devices = [{"index": index, "uuid": f"GPU-{index}"} for index in range(3)]
    item(found, "node1")["metadata"]["annotations"] = {"agentaflow.gpu/devices": json.dumps(devices)}
    item(found, "gpu-scheduler-check-0")["spec"]["resourceClaims"] = [{"name": "gpu-scheduler-0"}]
    environments[0]["stdout"] = "CUDA_VISIBLE_DEVICES=GPU-0,GPU-1\0CUDA_DEVICE_ORDER=PCI_BUS_ID\0"

    assert verdicts(found, environments) == {}
    environments[0]["stdout"] = "CUDA_VISIBLE_DEVICES=GPU-1,GPU-0\0CUDA_DEVICE_ORDER=PCI_BUS_ID\0"
    assert verdicts(found, environments) == {"gpu-scheduler-check-0": "wrong devices"}
    names = [each["name"] for each in evidence.expectations(MAP, "default", "tests", "dra")]
    assert names == [f"gpu-scheduler-check-{index}" for index in range(3)]


@pytest.mark.parametrize(
    ("environment", "verdict"),
    [
        ("CUDA_VISIBLE_DEVICES=1,0\0CUDA_DEVICE_ORDER=PCI_BUS_ID\0", "wrong devices"),
        ("CUDA_VISIBLE_DEVICES=\0CUDA_DEVICE_ORDER=PCI_BUS_ID\0", "wrong devices"),
        ("CUDA_DEVICE_ORDER=PCI_BUS_ID\0", "wrong devices"),
        ("CUDA_VISIBLE_DEVICES=0,1\0", "CUDA_DEVICE_ORDER is not PCI_BUS_ID"),
        ("", "wrong devices, CUDA_DEVICE_ORDER is not PCI_BUS_ID"),
    ],
    ids=["other order", "empty", "not set", "no device order", "nothing"],
)
def test_other_environment_is_wrong(environment: str, verdict: str) -> None:
    """The environment of the container's first process is compared, including both orders of devices."""
    assert verdicts(cluster(), answers(gpu_scheduler_check_0=environment)) == {"gpu-scheduler-check-0": verdict}


def users(found: Json, name: str, **annotations: str) -> Json:
    """Make the pod of that name a user's, with these annotations in place of ours. Return it."""
    chosen = item(found, name)
    chosen["metadata"] |= {"labels": {"app": "mine"}, "annotations": annotations}
    return chosen


@pytest.mark.promise("up-3")
@pytest.mark.parametrize(
    ("line", "expected", "verdict"),
    [
        pytest.param("1=gpu-c:2", "gpu-c:2", "wrong node", id="another node"),
        pytest.param("1=node2:7", "node2:7", "wrong devices", id="other devices"),
        pytest.param("0=node1:0\n1=node2:2", "node2:2", "ok", id="as its map says"),
    ],
)
def test_a_users_pod_of_the_same_name_is_compared_with_its_own_map(line: str, expected: str, verdict: str) -> None:
    """The row says that it is a user's. A wrong placement of it refutes ours too."""
    found = cluster()
    users(found, "webhook-test-1", **{"gpu-scheduling-map": line})

    rows = evidence.proof(found, EXPECTED, answers(), "gpu-scheduler")

    (row,) = (row for row in rows if row["name"] == "webhook-test-1")
    assert row["expected"] == f"{expected} (its own map: a user's pod)"
    assert row["verdict"] == verdict
    assert evidence.wrong(rows) == ([] if verdict == "ok" else [row])


@pytest.mark.parametrize(
    ("annotations", "status", "scheduler", "code", "reason"),
    [
        ({"gpu-scheduling-map": "7=node2:2"}, "Running", "gpu-scheduler", 0, "its map has no line for it"),
        ({"gpu-scheduling-map": "any text"}, "Running", "gpu-scheduler", 0, "its map has no line for it"),
        ({}, "Running", "gpu-scheduler", 0, "its map has no line for it"),
        ({"gpu-scheduling-map": "1=node2:2"}, "Pending", "gpu-scheduler", 1, "it does not run"),
        ({"gpu-scheduling-map": "1=node2:2"}, "Running", "default-scheduler", 0, "it has another scheduler"),
        ({"gpu-scheduling-map": "1=node2:2"}, "Running", "gpu-scheduler", 1, "its environment cannot be read"),
    ],
    ids=["no line", "unreadable map", "no map", "pending", "another scheduler", "no program to read it"],
)
def test_a_users_pod_that_proves_nothing_fails_nothing(
    annotations: dict[str, str], status: str, scheduler: str, code: int, reason: str
) -> None:
    """It is a row that says why, and the play goes on."""
    found, environments = cluster(), answers()
    chosen = users(found, "webhook-test-1", **annotations)
    chosen["status"]["phase"], chosen["spec"]["schedulerName"] = status, scheduler
    next(answer for answer in environments if answer["item"]["pod"] == "webhook-test-1")["rc"] = code

    rows = evidence.proof(found, EXPECTED, environments, "gpu-scheduler")

    assert verdicts(found, environments) == {"webhook-test-1": f"not proved: {reason}"}
    assert evidence.wrong(rows) == []


def test_a_users_pod_may_name_its_index() -> None:
    """The annotation decides before the number in the name."""
    found = cluster()
    users(found, "webhook-test-1", **{"gpu-scheduling-map": "0=node2:2", "agentaflow.gpu/index": "0"})

    assert verdicts(found, answers()) == {}


def test_a_check_pod_is_ours_by_its_name() -> None:
    """Only the guide's three names may be a user's: a check pod is compared with the inventory's map in any case."""
    found = cluster()
    users(found, "gpu-scheduler-check-1", **{"gpu-scheduling-map": "1=node3:2"})["spec"]["nodeName"] = "node3"

    assert verdicts(found, answers()) == {"gpu-scheduler-check-1": "wrong node"}


def test_every_container_is_asked() -> None:
    """One container of two with other devices makes the pod wrong."""
    found = cluster()
    item(found, "webhook-test-1")["spec"]["containers"].append({"name": "side"})
    asked = evidence.containers(found, EXPECTED)
    side = {"item": asked[-2], "rc": 0, "stdout": "CUDA_VISIBLE_DEVICES=7\0CUDA_DEVICE_ORDER=PCI_BUS_ID\0"}

    assert asked[-2] == {"namespace": "tests", "pod": "webhook-test-1", "container": "side"}
    assert verdicts(found, [*answers(), side]) == {"webhook-test-1": "wrong devices"}


def test_unreadable_map_is_refused_with_its_line() -> None:
    """The error names the line of the operator's map, with a valid example."""
    with pytest.raises(Exception, match=r'cannot read "0=node1" .*example: 1=node2:0,1'):
        evidence.expectations("0=node1", "default", "tests")


def test_line_without_devices_promises_an_empty_variable() -> None:
    """`5=node1:` means this node and no GPU."""
    (wanted,) = evidence.expectations("5=node1:", "default", "tests")

    assert (wanted["name"], wanted["node"], wanted["devices"]) == ("gpu-scheduler-check-5", "node1", "")


@pytest.mark.promise("up-4")
def test_report_is_current_until_a_pod_differs() -> None:
    """The same rows keep the report; another uid, another value, one pod more or less do not."""
    rows = evidence.proof(cluster(), EXPECTED, answers(), "gpu-scheduler")
    lines = evidence.markdown(rows, ["name", "actual", "uid"])
    report = "\n".join(["# Report", "| pod | actual | uid |", "|---|---|---|", *lines, "", "| node1 | Ready |"])

    assert evidence.tells(report, lines)
    assert not evidence.tells(report, lines[:-1])
    assert not evidence.tells(report, [*lines[:-1], lines[-1].replace("0,1", "0,2")])
    assert not evidence.tells(report.replace(UID.format(0), UID.format(9)), lines)


def test_logs_are_of_the_check_pods_on_the_node() -> None:
    """The node's name is that of the map; the logs of the guide's bare pods are not read."""
    assert evidence.on_nodes(cluster(), EXPECTED, ["gpu-c", "node4"]) == {
        "gpu-c": [{"namespace": "default", "name": "gpu-scheduler-check-2"}],
        "node4": [],
    }


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        pytest.param("0=node1:0\n1=node2:0\n2=node3:0\n3=node4:3\n4=node4:3", ["node3", "node4"], id="kind's map"),
        pytest.param("1=b:0\n0=aks-w-1-vmss000000:0\n2=a:1\n3=b:2", ["b", "a"], id="nodes of other names"),
        pytest.param("0=gpu-c:0", ["gpu-c"], id="one node, by its alias"),
    ],
)
def test_logs_are_of_the_last_two_nodes_of_the_map(text: str, nodes: list[str]) -> None:
    """Where the inventory names none, in the order in which the map's replicas name them first."""
    assert evidence.last_nodes(text) == nodes


def test_report_names_images_as_the_nodes_have_them() -> None:
    """One row for each image: its ID, without the name under which it was imported."""
    assert evidence.images(cluster(), EXPECTED, "system") == [{"image": "check:1", "id": "sha256:abc"}]
