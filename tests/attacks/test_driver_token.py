"""S7: a stolen token of a driver writes its own node's ResourceSlices, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.attacks.installed_cluster import NOBODYS, TENANT, lacks, refusal
from tests.integration.accounts import allow_everywhere, rights
from tests.integration.driven_node import ACCOUNT, API, DRIVER, NAMESPACE, POOLS
from tests.messages import denial
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.attacks.installed_cluster import InstalledCluster, Request, Tenant
    from tests.objects import Object

OTHER: Final = "gpu.example.com"
NO_DRIVER: Final = "an account that is no driver writes a ResourceSlice of a driver of ours"


def resource_slice(name: str, node: str = "node1", driver: str = DRIVER, pool: str = "", generation: int = 1) -> Object:
    """Return a ResourceSlice with one device."""
    spec = {
        "driver": driver,
        "nodeName": node,
        "pool": {"name": pool or node, "generation": generation, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}],
    }
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def claim(device: str) -> Object:
    """Return the status of a claim that has a device of node1."""
    result = {"request": "gpu", "driver": DRIVER, "pool": "node1", "device": device}
    return {"status": {"allocation": {"devices": {"results": [result]}}}}


@pytest.fixture(autouse=True, scope="module")
def _in_force(cluster: InstalledCluster) -> Iterator[None]:
    """The policy of role driver is in force. All ResourceSlices are deleted afterwards, as a kubelet does it."""
    probe = resource_slice("probe", "node2")
    path = f"{POOLS}?dryRun=All"
    eventually(
        "the policy is in force",
        lambda: "'gpu-scheduler-driver'" in cluster.driver("node1").call("POST", path, probe)[1].get("message", ""),
        seconds=20,
    )
    yield
    assert cluster.kube.call("DELETE", POOLS)[0] == 200


def denied(name: str, **values: str) -> str:
    """Return the end of an answer to who writes ResourceSlice `forged`."""
    return denial("driver", name, slice="forged", **values)


def of_another_node(node: str, its: str) -> str:
    return denied("a driver writes a ResourceSlice of another node", node=node, its=its)


OF_ANOTHER_DRIVER: Final = denied("a driver writes a ResourceSlice of another driver", driver=OTHER)
FORGED: Final[dict[str, tuple[Object, str]]] = {
    "of another node": (resource_slice("forged", "node2"), of_another_node("node node2", "node node1")),
    "of another driver": (resource_slice("forged", driver=OTHER), OF_ANOTHER_DRIVER),
    "of another node and driver": (resource_slice("forged", "node2", OTHER), OF_ANOTHER_DRIVER),
    "of all nodes": (
        {
            **(every := resource_slice("forged")),
            "spec": {**{key: value for key, value in every["spec"].items() if key != "nodeName"}, "allNodes": True},
        },
        of_another_node("no node", "node node1"),
    ),
    # The highest generation of a pool hides all others.
    "of its own node in another node's pool": (
        resource_slice("forged", pool="node2", generation=1000),
        denied("a driver writes a ResourceSlice of another pool", pool="node2", its="node1"),
    ),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_stolen_token_publishes_no_device_but_its_nodes(cluster: InstalledCluster, what: str) -> None:
    """Neither of another node, nor of another driver, nor in another pool."""
    body, reported = FORGED[what]

    assert refusal(cluster.driver("node1").call("POST", POOLS, body)).endswith(reported)


@pytest.mark.parametrize(
    ("node", "driver"), [("node2", DRIVER), ("node1", OTHER)], ids=["another node", "another driver"]
)
def test_a_stolen_token_changes_no_foreign_slice(cluster: InstalledCluster, node: str, driver: str) -> None:
    """It cannot change or delete the ResourceSlice of another node or of another driver."""
    name = f"foreign-{node}"
    writer = cluster.driver(node) if driver == DRIVER else cluster.kube
    status, before = writer.call("POST", POOLS, resource_slice(name, node, driver))
    assert status == 201, before
    changed = {**before, "spec": {**before["spec"], "devices": []}}

    refusal(cluster.driver("node1").call("PUT", f"{POOLS}/{name}", changed))
    refusal(cluster.driver("node1").call("DELETE", f"{POOLS}/{name}"))

    assert cluster.kube.get(f"{POOLS}/{name}") == before


RIGHTS: Final[dict[str, Request]] = {
    **NOBODYS,
    "deletes all ResourceSlices": ("DELETE", POOLS, None),
    "allocates a claim": ("PATCH", f"{API}/namespaces/default/resourceclaims/any/status", claim("gpu-0")),
    "lists claims": ("GET", f"{API}/resourceclaims", None),
    "deletes the DeviceClass": ("DELETE", f"{API}/deviceclasses/{DRIVER}", None),
    "makes a pod": ("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", {"metadata": {"name": "spy"}}),
    "lists all pods": ("GET", "/api/v1/pods", None),
    "writes its node": (
        "PATCH",
        "/api/v1/nodes/node1",
        {"metadata": {"annotations": {"agentaflow.gpu/devices": "[]"}}},
    ),
    "writes its GPUNode": ("PATCH", "/apis/agentaflow.io/v1/gpunodes/node1", {"spec": {"cordoned": []}}),
    "reads Secrets beside it": ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets", None),
}


@pytest.mark.parametrize("what", RIGHTS)
def test_a_stolen_token_has_no_other_right(cluster: InstalledCluster, what: str) -> None:
    """RBAC refuses all other requests."""
    lacks(cluster.driver("node1"), RIGHTS[what], f"{NAMESPACE}:{ACCOUNT}")


def test_the_driver_publishes_its_node(cluster: InstalledCluster) -> None:
    """It creates, changes and deletes the ResourceSlices of its node."""
    driver, path = cluster.driver("node3"), f"{POOLS}/own"

    status, stored = driver.call("POST", POOLS, resource_slice("own", "node3"))
    assert status == 201, stored
    status, answer = driver.call("PUT", path, {**stored, "spec": {**stored["spec"], "devices": []}})
    assert status == 200, answer
    assert driver.call("DELETE", path)[0] == 200


def test_a_token_without_a_node_publishes_nothing(cluster: InstalledCluster) -> None:
    """One that was requested for the account alone names no node."""
    refused = refusal(cluster.account(ACCOUNT, NAMESPACE).call("POST", POOLS, resource_slice("forged")))

    assert refused.endswith(of_another_node("node node1", "no node"))


def test_nobody_else_says_which_devices_a_driver_has(cluster: InstalledCluster, new_tenant: Tenant) -> None:
    """Another driver's account writes its own ResourceSlices, and may delete ours, as a kubelet does; no more."""
    tenant = new_tenant
    verbs = ("get", "create", "update", "patch", "delete", "deletecollection")
    slices = rights("resourceslices", *verbs, group="resource.k8s.io")
    allow_everywhere(cluster.kube, tenant.namespace.name, TENANT, "another-driver", slices)
    own = resource_slice("theirs", "node4", OTHER)
    eventually("the account may write", lambda: tenant.call("POST", POOLS, own)[0] in {201, 409})
    status, ours = cluster.driver("node4").call("POST", POOLS, resource_slice("ours", "node4"))
    assert status == 201, ours

    for method, path, forged in (
        ("POST", POOLS, resource_slice("forged", "node4", generation=1000)),
        ("PUT", f"{POOLS}/ours", {**ours, "spec": {**ours["spec"], "devices": []}}),
    ):
        said = denial("driver", NO_DRIVER, slice=forged["metadata"]["name"], user=tenant.user)
        assert refusal(tenant.call(method, path, forged)).endswith(said)
    labelled = {"metadata": {"labels": {"example.com/any": "label"}}}
    assert tenant.call("PATCH", f"{POOLS}/ours", labelled, "merge-patch+json")[0] == 200
    selector = "?fieldSelector=spec.nodeName=node4"
    assert tenant.call("DELETE", f"{POOLS}{selector}")[0] == 200
    assert cluster.kube.call("GET", f"{POOLS}{selector}")[1]["items"] == []
