"""What a tenant does to a scheduler while another tenant's pods arrive: four loads that its own rights allow."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec

from bench.cluster_objects import GPUS_PER_NODE, REQUESTS, ROOM, node_name
from bench.contenders.prepared_requests import Request
from bench.gated_process import GatedProcess
from bench.tenant_process import Answers, Orders
from gpu_scheduler.core.pods.bounds import MAX_LINE_DEVICES
from gpu_scheduler.core.pods.placement_map import MAX_BYTES
from tests import objects as shapes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.cluster import ClusterUnderTest
    from bench.cluster_objects import Object

NAMESPACE: Final = "tenant"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
LARGE_NODE: Final = "large-node"
"""A node whose GPUs one line of a map can name."""
_IN_FLIGHT: Final = 16
"""Requests of the tenant at a time: enough that the API server never waits for the tenant."""
_OWNERS: Final = ("train", "other")
_RBAC: Final = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"


@dataclass(frozen=True, slots=True)
class TenantLoad:
    """The pods that the tenant creates. `placed`: they get GPUs; otherwise they wait."""

    pods: tuple[Object, ...]
    placed: bool = False
    patched: bool = False
    """Whether it changes the owners of its pods all the time, of those that wait and of those that hold GPUs."""


def replicas(nodes: int, *, pods: int = 1000) -> TenantLoad:
    """Return replicas that take any line of a map with as many lines, of which each names a held GPU."""
    text = _lines(nodes, pods)
    return TenantLoad(tuple(_replica(number, text) for number in range(pods)))


def requests(nodes: int, *, pods: int = 1000) -> TenantLoad:
    """Return pods of which each requests other resources, and more GPUs than any node has free."""
    del nodes
    return TenantLoad(
        tuple(
            shapes.pod(
                f"request-{number:04}",
                None,
                shapes.reading(),
                annotations={"agentaflow.gpu/count": "2"},
                requests={**REQUESTS, "cpu": f"{100 + number}m"},
            )
            for number in range(pods)
        )
    )


def patches(nodes: int, *, pods: int = 100) -> TenantLoad:
    """Return replicas with the longest map that is admitted, and patch them and as many pods that hold GPUs."""
    text = shapes.first_lines(_lines(nodes, MAX_BYTES), MAX_BYTES)
    return TenantLoad(tuple(_replica(number, text) for number in range(pods)), patched=True)


def large_lines(nodes: int, *, pods: int = 24) -> TenantLoad:
    """Return pods that share as many GPUs of a node as a line may name."""
    del nodes
    devices = ",".join(map(str, range(MAX_LINE_DEVICES)))
    text = "".join(f"{number}={LARGE_NODE}:{devices}\n" for number in range(pods))
    shared = {"agentaflow.gpu/sharing": "any"}
    return TenantLoad(
        tuple(
            shapes.pod(f"large-{number}", text, shapes.literal(devices), annotations=shared) for number in range(pods)
        ),
        placed=True,
    )


def holders(nodes: int) -> tuple[Object, ...]:
    """Return the tenant's pods that hold all GPUs of each node but the first."""
    devices = ",".join(map(str, range(1, GPUS_PER_NODE)))
    return tuple(
        shapes.pod(f"held-{number}", f"{number}={node_name(number)}:{devices}\n", shapes.literal(devices))
        for number in range(nodes)
    )


def prepare(cluster: ClusterUnderTest, nodes: int, *, large: bool) -> None:
    """Create the tenant's account, its rights, its pods that will hold GPUs, and, if asked, the `large` node."""
    cluster.make_namespaces([NAMESPACE])
    room = {**ROOM, "nvidia.com/gpu": str(MAX_LINE_DEVICES)}
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "patch"]}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAMESPACE}
    account = {"kind": "ServiceAccount", "name": NAMESPACE, "namespace": NAMESPACE}
    meta = {"name": NAMESPACE}
    cluster.make(
        [
            *([("/api/v1/nodes", shapes.node(LARGE_NODE, room=room))] if large else []),
            (f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": meta}),
            (f"{_RBAC}/roles", {"metadata": meta, "rules": rules}),
            (f"{_RBAC}/rolebindings", {"metadata": meta, "roleRef": role, "subjects": [account]}),
            *((PODS, body) for body in holders(nodes)),
        ]
    )


def start(cluster: ClusterUnderTest, load: TenantLoad) -> GatedProcess[Answers]:
    """Start the tenant's process. After `go` it creates its pods, and patches until its standard input is closed."""
    token = cluster.plane.service_account_token(NAMESPACE, NAMESPACE)
    creations = [Request(PODS, msgspec.json.encode(body).decode()) for body in load.pods]
    path = cluster.folder / "tenant.json"
    orders = Orders(cluster.header(token, _IN_FLIGHT), creations, list(_patches(load)))
    path.write_bytes(msgspec.json.encode(orders))
    return GatedProcess(Answers, [sys.executable, "-m", "bench.tenant_process", str(path)], path.with_suffix(".log"))


def _replica(number: int, text: str) -> Object:
    return shapes.child("Job", f"replica-{number:04}x", text)


def _lines(nodes: int, count: int) -> str:
    """Return `count` lines of a map, each with a held GPU and, in turn with others, no other."""
    places = ((node_name(number % nodes), 1 + number // nodes % (GPUS_PER_NODE - 1)) for number in range(count))
    return "".join(f"{number}={node}:{device}\n" for number, (node, device) in enumerate(places))


def _patches(load: TenantLoad) -> Iterable[Request]:
    """Yield for each owner in turn a patch of each replica and of a pod that holds GPUs."""
    names = chain.from_iterable((body["metadata"]["name"], f"held-{number}") for number, body in enumerate(load.pods))
    bodies = (msgspec.json.encode({"metadata": {"ownerReferences": [_owner(name)]}}).decode() for name in _OWNERS)
    told = list(names) if load.patched else []
    return (Request(f"{PODS}/{name}", body) for body in bodies for name in told)


def _owner(name: str) -> Object:
    (owner,) = shapes.child("Job", "any", "")["metadata"]["ownerReferences"]
    return {**owner, "name": name, "uid": f"{name}-uid"}
