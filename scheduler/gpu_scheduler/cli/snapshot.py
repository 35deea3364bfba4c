"""A snapshot of the cluster: nodes and pods, listed once, as the core values and the ledger that decisions use."""

from __future__ import annotations

import asyncio
import time
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.cli.installation import missing_right
from gpu_scheduler.cli.published import Published, read_published
from gpu_scheduler.controller.objects import GpuWorkloadObject
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaims
from gpu_scheduler.core.ledger.availability import NodeDevices, node_devices
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.cordons import cordons_in_force
from gpu_scheduler.core.nodes.monitor_leases import MonitorLeases
from gpu_scheduler.core.nodes.nodes import Nodes
from gpu_scheduler.kube.http.client import segment
from gpu_scheduler.kube.lists import NOT_FOUND, UnlistedError, list_all
from gpu_scheduler.kube.objects.agentaflow import API, GpuDevice
from gpu_scheduler.kube.objects.cordons import read_node_cordons
from gpu_scheduler.kube.objects.decoding import decode_object, decode_part
from gpu_scheduler.kube.objects.leases import read_monitor_lease
from gpu_scheduler.kube.objects.nodes import NodeObject, node_value
from gpu_scheduler.kube.objects.pod_objects import PodObject
from gpu_scheduler.kube.objects.pods import pod_value, read_foreign_pod
from gpu_scheduler.monitor.readings import faults_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpu_scheduler.core.nodes.cordons import Cordon
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


@immutable
class Selectors:
    """Which objects the API server lists: a label selector and a field selector, empty for all objects."""

    labels: str = ""
    fields: str = ""


ALL: Final = Selectors()


@immutable
class ListedNode:
    """A node, and its devices as its monitor lists them. They have more fields than decisions use."""

    node: Node
    devices: Devices
    faults: Mapping[int, str]
    """What is wrong with a device, by its index."""


@immutable
class ClusterObjects:
    """Nodes and what holds their devices, as lists or watches show them with the user's rights."""

    nodes: tuple[ListedNode, ...]
    pods: tuple[Pod, ...]
    foreign_pods: tuple[ForeignPod, ...] = ()
    silent: Mapping[str, str] = field(default_factory=dict)
    """The nodes whose monitor has not renewed its Lease in time, and when it last did (RFC 3339)."""
    cordons: Mapping[str, tuple[Cordon, ...]] = field(default_factory=dict)
    """The cordons in force, by node."""
    published: Published = field(default_factory=Published)
    """What drivers publish and claims hold; nothing if the scheduler does not read it."""
    no_leases: str = ""
    """That the monitors' Leases may not be listed, as a sentence; empty if they could be."""
    no_cordons: str = ""
    """Likewise of the GPUNodes, which have the cordons."""

    @property
    def unread(self) -> tuple[str, str, str]:
        """What may not be listed, a sentence each."""
        return self.no_leases, self.no_cordons, self.published.unread

    def scheduler_nodes(self) -> Iterator[Node]:
        """Yield the nodes as the scheduler reads them, with what Leases, cordons and slices say."""
        for each in self.nodes:
            node = each.node
            inventory = self.published.pools.published_for(node) or node.inventory
            cordons = self.cordons.get(node.name, ())
            yield replace(node, stale=node.name in self.silent, cordons=cordons, inventory=inventory)


class Snapshot:
    """Nodes, our pods, and the ledger that is derived from them."""

    def __init__(self, policy: Policy, objects: ClusterObjects) -> None:
        self.objects = objects
        self.pods = objects.pods
        self.listed = {each.node.name: each for each in objects.nodes}
        """The nodes by name, with what their monitors list."""
        self.nodes, self.ledger = Nodes(), Ledger(policy)
        for node in objects.scheduler_nodes():
            self.nodes.apply(node)
            self.ledger.apply_node(node)
        for foreign_pod in objects.foreign_pods:
            self.ledger.apply_foreign_pod(foreign_pod)
        for pod in objects.pods:
            self.ledger.apply(pod)
        allocated = AllocatedClaims(objects.published.pools)
        for claim in objects.published.claims:
            self.ledger.apply_claim(claim.uid, allocated.apply(claim))

    @property
    def node_devices(self) -> tuple[NodeDevices, ...]:
        """The devices of every node, and the pods that hold them."""
        return tuple(node_devices(self.nodes, self.ledger))


async def take_snapshot(api: ApiClient, policy: Policy, chosen: Selectors = ALL) -> Snapshot:
    """List the chosen nodes and what holds their devices. UnlistedError if nodes or pods may not be listed."""
    return Snapshot(policy, await list_objects(api, policy, chosen))


async def list_objects(
    api: ApiClient, policy: Policy, chosen: Selectors = ALL, *, every_foreign_pod: bool = False
) -> ClusterObjects:
    """List the chosen nodes, and all pods of ours. `unread` says what else the user may not list.

    Pods of other schedulers are listed if a node has a device plugin for GPUs, or `every_foreign_pod`: they use CPU and
    memory. UnlistedError if nodes or pods may not be listed.
    """
    nodes, pods, (leases, no_leases), (cordons, no_cordons), published = await asyncio.gather(
        list_all(api, "nodes", "/api/v1/nodes", read_node, selector=chosen.fields, labels=chosen.labels),
        pods_of(api, policy.scheduler_name),
        read_monitor_leases(api),
        read_cordons(api),
        read_published(api, policy),
    )
    foreign_pods: list[tuple[str, ForeignPod]] = []
    if every_foreign_pod or any(each.node.advertised is not None for each in nodes):
        selector = others(policy.scheduler_name)
        foreign_pods = await list_all(
            api, "pods of other schedulers", "/api/v1/pods", read_foreign_pod, selector=selector
        )
    return ClusterObjects(
        tuple(nodes),
        tuple(pods),
        tuple(each for _, each in foreign_pods),
        silent_monitors(leases, wall=time.time()),
        cordons,
        published,
        no_leases,
        no_cordons,
    )


async def pods_of(
    api: ApiClient, scheduler_name: str, namespace: str | None = None, chosen: Selectors = ALL
) -> list[Pod]:
    """List the chosen pods with our schedulerName in one namespace, or in all if it is None."""
    path = f"/api/v1/namespaces/{segment(namespace)}/pods" if namespace else "/api/v1/pods"
    fields = ",".join(filter(None, (f"spec.schedulerName={scheduler_name}", chosen.fields)))
    return await list_all(api, "pods", path, read_pod, selector=fields, labels=chosen.labels)


async def workloads_of(
    api: ApiClient, namespace: str | None = None, chosen: Selectors = ALL
) -> list[GpuWorkloadObject]:
    """List the chosen GPUWorkloads in one namespace, or in all if it is None; none if the kind is not installed."""
    part = f"/namespaces/{segment(namespace)}" if namespace else ""
    return await list_all(
        api,
        "GPUWorkloads",
        f"{API}{part}/gpuworkloads",
        read_workload,
        selector=chosen.fields,
        labels=chosen.labels,
        empty={NOT_FOUND},
    )


def others(scheduler_name: str) -> str:
    """Return the field selector of other schedulers' pods that use resources of a node: bound and not finished."""
    return f"spec.schedulerName!={scheduler_name},spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


async def read_cordons(api: ApiClient) -> tuple[dict[str, tuple[Cordon, ...]], str]:
    """List the cordons in force, by node. If the user may not, return none, and a sentence about the missing right."""
    try:
        found = await list_all(api, "GPUNodes", f"{API}/gpunodes", read_node_cordons, empty={NOT_FOUND})
    except UnlistedError as error:
        return {}, missing_right(error, "list gpunodes.agentaflow.io")
    now = time.time()
    return {name: cordons_in_force(each.cordons, now) for name, each in found}, ""


async def read_monitor_leases(api: ApiClient) -> tuple[list[MonitorLease], str]:
    """List the monitors' Leases. If the user may not, return none, and the sentence about the missing right."""
    try:
        leases = await list_all(api, "the monitors' Leases", LEASES, read_monitor_lease, empty={NOT_FOUND})
    except UnlistedError as error:
        return [], missing_right(error, f"list leases -n {names.MONITOR}")
    return [each for _, each in leases], ""


def silent_monitors(leases: Iterable[MonitorLease], *, wall: float) -> dict[str, str]:
    """Return the nodes whose monitor has not renewed its Lease in time by `wall`, and when it last did.

    `wall` is in seconds since the epoch.
    """
    monitor_leases = MonitorLeases()
    return {each.node: each.renewed or "" for each in leases if monitor_leases.seen(each, now=0.0, wall=wall)}


def read_pod(raw: bytes | msgspec.Raw) -> Pod:
    """Read the JSON of one of our pods, with all its containers. msgspec.ValidationError if it is no pod."""
    return pod_value(decode_object(_pods, raw))


def read_node(raw: bytes | msgspec.Raw) -> ListedNode:
    """Read the JSON of a node. msgspec.ValidationError if it is no node.

    If the monitor's list of devices cannot be read, `devices` is empty.
    """
    node = decode_object(_nodes, raw)
    annotations = node.metadata.annotations or {}
    listed = decode_part(_devices, annotations.get(names.DEVICES, "").encode()) or ()
    devices = {each.index: each for each in listed}
    return ListedNode(node_value(node), devices, faults_of(annotations.get(names.STATUS, "")))


def read_workload(raw: bytes | msgspec.Raw) -> GpuWorkloadObject:
    """Read the JSON of a GPUWorkload. msgspec.ValidationError if it is no GPUWorkload."""
    return decode_object(_workloads, raw)
