"""Rules for the checker: which devices a pod holds, with which pods it may share them, and where it would fit now.

LAW: implements docs/contract.md for simulated clusters, and imports nothing of core/.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from simulator.api_server.store import Object

SCHEDULER: Final = "gpu-scheduler"
DEVICE_MEMORY: Final = 16384
_PREFIX: Final = "agentaflow.gpu/"
_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_CLAIM: Final = "gpu-scheduler-"
_UUID_INDEX: Final = slice(8, 12)
"""Where the UUID of a simulated device has its index."""
_REASONS: Final = frozenset({"Unschedulable", "SchedulerError"})
_ENDED: Final = frozenset({"Succeeded", "Failed"})


@lru_cache(maxsize=512)
def _lines(text: str) -> dict[int, tuple[str, tuple[str, ...]]]:
    found = {}
    for line in filter(None, text.splitlines()):
        index, _, place = line.partition("=")
        node, _, devices = place.partition(":")
        found[int(index)] = (node, tuple(devices.split(",")))
    return found


@lru_cache(maxsize=512)
def _healthy_devices(text: str) -> dict[str, int]:
    return {str(each["index"]): each["memoryTotalMiB"] for each in json.loads(text) if each["health"] == "healthy"}


class Seen:
    """One pod, as the API server has it."""

    __slots__ = (
        *("_given", "_meta", "_spec", "_status", "assigned", "claims", "devices"),
        *("map", "name", "node", "scheduler", "uid"),
    )

    def __init__(self, made: Object) -> None:
        """Read the fields that all rules need."""
        self._meta, self._spec, self._status = made["metadata"], made["spec"], made["status"]
        self._given: Mapping[str, str] = self._meta.get("annotations") or {}
        self.name: str = self._meta["name"]
        self.uid: str = self._meta["uid"]
        self.scheduler: str = self._spec["schedulerName"]
        self.node: str = self._spec.get("nodeName", "")
        self.map = self._given.get("gpu-scheduling-map", "")
        self.claims: tuple[str, ...] = tuple(each["resourceClaimName"] for each in self._spec.get("resourceClaims", ()))
        assigned = self._given.get(_PREFIX + "assigned-devices", "")
        self.assigned: tuple[str, ...] = tuple(assigned.split(",")) if assigned else ()
        self.devices = tuple(map(_index_of, self.assigned))

    @property
    def ended(self) -> bool:
        """Whether it has finished."""
        return self._status["phase"] in _ENDED

    @property
    def deleting(self) -> bool:
        """Whether it is being deleted."""
        return "deletionTimestamp" in self._meta

    @property
    def holds(self) -> bool:
        """Whether it is ours, is bound and has not finished; a terminating pod holds."""
        return self.scheduler == SCHEDULER and bool(self.node) and not self.ended

    @property
    def has_reason(self) -> bool:
        """Whether its condition gives a reason for waiting."""
        return any(
            each["type"] == "PodScheduled"
            and each["status"] == "False"
            and each["reason"] in _REASONS
            and ":" in each["message"]
            for each in self._status.get("conditions", ())
        )

    @property
    def cpu(self) -> int:
        """The CPUs that it requests."""
        return int(self._spec["containers"][0]["resources"]["requests"]["cpu"])

    @property
    def together(self) -> bool:
        """Whether the pods of its workload start together."""
        return self._given.get(_PREFIX + "start") == "together"

    @property
    def count(self) -> int:
        """How many devices it asks for by count."""
        return int(self._given.get(_PREFIX + "count", "0"))

    @property
    def memory(self) -> int:
        """MiB that it takes of each device."""
        return int(self._given.get(_PREFIX + "memory", "0"))

    @property
    def shares(self) -> bool:
        """Whether it shares the memory that it leaves of its devices with pods that allow the same."""
        return self._given.get(_PREFIX + "exclusive") == "false"

    @property
    def index(self) -> int | None:
        """Its assigned index."""
        text = self._given.get(_PREFIX + "assigned-index")
        return None if text is None else int(text)

    @property
    def bound_by(self) -> str | None:
        """The replica that its annotation names as binder."""
        return self._given.get(_PREFIX + "assigned-by") if self.node else None

    @property
    def workload(self) -> tuple[str, str, str]:
        """The workload that shares the lines of its map."""
        owner = next(iter(self._meta.get("ownerReferences", ())), None)
        return (owner["kind"], owner["name"], self.map) if owner else ("", "", self.map)

    @property
    def own_index(self) -> int | None:
        """The index that the pod itself carries."""
        labels = self._meta.get("labels") or {}
        for label in ("apps.kubernetes.io/pod-index", "batch.kubernetes.io/job-completion-index"):
            if label in labels:
                return int(labels[label])
        tail = self.name.rpartition("-")[2]
        return int(tail) if tail.isdigit() and "generateName" not in self._meta else None

    @property
    def env(self) -> str | None:
        """The literal value of its variable; empty if it comes from a field; None without the variable."""
        for entry in self._spec["containers"][0].get("env", ()):
            if entry["name"] == _VISIBLE:
                return str(entry.get("value", ""))
        return None

    def lines(self) -> dict[int, tuple[str, tuple[str, ...]]]:
        """Parse its map."""
        return _lines(self.map)

    def disagreement(self) -> str | None:
        """How its node, annotations and environment contradict each other; None if they agree."""
        if self._given.get(_PREFIX + "assigned-node") != self.node:
            return f"bound to {self.node}, assigned to {self._given.get(_PREFIX + 'assigned-node')}"
        if self.claims and set(self.assigned) & set(self.devices):
            return f"has claims, and sees GPUs {','.join(self.assigned)}, which are no UUIDs"
        if self.env is None:
            return "no container sees its GPUs"
        if self.env and tuple(self.env.split(",")) != self.devices:
            return f"sees GPUs {self.env}, assigned {','.join(self.devices)}"
        return self._off_its_line() if self.map else self._miscounted()

    def _miscounted(self) -> str | None:
        return None if len(set(self.devices)) == self.count else f"asks for {self.count}, has {self.devices}"

    def _off_its_line(self) -> str | None:
        if self.index is None or self.lines().get(self.index) != (self.node, self.devices):
            return (
                f"line {self.index} of its map is {self.lines().get(self.index or 0)}, not {self.node}:{self.devices}"
            )
        if self.own_index is not None and self.own_index != self.index:
            return f"is number {self.own_index} and has line {self.index}"
        return None


def _index_of(device: str) -> str:
    """Return the index of a device that has this index or UUID."""
    return str(int(device[_UUID_INDEX], 16)) if device.startswith("GPU-") else device


class Claim:
    """One ResourceClaim, as the API server has it."""

    __slots__ = ("devices", "name", "ours", "reserved")

    def __init__(self, made: Object) -> None:
        """Read the fields that the rules need."""
        status = made.get("status", {})
        results = status["allocation"]["devices"]["results"] if "allocation" in status else ()
        self.name: str = made["metadata"]["name"]
        self.ours = self.name.startswith(_CLAIM)
        self.devices = frozenset((each["pool"], each["device"].removeprefix("gpu-")) for each in results)
        """Node and index of each device that it is allocated."""
        self.reserved = frozenset(each["uid"] for each in status.get("reservedFor", ()))


def may_share(pod: Seen, other: Seen, device: str) -> bool:
    """Whether the rules let both pods hold the device."""
    if pod.shares and other.shares:
        return True
    if not pod.map or pod.workload != other.workload or pod.index is None or pod.index == other.index:
        return False
    lines = pod.lines()
    return all(index in lines and device in lines[index][1] for index in (pod.index, other.index or 0))


def usable(node: Object) -> bool:
    """Whether the node accepts pods."""
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"])
    return ready and not node["spec"].get("unschedulable")


def room(node: Object) -> int:
    """Give the CPUs of the node."""
    return int(node["status"]["allocatable"]["cpu"])


def inventory(node: Object) -> dict[str, int]:
    """Give the memory of each healthy device."""
    return _healthy_devices(node["metadata"]["annotations"][_PREFIX + "devices"])


def claimed(nodes: Mapping[str, Object], claims: Iterable[Claim]) -> frozenset[tuple[str, str]]:
    """Give node and index of each device that claims keep from pods: those of others, and all of some nodes.

    A device that its node does not publish now may be any of this node, for a replica that never saw it.
    """
    named = [(claim.ours, node, device) for claim in claims for node, device in claim.devices]
    lost = {node for _, node, device in named if node in nodes and device not in inventory(nodes[node])}
    of_others = {(node, device) for ours, node, device in named if not ours}
    return frozenset(of_others | {(node, device) for node in lost for device in inventory(nodes[node])})


class KeptLines:
    """The lines of started workloads that none of their pods has."""

    def __init__(self, pods: Iterable[Seen]) -> None:
        """All pods that hold devices."""
        self.started = {pod.workload: pod.lines() for pod in pods if pod.together}
        self._had = {(pod.workload, pod.index) for pod in pods}

    def missing(self, pod: Seen) -> list[tuple[str, tuple[str, ...]]]:
        """Give node and devices of each line of the pod's own map that no pod of its workload has."""
        return [line for index, line in pod.lines().items() if (pod.workload, index) not in self._had]

    def kept_from(self, pod: Seen, node: str, device: str) -> str | None:
        """Give the name of another workload for which the device is kept; None if there is none."""
        for workload, lines in self.started.items():
            if workload == pod.workload:
                continue
            for index, (name, devices) in lines.items():
                if name == node and device in devices and (workload, index) not in self._had:
                    return workload[1]
        return None


class View:
    """The nodes and pods of a cluster at one time."""

    def __init__(
        self, nodes: Mapping[str, Object], pods: Iterable[Seen], claimed: frozenset[tuple[str, str]] = frozenset()
    ) -> None:
        """All nodes by name, all pods, and the node and the index of each device that claims of others have."""
        self._nodes = nodes
        self._pods = list(pods)
        self._claimed = claimed
        self._kept = KeptLines([pod for pod in self._pods if pod.holds])

    def place_for(self, pod: Seen) -> str | None:
        """Give a node where the pod fits now by the contract; None if there is none."""
        if pod.env is None:
            return None
        if pod.count:
            return next((name for name in self._nodes if self._has(name, pod)), None)
        if not pod.map:
            return None
        lines, own = pod.lines(), pod.own_index
        held = {each.index for each in self._pods if each.holds and each.workload == pod.workload}
        for index, (name, devices) in lines.items():
            mine = own is None or index == own
            if mine and index not in held and self._takes(name, pod) and self._free(name, devices, pod, index):
                return name if self._all_start(pod) else None
        return None

    def _all_start(self, pod: Seen) -> bool:
        """Whether every line that no pod of the workload has could be had too, if the pods start together."""
        if not pod.together or pod.workload in self._kept.started:
            return True
        missing = self._kept.missing(pod)
        number = Counter(name for name, _ in missing)
        return all(
            self._takes(name, pod, number[name]) and self._free(name, devices, pod, None) for name, devices in missing
        )

    def _takes(self, name: str, pod: Seen, number: int = 1) -> bool:
        """Whether the node takes this number of such pods."""
        node = self._nodes.get(name)
        if node is None or not usable(node):
            return False
        return sum(each.cpu for each in self._pods if each.node == name and not each.ended) + number * pod.cpu <= room(
            node
        )

    def _holders(self, name: str, device: str) -> list[Seen]:
        return [each for each in self._pods if each.holds and each.node == name and device in each.devices]

    def _free(self, name: str, devices: Iterable[str], pod: Seen, index: int | None) -> bool:
        known, lines = inventory(self._nodes[name]), pod.lines()
        return all(
            device in known
            and (name, device) not in self._claimed
            and self._kept.kept_from(pod, name, device) is None
            and all(
                each.workload == pod.workload
                and each.index is not None
                and each.index != index
                and device in lines[each.index][1]
                for each in self._holders(name, device)
            )
            for device in devices
        )

    def _has(self, name: str, pod: Seen) -> bool:
        if not self._takes(name, pod):
            return False
        fitting = 0
        for device, total in inventory(self._nodes[name]).items():
            holders = self._holders(name, device)
            left = total - sum(each.memory for each in holders)
            allowed = (name, device) not in self._claimed and self._kept.kept_from(pod, name, device) is None
            allowed &= all(pod.shares and each.shares for each in holders)
            fitting += allowed and left >= pod.memory
        return fitting >= pod.count
