"""What role kind_cluster derives from the state of a cluster, without a cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.contracts import roles
from tests.contracts.loading import load
from tests.contracts.rendering import rendered

if TYPE_CHECKING:
    from pathlib import Path

info = load("roles", "kind_cluster", "library", "kind_cluster_info.py")
network = load("roles", "kind_cluster", "library", "kind_pod_network.py")

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
STARTED = NOW - timedelta(minutes=5)


def stamp(time: datetime) -> str:
    """Return a time as Kubernetes writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000Z")


def container(name: str, role: str = "worker") -> Any:
    """Return a running node as the engine describes it."""
    return info.Container(
        {
            "Name": f"/{name}",
            "Config": {"Image": "node", "Labels": {info.ROLE_LABEL: role}},
            "State": {"Running": True, "StartedAt": stamp(STARTED)},
            "NetworkSettings": {
                "Networks": {"kind": {"IPAddress": "172.18.0.2"}},
                "Ports": {"6443/tcp": [{"HostPort": "4711"}]},
            },
        }
    )


CONTAINERS = [container("c-control-plane", "control-plane"), container("c-worker")]


def ready(status: str) -> list[dict[str, str]]:
    """Return the conditions of an object that is ready, or not."""
    return [{"type": "Ready", "status": status}]


def node(name: str, of: str, status: str = "True") -> dict[str, Any]:
    """Return a Node object of this container."""
    return {
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"providerID": f"kind://docker/c/{of}", "podCIDR": "10.244.1.0/24"},
        "status": {"conditions": ready(status)},
    }


def lease(name: str, age: int) -> dict[str, Any]:
    """Return the node's Lease, renewed `age` seconds ago."""
    metadata = {"name": name, "namespace": "kube-node-lease"}
    return {"kind": "Lease", "metadata": metadata, "spec": {"renewTime": stamp(NOW - timedelta(seconds=age))}}


def dns(started: datetime = NOW - timedelta(minutes=4), status: str = "True") -> dict[str, Any]:
    """Return a CoreDNS pod on node1."""
    return {
        "kind": "Pod",
        "metadata": {"name": "coredns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
        "spec": {"nodeName": "node1"},
        "status": {
            "conditions": ready(status),
            "containerStatuses": [{"state": {"running": {"startedAt": stamp(started)}}}],
        },
    }


def kwok() -> dict[str, Any]:
    """Return a Node object without a machine."""
    return {"kind": "Node", "metadata": {"name": "kwok"}, "spec": {"providerID": "kwok://kwok"}, "status": {}}


CONTROL_PLANE = [node("c-control-plane", "c-control-plane"), lease("c-control-plane", 5)]
WHOLE = [*CONTROL_PLANE, node("node1", "c-worker"), lease("node1", 5), dns()]


GIVEN: dict[str, Any] = {"__kind_cluster_origin": {"network_exists": True}, "_kind_cluster_source": "pull"}


@pytest.mark.promise("up-1")
def test_cluster_has_a_control_plane_and_four_named_workers(tmp_path: Path) -> None:
    """One control plane and four workers, which kubeadm registers as node1 to node4."""
    (cluster,) = rendered(tmp_path, ["kind_cluster"], **GIVEN)
    patches = [yaml.safe_load(each["kubeadmConfigPatches"][0]) for each in cluster["nodes"][1:]]

    assert [each["role"] for each in cluster["nodes"]] == ["control-plane", *["worker"] * 4]
    assert [each["nodeRegistration"]["name"] for each in patches] == ["node1", "node2", "node3", "node4"]


def test_kind_config_is_the_cluster_of_the_default_inventory(tmp_path: Path) -> None:
    """kind-config.yaml has what the role gives kind, without what belongs to a checkout and without kind's defaults."""
    (cluster,) = rendered(tmp_path, ["kind_cluster"], **GIVEN)
    for each in cluster["nodes"]:
        (mark,) = each.pop("extraMounts")
        assert mark["hostPath"] == "/dev/null"
    # A user gives the name on the command line, and kind has these two values where nobody gives them.
    assert cluster.pop("name") == "gpu-scheduler"
    assert cluster.pop("networking") == {"apiServerPort": 0, "disableDefaultCNI": False}

    assert roles.read("kind-config.yaml") == cluster


ROWS = {
    "everything runs": (WHOLE, "ready"),
    "a worker never joined": ([*CONTROL_PLANE, dns()], "incomplete"),
    "the worker has another name": (
        [*CONTROL_PLANE, node("node7", "c-worker"), lease("node7", 5), dns()],
        "different",
    ),
    "a worker's container was removed": ([*WHOLE, node("node2", "c-worker2"), lease("node2", 5)], "incomplete"),
    "a node that kind did not make is ignored": ([*WHOLE, kwok()], "ready"),
    "a kubelet has stopped renewing its Lease": ([*WHOLE[:3], lease("node1", 60), dns()], "settling"),
    "a kubelet has not renewed its Lease since its container started": (
        [*WHOLE[:3], lease("node1", 600), dns()],
        "settling",
    ),
    "a node is not ready": ([*CONTROL_PLANE, node("node1", "c-worker", "False"), *WHOLE[3:]], "settling"),
    "CoreDNS is not ready": ([*WHOLE[:4], dns(status="False")], "settling"),
    "CoreDNS is from before the restart": ([*WHOLE[:4], dns(STARTED - timedelta(minutes=1))], "settling"),
    "CoreDNS has no pod": (WHOLE[:4], "settling"),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_state(row: tuple[list[dict[str, Any]], str]) -> None:
    """Each row has the state in its second column, and a problem if it is not ready."""
    items, state = row

    found = info.judge(CONTAINERS, items, ["node1"], NOW)

    assert found["state"] == state
    assert bool(found["problem"]) == (state != "ready")


def test_a_lease_of_another_namespace_is_no_heartbeat() -> None:
    """A Lease of the same name in another namespace does not count as a heartbeat."""
    foreign = lease("node1", 5)
    foreign["metadata"]["namespace"] = "default"

    assert info.judge(CONTAINERS, [*WHOLE[:3], foreign, dns()], ["node1"], NOW)["state"] == "settling"


NODES = [
    {"name": "node1", "container": "c-worker", "address": "172.18.0.3", "pod_cidr": "10.244.1.0/24"},
    {"name": "node2", "container": "c-worker2", "address": "172.18.0.4", "pod_cidr": "10.244.2.0/24"},
]
SETTLED = "\n---\n".join(
    [
        network.configuration("10.244.1.0/24"),
        "10.244.2.0/24 via 172.18.0.4 dev eth0",
        f"-P POSTROUTING ACCEPT\n-A {network.MASQUERADE}",
    ]
)


def test_settled_node_needs_nothing() -> None:
    """A node in the right state is not changed."""
    assert network.steps(NODES[0], NODES, SETTLED) == []


def test_new_node_gets_its_configuration_last() -> None:
    """The configuration makes a node ready, so routes and translation are set before it."""
    steps = network.steps(NODES[0], NODES, "\n---\n\n---\n")

    assert steps[0] == "ip route replace 10.244.2.0/24 via 172.18.0.4 proto static"
    assert steps[-1].endswith(network.CONFIGURATION)


def test_swapped_address_is_routed_anew() -> None:
    """After a restart with swapped addresses only the route is set again."""
    swapped = SETTLED.replace("172.18.0.4", "172.18.0.9")

    assert network.steps(NODES[0], NODES, swapped) == ["ip route replace 10.244.2.0/24 via 172.18.0.4 proto static"]
