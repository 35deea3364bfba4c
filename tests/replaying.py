"""Decides again by a journal of decisions, and says where that comes out otherwise.

Usage: replaying.py JOURNAL. What was taken in is taken in again, in its order; each decision is asked for where the
journal has one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.decision import Bind, Wait, awaits_placement
from gpu_scheduler.core.filters.volumes import StorageClass, Volume, VolumeClaim
from gpu_scheduler.core.namespace_limits import NamespaceLimits
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.pods.placement_map import NO_LINES, PlacementMap, parse_placement_map
from gpu_scheduler.core.pods.pod import ForeignPod, Pod
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.scheduler.cluster_cache import ClusterCache
from gpu_scheduler.scheduler.journal import verdict
from gpu_scheduler.scheduler.pod_states import PodState, PodStates
from gpu_scheduler.scheduler.ports import InputKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpu_scheduler.core.decision import Decision
    from gpu_scheduler.kube.resource import EventHandlerFuncs

TYPES: Final[dict[str, Any]] = {
    InputKind.NODE: Node,
    InputKind.POD: Pod,
    InputKind.RESIDENT: ForeignPod,
    InputKind.CLAIM: VolumeClaim,
    InputKind.VOLUME: Volume,
    InputKind.STORAGE_CLASS: StorageClass,
    InputKind.STRATEGY: Strategy,
    InputKind.LIMITS: NamespaceLimits,
    InputKind.RELEASED: PodRef,
    InputKind.REPAIRED: None,
}


class Line(msgspec.Struct):
    """One line; which fields it has tells what it is."""

    policy: Policy | None = None
    took: str = ""
    gone: bool = False
    value: msgspec.Raw = msgspec.Raw(b"null")
    decided: str = ""
    uid: str = ""


class Replay:
    """A loop without a world around it."""

    def __init__(self, policy: Policy) -> None:
        """Nothing has been taken in."""
        self._world = ClusterCache(policy, lambda _: None)
        self._policy = policy
        self._tracker = PodStates()
        self._feeds: dict[str, EventHandlerFuncs[Any]] = {
            InputKind.NODE: self._world.nodes,
            InputKind.RESIDENT: self._world.foreign_pods,
            InputKind.CLAIM: self._world.claims,
            InputKind.VOLUME: self._world.volumes,
            InputKind.STORAGE_CLASS: self._world.classes,
        }

    def take(self, news: str, value: Any, *, gone: bool) -> None:
        """Take in what the journal says was taken in."""
        if news == InputKind.POD:
            self._take_pod(value, gone=gone)
        elif news == InputKind.STRATEGY:
            self._world.set_strategy(value)
        elif news == InputKind.LIMITS:
            self._world.set_limits(value)
        elif news == InputKind.RELEASED:
            self._release(value.uid)
        elif news == InputKind.REPAIRED:
            self._world.replace(self._world.rebuild_ledger(self._tracker))
        elif news == InputKind.NODE and not gone:
            # Whether its monitor is silent is in the journal, for there it is a matter of time.
            self._world.cluster.nodes.apply(value)
            self._world.cluster.ledger.apply_node(value)
        else:
            handler = self._feeds[news]
            (handler.forgotten if gone else handler.applied)(value)

    def decide(self, uid: str) -> Decision | None:
        """Decide on a pod, and book it as the loop does."""
        tracked = self._tracker[uid]
        decision = decide(tracked.pod, self._world.cluster)
        if isinstance(decision, Bind):
            self._world.cluster.ledger.assume(tracked.pod, decision.placement)
            tracked.assumed, tracked.nominated = decision, None
        elif decision is not None:
            reserve = decision.reserve if isinstance(decision, Wait) else None
            if reserve != tracked.nominated:
                tracked.nominated = reserve
                self._world.cluster.ledger.nominate(uid, reserve)
        return decision

    def _take_pod(self, pod: Pod, *, gone: bool) -> None:
        ledger, uid = self._world.cluster.ledger, pod.ref.uid
        if gone:
            self._tracker.pop(uid, None)
            ledger.forget(uid)
            return
        tracked = self._tracker.setdefault(uid, PodState(pod, 0.0, None))
        tracked.pod = pod
        ledger.apply(pod)
        if pod.bound or pod.finished:
            tracked.assumed = None
        if not awaits_placement(pod, self._policy):
            tracked.nominated = None

    def _release(self, uid: str) -> None:
        tracked, ledger = self._tracker[uid], self._world.cluster.ledger
        tracked.assumed = None
        ledger.forget(uid)
        ledger.apply(tracked.pod)


def differences(lines: Iterable[bytes]) -> Iterator[str]:
    """Say of each decision that comes out otherwise what it was and what it is."""
    replay: Replay | None = None
    for number, text in enumerate(lines, 1):
        line = msgspec.json.decode(text, type=Line)
        if line.policy is not None:
            replay = Replay(line.policy)
        assert replay is not None, "a journal begins with the operator's choice"
        if line.took:
            replay.take(
                line.took, msgspec.json.decode(line.value, type=TYPES[line.took], dec_hook=read_map), gone=line.gone
            )
        elif line.decided:
            again = msgspec.json.decode(msgspec.json.encode(verdict(replay.decide(line.uid))))
            said = msgspec.json.decode(text)
            before = {key: said.get(key) for key in again.keys() | said.keys() & {"placement", "reason", "message"}}
            if before != again:
                yield f"line {number}, {line.decided}: it was {before}, and is {again}"


def read_map(_: type[Any], text: str) -> PlacementMap:
    """Read a map back."""
    return parse_placement_map(text) if text else NO_LINES


def whole(text: bytes) -> list[bytes]:
    """Give the lines; one that a crash has cut is none."""
    return text.split(b"\n")[:-1]


def main(journal: str) -> None:
    """Print what is different, a line each."""
    for difference in differences(whole(Path(journal).read_bytes())):
        print(difference)  # noqa: T201 - what the program is for


if __name__ == "__main__":
    main(sys.argv[1])
