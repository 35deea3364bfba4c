"""Pods and nodes as anybody could read them: what a pod holds, with whom it may share, and where it could go now.

LAW: written from the contract, not from the scheduler: nothing of core/ is imported. For simulated clusters only.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from simulator.api_server.store import Object

SCHEDULER: Final = "gpu-scheduler"
CARD_MEMORY: Final = 16384
_PREFIX: Final = "agentaflow.gpu/"
_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
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
def _cards(text: str) -> dict[str, int]:
    return {str(card["index"]): card["memoryTotalMiB"] for card in json.loads(text) if card["health"] == "healthy"}


class Seen:
    """One pod."""

    __slots__ = ("_given", "_meta", "_spec", "_status", "devices", "map", "name", "node", "scheduler", "uid")

    def __init__(self, made: Object) -> None:
        """Read what every question needs."""
        self._meta, self._spec, self._status = made["metadata"], made["spec"], made["status"]
        self._given: Mapping[str, str] = self._meta.get("annotations") or {}
        self.name: str = self._meta["name"]
        self.uid: str = self._meta["uid"]
        self.scheduler: str = self._spec["schedulerName"]
        self.node: str = self._spec.get("nodeName", "")
        self.map = self._given.get("gpu-scheduling-map", "")
        assigned = self._given.get(_PREFIX + "assigned-devices", "")
        self.devices: tuple[str, ...] = tuple(assigned.split(",")) if assigned else ()

    @property
    def ended(self) -> bool:
        """It has stopped for good."""
        return self._status["phase"] in _ENDED

    @property
    def deleting(self) -> bool:
        """Somebody wants it gone."""
        return "deletionTimestamp" in self._meta

    @property
    def holds(self) -> bool:
        """It is ours, has a node and has not ended: terminating or not."""
        return self.scheduler == SCHEDULER and bool(self.node) and not self.ended

    @property
    def told(self) -> bool:
        """Whether its owner can read why it waits."""
        return any(
            each["type"] == "PodScheduled"
            and each["status"] == "False"
            and each["reason"] in _REASONS
            and ":" in each["message"]
            for each in self._status.get("conditions", ())
        )

    @property
    def cpu(self) -> int:
        """What it takes of its node."""
        return int(self._spec["containers"][0]["resources"]["requests"]["cpu"])

    @property
    def count(self) -> int:
        """How many cards it asks for by number."""
        return int(self._given.get(_PREFIX + "count", "0"))

    @property
    def memory(self) -> int:
        """MiB that it takes of each card."""
        return int(self._given.get(_PREFIX + "memory", "0"))

    @property
    def shares(self) -> bool:
        """It leaves the rest of its cards to others that say the same."""
        return self._given.get(_PREFIX + "exclusive") == "false"

    @property
    def index(self) -> int | None:
        """The line that it was given."""
        text = self._given.get(_PREFIX + "assigned-index")
        return None if text is None else int(text)

    @property
    def bound_by(self) -> str | None:
        """Who says that he bound it."""
        return self._given.get(_PREFIX + "assigned-by") if self.node else None

    @property
    def workload(self) -> tuple[str, str, str]:
        """With whom it divides its map's lines."""
        owner = next(iter(self._meta.get("ownerReferences", ())), None)
        return (owner["kind"], owner["name"], self.map) if owner else ("", "", self.map)

    @property
    def own_index(self) -> int | None:
        """The line that it brings along."""
        labels = self._meta.get("labels") or {}
        for label in ("apps.kubernetes.io/pod-index", "batch.kubernetes.io/job-completion-index"):
            if label in labels:
                return int(labels[label])
        tail = self.name.rpartition("-")[2]
        return int(tail) if tail.isdigit() and "generateName" not in self._meta else None

    @property
    def env(self) -> str | None:
        """The devices that it is told literally; empty where it reads them; None where nobody told it."""
        for entry in self._spec["containers"][0].get("env", ()):
            if entry["name"] == _VISIBLE:
                return str(entry.get("value", ""))
        return None

    def lines(self) -> dict[int, tuple[str, tuple[str, ...]]]:
        """Its map."""
        return _lines(self.map)

    def disagreement(self) -> str | None:
        """What its node, annotations and environment say about different places."""
        if self._given.get(_PREFIX + "assigned-node") != self.node:
            return f"bound to {self.node}, assigned to {self._given.get(_PREFIX + 'assigned-node')}"
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


def may_share(pod: Seen, other: Seen, device: str) -> bool:
    """Whether both hold the card by the rules."""
    if pod.shares and other.shares:
        return True
    if not pod.map or pod.workload != other.workload or pod.index is None or pod.index == other.index:
        return False
    lines = pod.lines()
    return all(index in lines and device in lines[index][1] for index in (pod.index, other.index or 0))


def usable(node: Object) -> bool:
    """Whether it takes pods."""
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"])
    return ready and not node["spec"].get("unschedulable")


def room(node: Object) -> int:
    """Its CPUs."""
    return int(node["status"]["allocatable"]["cpu"])


def inventory(node: Object) -> dict[str, int]:
    """The memory of each of its healthy cards."""
    return _cards(node["metadata"]["annotations"][_PREFIX + "devices"])


class View:
    """A cluster at one moment."""

    def __init__(self, nodes: Mapping[str, Object], pods: Iterable[Seen]) -> None:
        """All nodes by name, and all pods."""
        self._nodes = nodes
        self._pods = list(pods)

    def place_for(self, pod: Seen) -> str | None:
        """A node where the pod could be now, by everything that the contract says; None: there is none."""
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
                return name
        return None

    def _takes(self, name: str, pod: Seen) -> bool:
        node = self._nodes.get(name)
        if node is None or not usable(node):
            return False
        return sum(each.cpu for each in self._pods if each.node == name and not each.ended) + pod.cpu <= room(node)

    def _holders(self, name: str, device: str) -> list[Seen]:
        return [each for each in self._pods if each.holds and each.node == name and device in each.devices]

    def _free(self, name: str, devices: Iterable[str], pod: Seen, index: int) -> bool:
        cards, lines = inventory(self._nodes[name]), pod.lines()
        return all(
            device in cards
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
            allowed = all(pod.shares and each.shares for each in holders)
            fitting += allowed and left >= pod.memory
        return fitting >= pod.count
