"""A reference of which placements are allowed: a search through all received pods and all open binds.

LAW: shares no code with the ledger, the scheduling queue or the decision; of the package it uses the values alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_scheduler.core.policy import Sharing
from gpu_scheduler.core.refs import Owner
from unit_tests.core.build import pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_scheduler.core.nodes.nodes import Node
    from gpu_scheduler.core.pods.pod import Pod

ASSIGNED = "agentaflow.gpu/assigned-devices"
ASSIGNED_INDEX = "agentaflow.gpu/assigned-index"
UNLIMITED = 1024
"""How many devices a node without an inventory may have, and a namespace without a limit may hold."""


@dataclass(frozen=True)
class Request:
    """What a pod asks for: its line of a map, any line of it, or a count of devices."""

    lines: tuple[tuple[str, str], ...] = ()
    index: int | None = None
    count: int = 0
    owner: str = ""
    observer: bool = False
    shares: bool = False

    def pod(self, name: str) -> Pod:
        """Return a pod with this request, as the webhook left it."""
        text = "\n".join(f"{number}={node}:{devices}" for number, (node, devices) in enumerate(self.lines))
        annotations = {
            **({} if self.lines else {"agentaflow.gpu/count": str(self.count)}),
            **({"agentaflow.gpu/observer": "true"} if self.observer else {}),
            **({"agentaflow.gpu/sharing": "any"} if self.shares else {}),
        }
        tail = "any" if self.index is None else str(self.index)
        owner = Owner("StatefulSet", self.owner) if self.owner else None
        return pod(f"{name}-{tail}", text or None, annotations=annotations, owner=owner)


@dataclass(frozen=True)
class Hold:
    """The placement that a pod holds, or would hold."""

    request: Request
    node: str
    devices: tuple[str, ...]
    index: int | None
    by_line: bool = True
    """Whether the pod's own line names these devices: then other lines of the map may name them too."""

    @property
    def claims(self) -> frozenset[str]:
        """Devices that the pod keeps from others; an observer keeps none."""
        return frozenset() if self.request.observer else frozenset(self.devices)

    @property
    def group(self) -> tuple[object, ...]:
        return self.request.owner, self.request.lines


class Reference:
    """The reference. `pods` and `nodes` were received from the watches; `assumed` are the holds of open binds."""

    def __init__(self, sharing: Sharing, requests: dict[str, Request]) -> None:
        """`requests` has the requests of all pods by uid, of deleted ones too."""
        self._sharing = sharing
        self._requests = requests
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.assumed: dict[str, Hold] = {}
        self.limit = UNLIMITED
        """How many devices the one namespace may hold."""

    def waits(self, uid: str) -> bool:
        """Return whether the pod, as the watch showed it last, is to be placed."""
        seen = self.pods.get(uid)
        return seen is not None and not (seen.bound or seen.finished or seen.gated or seen.deleting_since)

    def held(self, seen: Pod) -> Hold | None:
        """Return what a bound pod holds until it is finished or gone, else None."""
        if seen.node is None or seen.finished:
            return None
        request, assigned = self._requests[seen.ref.uid], seen.assignment.devices
        if assigned is not None:
            return Hold(request, seen.node, assigned, None if seen.request.line is None else seen.request.line.index)
        # Bound by another scheduler: its containers see the devices that the webhook wrote into them.
        if request.index is None or request.index >= len(request.lines):
            return Hold(request, seen.node, (), request.index)
        node, devices = request.lines[request.index]
        return Hold(request, seen.node, tuple(devices.split(",")), request.index, by_line=node == seen.node)

    def holds(self) -> dict[str, Hold]:
        found = {uid: self.held(seen) for uid, seen in self.pods.items()}
        return {**{uid: hold for uid, hold in found.items() if hold is not None}, **self.assumed}

    def may_share(self, one: Hold, other: Hold) -> bool:
        if self._sharing is Sharing.NONE:
            return False
        if self._sharing is Sharing.ANY or (one.request.shares and other.request.shares):
            return True
        return (
            bool(one.request.lines)
            and one.group == other.group
            and one.index != other.index
            and (one.by_line and other.by_line)
        )

    def conflict(self, one: Hold, other: Hold) -> bool:
        """Return whether the two holds exclude each other: one line for both, or a device that they may not share."""
        if one.request.lines and one.group == other.group and one.index == other.index is not None:
            return True
        met = one.node == other.node and one.claims & other.claims
        return bool(met) and not self.may_share(one, other)

    def fits(self, uid: str, hold: Hold) -> bool:
        """Return whether the pod may be placed so now."""
        node = self.nodes.get(hold.node)
        if node is None or not node.ready or node.unschedulable:
            return False
        known_devices = UNLIMITED if node.inventory is None else len(node.inventory.devices)
        others = {other: each for other, each in self.holds().items() if other != uid}
        room = sum(each.node == hold.node for each in others.values()) < node.allocatable["pods"]
        exist = all(int(device) < known_devices for device in hold.devices)
        return (
            room
            and exist
            and self.within_limit(uid, hold)
            and not any(self.conflict(hold, each) for each in others.values())
        )

    def within_limit(self, uid: str, hold: Hold) -> bool:
        """Return whether the namespace's limit allows the hold; devices that its pods share count once."""
        others = [each for other, each in self.holds().items() if other != uid]
        held = {(each.node, device) for each in others for device in each.claims}
        more = {(hold.node, device) for device in hold.claims} - held
        return len(hold.claims) <= self.limit and (not more or len(held | more) <= self.limit)

    def choices(self, uid: str) -> Iterator[Hold]:
        """Yield every hold that is possible now; of the lines of a map only the one that the pod must take."""
        request = self._requests[uid]
        if not request.lines:
            yield from self._by_count(uid, request)
            return
        # A line with a pending pod of its index is kept for that pod.
        kept = {self._requests[other].index for other in self.pods if self._claims_its_line(other, request)}
        for number, (named, devices) in enumerate(request.lines):
            mine = number not in kept if request.index is None else number == request.index
            hold = Hold(request, self._real(named), tuple(devices.split(",")), number)
            if mine and self.fits(uid, hold):
                yield hold
                return

    def _by_count(self, uid: str, request: Request) -> Iterator[Hold]:
        for node in self.nodes.values():
            devices = () if node.inventory is None else node.inventory.devices
            free = [Hold(request, node.name, (str(device.index),), None) for device in devices]
            free = [each for each in free if self.fits(uid, each)]
            # Devices that the namespace holds already do not count again.
            free.sort(key=lambda each: self._is_held(uid, each))
            least = Hold(request, node.name, tuple(each.devices[0] for each in free[-request.count :]), None)
            if len(free) >= request.count and self.within_limit(uid, least):
                yield Hold(request, node.name, tuple(each.devices[0] for each in free), None)

    def allows(self, uid: str, hold: Hold) -> bool:
        """Return whether the scheduler may place the pod so now."""
        if not self.waits(uid):
            return False
        if hold.request.lines:
            return hold in self.choices(uid)
        possible = (each for each in self.choices(uid) if each.node == hold.node)
        if not self.within_limit(uid, hold):
            return False
        return len(set(hold.devices)) == hold.request.count and any(hold.claims <= each.claims for each in possible)

    def _is_held(self, uid: str, hold: Hold) -> bool:
        return any(
            each.node == hold.node and each.claims & hold.claims for other, each in self.holds().items() if other != uid
        )

    def _claims_its_line(self, uid: str, request: Request) -> bool:
        seen, own = self.pods[uid], self._requests[uid]
        pending = not (seen.bound or seen.finished or seen.deleting_since or uid in self.assumed)
        return pending and (own.owner, own.lines) == (request.owner, request.lines)

    def _real(self, named: str) -> str:
        aliased = (node.name for node in self.nodes.values() if node.alias == named)
        return named if named in self.nodes else next(aliased, named)
