"""Who may have what, said once more in the plainest way: by a search through all that was told and promised.

LAW: shares no code with the ledger, the backlog or the decision; of the package it knows the values alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_scheduler.core.policy import Sharing
from gpu_scheduler.core.refs import Owner
from tests.core.build import pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_scheduler.core.nodes.nodes import Node
    from gpu_scheduler.core.pods.pod import Pod

ASSIGNED = "agentaflow.gpu/assigned-devices"
ASSIGNED_INDEX = "agentaflow.gpu/assigned-index"
ENDLESS = 1024
"""Cards of a node of which nobody knows how many it has."""


@dataclass(frozen=True)
class Wish:
    """What a pod asks for: its line of a map, any line of it, or so many cards."""

    lines: tuple[tuple[str, str], ...] = ()
    index: int | None = None
    count: int = 0
    owner: str = ""
    observer: bool = False
    shares: bool = False

    def pod(self, name: str) -> Pod:
        """A pod that wishes so, as the webhook left it."""
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
    """What a pod has, or would have."""

    wish: Wish
    node: str
    devices: tuple[str, ...]
    index: int | None
    by_line: bool = True
    """Its own line names the devices there, so that other lines of the map may name them too."""

    @property
    def claims(self) -> frozenset[str]:
        """An observer claims none."""
        return frozenset() if self.wish.observer else frozenset(self.devices)

    @property
    def group(self) -> tuple[object, ...]:
        """The pods that divide the lines of a map among them."""
        return self.wish.owner, self.wish.lines


class Reference:
    """`pods` and `nodes` are what the watches have told, `promised` what was sent and is not settled."""

    def __init__(self, sharing: Sharing, wishes: dict[str, Wish]) -> None:
        """`wishes` are those of all pods there ever were, by uid."""
        self._sharing = sharing
        self._wishes = wishes
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.promised: dict[str, Hold] = {}
        self.limit = ENDLESS
        """How many devices the one namespace may hold."""

    def waits(self, uid: str) -> bool:
        """Whether the pod is to be placed, as far as was told."""
        seen = self.pods.get(uid)
        return seen is not None and not (seen.bound or seen.finished or seen.gated or seen.deleting_since)

    def held(self, seen: Pod) -> Hold | None:
        """What a pod that has a node holds there until it is finished or gone."""
        if seen.node is None or seen.finished:
            return None
        wish, assigned = self._wishes[seen.ref.uid], seen.assignment.devices
        if assigned is not None:
            return Hold(wish, seen.node, assigned, None if seen.request.line is None else seen.request.line.index)
        # Somebody else bound it: what its containers see is what stands written in them.
        if wish.index is None or wish.index >= len(wish.lines):
            return Hold(wish, seen.node, (), wish.index)
        node, devices = wish.lines[wish.index]
        return Hold(wish, seen.node, tuple(devices.split(",")), wish.index, by_line=node == seen.node)

    def holds(self) -> dict[str, Hold]:
        """All that is held, by uid."""
        found = {uid: self.held(seen) for uid, seen in self.pods.items()}
        return {**{uid: hold for uid, hold in found.items() if hold is not None}, **self.promised}

    def may_share(self, one: Hold, other: Hold) -> bool:
        """Whether a device may be held by both."""
        if self._sharing is Sharing.NONE:
            return False
        if self._sharing is Sharing.ANY or (one.wish.shares and other.wish.shares):
            return True
        return (
            bool(one.wish.lines)
            and one.group == other.group
            and one.index != other.index
            and (one.by_line and other.by_line)
        )

    def clash(self, one: Hold, other: Hold) -> bool:
        """Whether the two can't stand side by side: a device that they may not share, or one line for two."""
        if one.wish.lines and one.group == other.group and one.index == other.index is not None:
            return True
        met = one.node == other.node and one.claims & other.claims
        return bool(met) and not self.may_share(one, other)

    def fits(self, uid: str, hold: Hold) -> bool:
        """Whether the pod could have this now."""
        node = self.nodes.get(hold.node)
        if node is None or not node.ready or node.unschedulable:
            return False
        cards = ENDLESS if node.inventory is None else len(node.inventory.cards)
        others = {other: each for other, each in self.holds().items() if other != uid}
        room = sum(each.node == hold.node for each in others.values()) < node.allocatable["pods"]
        there = all(int(device) < cards for device in hold.devices)
        return (
            room
            and there
            and self.within_limit(uid, hold)
            and not any(self.clash(hold, each) for each in others.values())
        )

    def within_limit(self, uid: str, hold: Hold) -> bool:
        """Whether a pod may ask for so many, and the namespace hold them too; what its pods share counts once."""
        others = [each for other, each in self.holds().items() if other != uid]
        held = {(each.node, device) for each in others for device in each.claims}
        more = {(hold.node, device) for device in hold.claims} - held
        return len(hold.claims) <= self.limit and (not more or len(held | more) <= self.limit)

    def choices(self, uid: str) -> Iterator[Hold]:
        """Every place that the pod could have now; of the lines of a map only the one that it must take."""
        wish = self._wishes[uid]
        if not wish.lines:
            yield from self._by_count(uid, wish)
            return
        # A line that its own pod waits for is nobody else's.
        kept = {self._wishes[other].index for other in self.pods if self._claims_its_line(other, wish)}
        for number, (named, devices) in enumerate(wish.lines):
            mine = number not in kept if wish.index is None else number == wish.index
            hold = Hold(wish, self._real(named), tuple(devices.split(",")), number)
            if mine and self.fits(uid, hold):
                yield hold
                return

    def _by_count(self, uid: str, wish: Wish) -> Iterator[Hold]:
        for node in self.nodes.values():
            cards = () if node.inventory is None else node.inventory.cards
            free = [Hold(wish, node.name, (str(card.index),), None) for card in cards]
            free = [each for each in free if self.fits(uid, each)]
            # Cards that the namespace holds already cost it nothing.
            free.sort(key=lambda each: self._is_held(uid, each))
            least = Hold(wish, node.name, tuple(each.devices[0] for each in free[-wish.count :]), None)
            if len(free) >= wish.count and self.within_limit(uid, least):
                yield Hold(wish, node.name, tuple(each.devices[0] for each in free), None)

    def allows(self, uid: str, hold: Hold) -> bool:
        """Whether this is a place that the pod may be given now."""
        if not self.waits(uid):
            return False
        if hold.wish.lines:
            return hold in self.choices(uid)
        rooms = (each for each in self.choices(uid) if each.node == hold.node)
        if not self.within_limit(uid, hold):
            return False
        return len(set(hold.devices)) == hold.wish.count and any(hold.claims <= each.claims for each in rooms)

    def _is_held(self, uid: str, hold: Hold) -> bool:
        return any(
            each.node == hold.node and each.claims & hold.claims for other, each in self.holds().items() if other != uid
        )

    def _claims_its_line(self, uid: str, wish: Wish) -> bool:
        seen, own = self.pods[uid], self._wishes[uid]
        pending = not (seen.bound or seen.finished or seen.deleting_since or uid in self.promised)
        return pending and (own.owner, own.lines) == (wish.owner, wish.lines)

    def _real(self, named: str) -> str:
        """The node that a map calls so."""
        aliased = (node.name for node in self.nodes.values() if node.alias == named)
        return named if named in self.nodes else next(aliased, named)
