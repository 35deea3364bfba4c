"""Replays a journal of decisions and reports each decision that differs.

Usage: python -m tests.replay JOURNAL. It applies the inputs of the journal again in their order, and decides again at
each decision of the journal.
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
    InputKind.FOREIGN_POD: ForeignPod,
    InputKind.CLAIM: VolumeClaim,
    InputKind.VOLUME: Volume,
    InputKind.STORAGE_CLASS: StorageClass,
    InputKind.STRATEGY: Strategy,
    InputKind.LIMITS: NamespaceLimits,
    InputKind.RELEASED: PodRef,
    InputKind.REPAIRED: None,
}


class Line(msgspec.Struct):
    """One line of the journal: a policy, an input (`received`), or a decision (`decided`)."""

    policy: Policy | None = None
    received: str = ""
    gone: bool = False
    value: msgspec.Raw = msgspec.Raw(b"null")
    decided: str = ""
    uid: str = ""


class Replay:
    """The scheduling loop without an API server: it only applies inputs and decides."""

    def __init__(self, policy: Policy) -> None:
        """Start with an empty cache."""
        self._cache = ClusterCache(policy, lambda _: None)
        self._policy = policy
        self._tracker = PodStates()
        self._handlers: dict[str, EventHandlerFuncs[Any]] = {
            InputKind.NODE: self._cache.nodes,
            InputKind.FOREIGN_POD: self._cache.foreign_pods,
            InputKind.CLAIM: self._cache.claims,
            InputKind.VOLUME: self._cache.volumes,
            InputKind.STORAGE_CLASS: self._cache.classes,
        }

    def take(self, kind: str, value: Any, *, gone: bool) -> None:
        """Apply one input of the journal; `gone` is a deletion."""
        if kind == InputKind.POD:
            self._take_pod(value, gone=gone)
        elif kind == InputKind.STRATEGY:
            self._cache.set_strategy(value)
        elif kind == InputKind.LIMITS:
            self._cache.set_limits(value)
        elif kind == InputKind.RELEASED:
            self._release(value.uid)
        elif kind == InputKind.REPAIRED:
            self._cache.replace(self._cache.rebuild_ledger(self._tracker))
        elif kind == InputKind.NODE and not gone:
            # Keep the journal's `stale`: the handler of the cache would compute it from the clock.
            self._cache.cluster.nodes.apply(value)
            self._cache.cluster.ledger.apply_node(value)
        else:
            handler = self._handlers[kind]
            (handler.forgotten if gone else handler.applied)(value)

    def decide(self, uid: str) -> Decision | None:
        """Decide on a pod, and assume or nominate the placement as the loop does."""
        state = self._tracker[uid]
        decision = decide(state.pod, self._cache.cluster)
        if isinstance(decision, Bind):
            self._cache.cluster.ledger.assume(state.pod, decision.placement)
            state.assumed, state.nominated = decision, None
        elif decision is not None:
            reserve = decision.reserve if isinstance(decision, Wait) else None
            if reserve != state.nominated:
                state.nominated = reserve
                self._cache.cluster.ledger.nominate(uid, reserve)
        return decision

    def _take_pod(self, pod: Pod, *, gone: bool) -> None:
        ledger, uid = self._cache.cluster.ledger, pod.ref.uid
        if gone:
            self._tracker.pop(uid, None)
            ledger.forget(uid)
            return
        state = self._tracker.setdefault(uid, PodState(pod, 0.0, None))
        state.pod = pod
        ledger.apply(pod)
        if pod.bound or pod.finished:
            state.assumed = None
        if not awaits_placement(pod, self._policy):
            state.nominated = None

    def _release(self, uid: str) -> None:
        state, ledger = self._tracker[uid], self._cache.cluster.ledger
        state.assumed = None
        ledger.forget(uid)
        ledger.apply(state.pod)


def differences(lines: Iterable[bytes]) -> Iterator[str]:
    """Yield a sentence for each decision that differs: its line, the old and the new decision."""
    replay: Replay | None = None
    for number, text in enumerate(lines, 1):
        line = msgspec.json.decode(text, type=Line)
        if line.policy is not None:
            replay = Replay(line.policy)
        assert replay is not None, "a journal begins with the operator's choice"
        if line.received:
            replay.take(
                line.received,
                msgspec.json.decode(line.value, type=TYPES[line.received], dec_hook=read_map),
                gone=line.gone,
            )
        elif line.decided:
            again = msgspec.json.decode(msgspec.json.encode(verdict(replay.decide(line.uid))))
            output = msgspec.json.decode(text)
            before = {key: output.get(key) for key in again.keys() | output.keys() & {"placement", "reason", "message"}}
            if before != again:
                yield f"line {number}, {line.decided}: it was {before}, and is {again}"


def read_map(_: type[Any], text: str) -> PlacementMap:
    """Decode a placement map from the journal."""
    return parse_placement_map(text) if text else NO_LINES


def whole(text: bytes) -> list[bytes]:
    """Return the complete lines: a crash may have cut the last one."""
    return text.split(b"\n")[:-1]


def main(journal: str) -> None:
    """Print each decision that differs, one per line."""
    for difference in differences(whole(Path(journal).read_bytes())):
        print(difference)  # noqa: T201 - the program's output


if __name__ == "__main__":
    main(sys.argv[1])
