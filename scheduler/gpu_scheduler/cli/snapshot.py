"""What the command line looks at: nodes and pods once, by lists, as the values and the ledger that decisions read."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.controller.objects import GpuWorkloadObject
from gpu_scheduler.core.ledger.availability import NodeDevices, node_devices
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.monitor_leases import MonitorLeases
from gpu_scheduler.core.nodes.nodes import Nodes
from gpu_scheduler.kube.http.client import segment
from gpu_scheduler.kube.lists import FORBIDDEN, NOT_FOUND, list_all
from gpu_scheduler.kube.objects.agentaflow import API, GpuDevice
from gpu_scheduler.kube.objects.decoding import decode_object, decode_part
from gpu_scheduler.kube.objects.leases import read_sighting
from gpu_scheduler.kube.objects.nodes import NodeObject, node_value
from gpu_scheduler.kube.objects.pod_objects import PodObject
from gpu_scheduler.kube.objects.pods import pod_value, read_resident

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpu_scheduler.core.nodes.monitor_leases import MonitorLease
    from gpu_scheduler.core.nodes.nodes import Node
    from gpu_scheduler.core.pods.pod import ForeignPod, Pod
    from gpu_scheduler.core.policy import Policy
    from gpu_scheduler.kube.http.client import ApiClient

    Devices = Mapping[int, GpuDevice]

LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{names.MONITOR}/leases"

_pods = msgspec.json.Decoder(PodObject)
_nodes = msgspec.json.Decoder(NodeObject)
_workloads = msgspec.json.Decoder(GpuWorkloadObject)
_devices = msgspec.json.Decoder(list[GpuDevice] | None)


@dataclass(frozen=True, slots=True)
class ListedPod:
    """One of our pods, and when it was made (RFC 3339)."""

    pod: Pod
    created: str


@dataclass(frozen=True, slots=True)
class ListedNode:
    """A node, and its cards as its monitor lists them: more than decisions read."""

    node: Node
    devices: Devices


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Nodes and our pods, and the ledger that follows from them."""

    nodes: Nodes
    ledger: Ledger
    pods: tuple[Pod, ...]
    devices: Mapping[str, Devices]
    """By node."""

    @property
    def racks(self) -> tuple[NodeDevices, ...]:
        """The cards of every node, and who holds them."""
        return tuple(node_devices(self.nodes, self.ledger))


async def take_snapshot(api: ApiClient, policy: Policy) -> Snapshot:
    """Look at the whole cluster; others' pods are looked at only where a device plugin gives them cards."""
    seen, pods, sightings = await asyncio.gather(
        list_all(api, "nodes", "/api/v1/nodes", read_node),
        pods_of(api, policy.scheduler_name),
        list_all(api, "the monitors' Leases", LEASES, read_sighting, empty={FORBIDDEN, NOT_FOUND}),
    )
    stale = silent(each for _, each in sightings)
    nodes = [replace(each.node, stale=each.node.name in stale) for each in seen]
    residents: list[ForeignPod] = []
    if any(node.advertised is not None for node in nodes):
        selector = others(policy.scheduler_name)
        residents = [each for _, each in await list_all(api, "pods", "/api/v1/pods", read_resident, selector=selector)]
    known, ledger = ledger_of(policy, nodes, (each.pod for each in pods), residents)
    return Snapshot(known, ledger, tuple(each.pod for each in pods), {each.node.name: each.devices for each in seen})


def ledger_of(
    policy: Policy, nodes: Iterable[Node], pods: Iterable[Pod], residents: Iterable[ForeignPod] = ()
) -> tuple[Nodes, Ledger]:
    """The nodes by name, and the ledger of all these."""
    known, ledger = Nodes(), Ledger(policy)
    for node in nodes:
        known.apply(node)
        ledger.apply_node(node)
    for foreign_pod in residents:
        ledger.apply_foreign_pod(foreign_pod)
    for pod in pods:
        ledger.apply(pod)
    return known, ledger


async def pods_of(api: ApiClient, scheduler_name: str, namespace: str | None = None) -> list[ListedPod]:
    """Pods with our schedulerName, of one namespace or of all."""
    path = f"/api/v1/namespaces/{segment(namespace)}/pods" if namespace else "/api/v1/pods"
    return await list_all(api, "pods", path, read_pod, selector=f"spec.schedulerName={scheduler_name}")


async def workloads_of(api: ApiClient, namespace: str | None = None) -> list[GpuWorkloadObject]:
    """GPUWorkloads, of one namespace or of all; none where the cluster does not know the kind."""
    part = f"/namespaces/{segment(namespace)}" if namespace else ""
    path = f"{API}{part}/gpuworkloads"
    return await list_all(api, "GPUWorkloads", path, read_workload, empty={NOT_FOUND})


def others(scheduler_name: str) -> str:
    """The field selector of others' pods that take something of a node: bound, and not finished."""
    return f"spec.schedulerName!={scheduler_name},spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


def silent(sightings: Iterable[MonitorLease]) -> frozenset[str]:
    """The nodes whose monitor has not renewed its Lease in time."""
    freshness, wall = MonitorLeases(), time.time()
    return frozenset(each.node for each in sightings if freshness.seen(each, now=0.0, wall=wall))


def read_pod(raw: bytes | msgspec.Raw) -> ListedPod:
    """JSON of one of our pods."""
    pod = decode_object(_pods, raw)
    return ListedPod(pod_value(pod), pod.metadata.creation_timestamp or "")


def read_node(raw: bytes | msgspec.Raw) -> ListedNode:
    """JSON of a node; a list of cards that cannot be read costs what decisions do not need."""
    node = decode_object(_nodes, raw)
    listed = (node.metadata.annotations or {}).get(names.DEVICES, "")
    return ListedNode(node_value(node), {each.index: each for each in decode_part(_devices, listed.encode()) or ()})


def read_workload(raw: bytes | msgspec.Raw) -> GpuWorkloadObject:
    """JSON of a GPUWorkload."""
    return decode_object(_workloads, raw)
