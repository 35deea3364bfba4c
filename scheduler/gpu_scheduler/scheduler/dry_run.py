"""A dry run of the scheduling loop: applies inputs, decides, assumes what it decided, and sends no request.

Plans, explanations and replays are made with it. LAW: the decision is `decide`, and the ledger changes as in the loop.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.decision import Bind, Wait, awaits_placement
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.scheduling_queue import SchedulingQueue
from gpu_scheduler.scheduler.cluster_cache import ClusterCache
from gpu_scheduler.scheduler.dynamic_config import DynamicConfig
from gpu_scheduler.scheduler.pod_states import PodState, PodStates
from gpu_scheduler.scheduler.ports import InputKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_scheduler.core.cluster import Cluster
    from gpu_scheduler.core.decision import Decision
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.core.policy import Policy
    from gpu_scheduler.core.refs import PodRef
    from gpu_scheduler.kube.resource import EventHandlerFuncs


class DryRun:
    """The cluster cache and our pods. Inputs are those that a journal records."""

    def __init__(self, policy: Policy) -> None:
        """Start with an empty cluster."""
        self._policy = policy
        self._cache = ClusterCache(policy, lambda _: None)
        self._states = PodStates()
        self._handlers: dict[str, EventHandlerFuncs[Any]] = {
            InputKind.FOREIGN_POD: self._cache.foreign_pods,
            InputKind.DEVICE_CLAIM: self._cache.device_claims,
            InputKind.CLAIM: self._cache.claims,
            InputKind.VOLUME: self._cache.volumes,
            InputKind.STORAGE_CLASS: self._cache.classes,
        }

    @property
    def cluster(self) -> Cluster:
        """What decisions read."""
        return self._cache.cluster

    @property
    def pods(self) -> Iterator[Pod]:
        """Our pods, in the order in which they were first applied."""
        return (state.pod for state in self._states.values())

    def pod(self, uid: str) -> Pod | None:
        """Return the pod with this uid, or None."""
        state = self._states.get(uid)
        return None if state is None else state.pod

    def pending(self) -> list[Pod]:
        """Return the pods that await a placement, in the order in which the scheduling queue tries them."""
        config = DynamicConfig(self.cluster.strategy, lambda: None, lambda: self.cluster.limits)
        queue = SchedulingQueue()
        waiting = [self._states[uid].pod for uid in self._states.waiting(self._policy)]
        for pod in sorted(waiting, key=lambda pod: pod.created):
            queue.add(pod.ref.uid, 0, pod.created, pod.ref.namespace)
            queue.set_priority(pod.ref.uid, config.priority_of(pod))
        return [self._states[uid].pod for uid in iter(lambda: queue.pop(0), None)]

    def apply(self, kind: InputKind, value: Any, *, gone: bool = False) -> None:
        """Apply one input; `gone` is a deletion.

        Nodes carry whether they are stale, and the devices that a driver publishes: no clock is read.
        """
        match kind:
            case InputKind.POD:
                self._apply_pod(value, gone=gone)
            case InputKind.NODE:
                self._apply_node(value, gone=gone)
            case InputKind.DEVICE_SLICE:
                self._cache.apply_slice(value, gone=gone)
            case InputKind.STRATEGY:
                self._cache.set_strategy(Strategy(value))
            case InputKind.LIMITS:
                self._cache.set_limits(value)
            case InputKind.RELEASED:
                self._release(value)
            case InputKind.REPAIRED:
                self._cache.replace(self._cache.rebuild_ledger(self._states))
            case _:
                handler = self._handlers[kind]
                (handler.forgotten if gone else handler.applied)(value)

    def evict(self, pod: Pod) -> None:
        """Remove a pod and what it alone holds by ResourceClaims, as its deletion does after a while."""
        claims = self._cache.reserved_for(pod)
        self.apply(InputKind.POD, pod, gone=True)
        for claim in claims:
            others = tuple(uid for uid in claim.pods if uid != pod.ref.uid)
            released = replace(claim, pods=others, devices=claim.devices if others else ())
            self.apply(InputKind.DEVICE_CLAIM, released)

    def decide(self, uid: str) -> Decision | None:
        """Decide on a pod that was applied, and assume its placement or reserve its line as the loop does."""
        state = self._states[uid]
        decision = decide(state.pod, self.cluster)
        if isinstance(decision, Bind):
            self.cluster.ledger.assume(state.pod, decision.placement)
            state.assumed, state.reserved_index = decision, None
        elif decision is not None:
            reserve = decision.reserve if isinstance(decision, Wait) else None
            if reserve != state.reserved_index:
                state.reserved_index = reserve
                self.cluster.ledger.reserve_index(uid, reserve)
        return decision

    def _apply_node(self, node: Any, *, gone: bool) -> None:
        cluster = self.cluster
        if gone:
            cluster.nodes.forget(node.name)
            cluster.ledger.forget_node(node.name)
        else:
            cluster.nodes.apply(node)
            cluster.ledger.apply_node(node)

    def _apply_pod(self, pod: Pod, *, gone: bool) -> None:
        ledger, uid = self.cluster.ledger, pod.ref.uid
        if gone:
            self._states.pop(uid, None)
            ledger.forget(uid)
            return
        state = self._states.setdefault(uid, PodState(pod, 0.0, None))
        state.pod = pod
        ledger.apply(pod)
        if pod.bound or pod.finished:
            state.assumed = None
        if not awaits_placement(pod, self._policy):
            state.reserved_index = None

    def _release(self, ref: PodRef) -> None:
        state, ledger = self._states[ref.uid], self.cluster.ledger
        state.assumed = None
        ledger.forget(ref.uid)
        ledger.apply(state.pod)
