"""Automatic placement as the requirements state it: every placement filters and scores every node.

A model for tests: it must share no code with the scheduler but the values that it reads.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from gpu_scheduler.core.nodes.inventory import UNREAD, Device, Health
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.count_request import CountRequest, Strategy
from gpu_scheduler.core.policy import Sharing

GPU = "nvidia.com/gpu"
Key = Callable[[Device], tuple[int, ...]]
MORE_THAN_THE_NODE_HAS = "InsufficientResources, more than the node has"
ORDER = [
    "GpuNotFound",
    "NodeAffinityMismatch",
    "InsufficientGpuMemory",
    MORE_THAN_THE_NODE_HAS,
    "TaintNotTolerated",
    "NodeUnschedulable",
    "GpuUnhealthy",
    "NodeNotReady",
    "NotEnoughGpus",
    "InsufficientResources",
    "PortInUse",
]
"""Of one node, the first reason is reported; of several nodes, the last."""


@dataclass(frozen=True)
class BoundPod:
    """A bound pod, ours or foreign; `number` gives the order of the binds."""

    name: str
    node: str
    number: int
    devices: tuple[str, ...] = ()
    memory: int = 0
    shared: bool = False
    sharing_any: bool = False
    limit: int = 0
    cpu: int = 0
    port: bool = False


@dataclass(frozen=True)
class PodRequest:
    """What a pod requests."""

    request: CountRequest
    strategy: Strategy
    sharing_any: bool = False
    observer: bool = False
    limit: int = 0
    cpu: int = 0
    port: bool = False
    zone: str = ""


@dataclass(frozen=True)
class NaiveCluster:
    """All nodes and all bound pods."""

    nodes: tuple[Node, ...]
    pods: tuple[BoundPod, ...]
    sharing: Sharing
    goal: int = 80

    def pods_on(self, node: Node) -> list[BoundPod]:
        return [each for each in self.pods if each.node == node.name]

    def holders(self, node: Node, index: int) -> list[BoundPod]:
        plugin = node.advertised is not None
        return [each for each in self.pods_on(node) if str(index) in each.devices and not (plugin and each.limit)]

    def place(self, pod: PodRequest) -> tuple[str, tuple[int, ...]] | str:
        """Return node and devices, or the reason that is reported."""
        answers = {node.name: self.fitting(node, pod) for node in self.nodes}
        fits = {name: devices for name, devices in answers.items() if isinstance(devices, list)}
        if not fits:
            return max((str(answer) for answer in answers.values()), key=ORDER.index, default="GpuNotFound")
        by_name = {node.name: node for node in self.nodes}
        if pod.strategy is Strategy.ROUND_ROBIN:
            name, devices = self.round_robin({name: (by_name[name], devices) for name, devices in fits.items()}, pod)
        else:
            choices = {name: self.best(by_name[name], devices, pod) for name, devices in fits.items()}
            name = min(choices, key=lambda name: (self.score(by_name[name], choices[name], pod), natural(name)))
            devices = choices[name]
        if self.by_number(by_name[name], pod):
            return name, tuple(range(pod.request.count))
        return name, tuple(sorted(device.index for device in devices))

    def by_number(self, node: Node, pod: PodRequest) -> bool:
        return node.advertised is not None and pod.limit > 0

    def fitting(self, node: Node, pod: PodRequest) -> list[Device] | str:
        """Return the node's devices that fit, or the reason why too few fit."""
        every = [] if node.inventory is None else list(node.inventory.devices)
        typed = [device for device in every if pod.request.gpu_type.lower() in device.model.lower()]
        fitting = self.fitting_by_number if self.by_number(node, pod) else self.fitting_by_name
        return fitting(node, pod, every, typed)

    def fitting_by_number(
        self, node: Node, pod: PodRequest, every: list[Device], typed: list[Device]
    ) -> list[Device] | str:
        """Return the devices where the device plugin chooses among them: only their number counts."""
        left = node.allocatable.get(GPU, 0) - sum(each.limit for each in self.pods_on(node))
        named = any(each.devices and not each.limit for each in self.pods_on(node))
        failure = ""
        if typed != every or (node.advertised or 0) < pod.request.count:
            failure = "GpuNotFound"
        elif min(device.memory or 0 for device in every) < pod.request.memory:
            failure = "InsufficientGpuMemory"
        elif named or left < pod.request.count:
            failure = "NotEnoughGpus"
        return self.first_failure(failure, node, pod) or every

    def fitting_by_name(self, node: Node, pod: PodRequest, _: list[Device], typed: list[Device]) -> list[Device] | str:
        """Return the devices where the scheduler chooses among them."""
        count = pod.request.count
        devices = [device for device in typed if not device.mig_devices]
        unknown = node.advertised is not None and not pod.observer and any(each.limit for each in self.pods_on(node))
        free = [device for device in devices if not unknown and self.free(node, device, pod)]
        healthy = [device for device in free if not self.unhealthy(node, device)]
        failure = ""
        if len(devices) < count:
            failure = "GpuNotFound"
        elif sum((device.memory or 0) >= pod.request.memory for device in devices) < count:
            failure = "InsufficientGpuMemory"
        elif len(healthy) < count:
            failure = "GpuUnhealthy" if len(free) >= count else "NotEnoughGpus"
        return self.first_failure(failure, node, pod) or healthy

    def first_failure(self, of_devices: str, node: Node, pod: PodRequest) -> str:
        """Return the first reason in ORDER of all failures of the node, or an empty text."""
        here = self.pods_on(node)
        used = sum(each.cpu for each in here)
        # A pod that requests no cpu fits although the other pods use more cpu than the node has.
        no_cpu = pod.cpu > 0 and used + pod.cpu > node.allocatable["cpu"]
        failures = {
            of_devices: of_devices,
            MORE_THAN_THE_NODE_HAS: node.allocatable["pods"] < 1 or pod.cpu > node.allocatable["cpu"],
            "NodeNotReady": not node.ready,
            "NodeUnschedulable": node.unschedulable,
            "TaintNotTolerated": node.taints,
            "NodeAffinityMismatch": pod.zone and node.labels.get("zone") != pod.zone,
            "InsufficientResources": len(here) >= node.allocatable["pods"] or no_cpu,
            "PortInUse": pod.port and any(each.port for each in here),
        }
        return min((reason for reason, fails in failures.items() if fails), key=ORDER.index, default="")

    def unhealthy(self, node: Node, device: Device) -> bool:
        return node.stale or node.readings.get(device.index, UNREAD).health is Health.UNHEALTHY

    def free_memory(self, node: Node, device: Device) -> int:
        requested = sum(each.memory for each in self.holders(node, device.index))
        return max(0, (device.memory or 0) - max(requested, node.readings.get(device.index, UNREAD).used))

    def free(self, node: Node, device: Device, pod: PodRequest) -> bool:
        if pod.observer:
            return (device.memory or 0) >= pod.request.memory
        if (
            node.readings.get(device.index, UNREAD).utilization > self.goal
            or self.free_memory(node, device) < pod.request.memory
        ):
            return False
        return all(self.may_share(each, pod) for each in self.holders(node, device.index))

    def may_share(self, other: BoundPod, pod: PodRequest) -> bool:
        if self.sharing is not Sharing.SAME_WORKLOAD:
            return self.sharing is Sharing.ANY
        return (other.shared and not pod.request.exclusive) or (other.sharing_any and pod.sharing_any)

    def best(self, node: Node, devices: list[Device], pod: PodRequest) -> list[Device]:
        """Return the devices of one node that the strategy takes."""
        keys: dict[Strategy, Key] = {
            Strategy.LEAST_UTILIZED: lambda device: (
                self.utilization(node, device),
                len(self.held(node, device, pod)),
                device.index,
            ),
            Strategy.BEST_FIT: lambda device: (self.left(node, device, pod), device.index),
            Strategy.PRIORITY: lambda device: (-self.left(node, device, pod), device.index),
        }
        key = keys[pod.strategy]
        return sorted(devices, key=lambda device: (self.degraded(node, device), *key(device)))[: pod.request.count]

    def score(self, node: Node, devices: list[Device], pod: PodRequest) -> tuple[int, ...]:
        """Return the score of the node with these devices; the lowest score wins."""
        degraded = sum(self.degraded(node, device) for device in devices)
        total, busy = self.busy(node, pod)
        if pod.strategy is Strategy.LEAST_UTILIZED:
            pods = sum(len(self.held(node, device, pod)) for device in devices)
            return degraded, sum(self.utilization(node, device) for device in devices), pods, 1000 * busy // total
        spare = total - busy - sum(not self.held(node, device, pod) for device in devices)
        sign = -1 if pod.strategy is Strategy.PRIORITY else 1
        return degraded, sign * sum(self.left(node, device, pod) for device in devices), sign * spare

    def busy(self, node: Node, pod: PodRequest) -> tuple[int, int]:
        """Return how many devices the node has, and how many of them are held."""
        if self.by_number(node, pod):
            return node.allocatable.get(GPU, 0), sum(each.limit for each in self.pods_on(node))
        devices = node.inventory.devices if node.inventory is not None else ()
        return len(devices), sum(bool(self.holders(node, device.index)) for device in devices)

    def left(self, node: Node, device: Device, pod: PodRequest) -> int:
        return (device.memory or 0) if self.by_number(node, pod) else self.free_memory(node, device)

    def held(self, node: Node, device: Device, pod: PodRequest) -> list[BoundPod]:
        return [] if self.by_number(node, pod) else self.holders(node, device.index)

    def utilization(self, node: Node, device: Device) -> int:
        return node.readings.get(device.index, UNREAD).utilization

    def degraded(self, node: Node, device: Device) -> bool:
        return node.readings.get(device.index, UNREAD).health is Health.DEGRADED

    def round_robin(self, fits: dict[str, tuple[Node, list[Device]]], pod: PodRequest) -> tuple[str, list[Device]]:
        """Return the node and devices that follow the newest pod's last device, with the fewest degraded devices."""
        holders = [each for each in self.pods if each.devices]
        newest = max(holders, key=lambda each: each.number, default=None)
        place = None if newest is None else (natural(newest.node), self.last_device(newest))
        found = []
        for node, devices in fits.values():
            same_node = place is not None and place[0] == natural(node.name)
            after = place[1] if place is not None and same_node else -1
            taken = sorted(
                devices, key=lambda device: (self.degraded(node, device), device.index <= after, device.index)
            )
            taken = taken[: pod.request.count]
            if place is None:
                round_ = 0
            elif same_node:
                round_ = 0 if all(device.index > after for device in taken) else 2
            else:
                round_ = 0 if natural(node.name) > place[0] else 1
            degraded = sum(self.degraded(node, device) for device in taken)
            found.append(((degraded, round_, natural(node.name)), node.name, taken))
        _, name, taken = min(found, key=lambda each: each[0])
        return name, taken

    def last_device(self, pod: BoundPod) -> int:
        node = next((node for node in self.nodes if node.name == pod.node), None)
        if node is not None and node.advertised is not None and pod.limit:
            return 10**6
        return max(map(int, pod.devices))


def natural(name: str) -> list[int | str]:
    """Return a sort key in which the numbers of a name are ordered as numbers."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]
