"""Bugs known from other schedulers; a test patches each into the payload, and the simulator must find it.

Usage: bugs.py NAME SEED STEPS. Runs the simulator with one of the bugs, and prints violation and steps as JSON.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpu_scheduler import names
from gpu_scheduler.core.ledger import hold
from gpu_scheduler.core.ledger.conflicts import SharedBy
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.scheduling_queue import SchedulingQueue
from gpu_scheduler.kube.reflector import Reflector
from gpu_scheduler.process.logs import set_up_logging
from gpu_scheduler.scheduler import binding_cycle
from gpu_scheduler.scheduler.binder import ApiBinder
from gpu_scheduler.scheduler.cluster_cache import ClusterCache
from gpu_scheduler.scheduler.ports import Bound, Failed, NotSent, Unknown
from gpu_scheduler.scheduler.scheduling_loop import Scheduler
from gpu_scheduler.scheduler.watches import Watches
from simulator.replica_process import starter
from simulator.soak import soak

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.core.decision import Bind
    from gpu_scheduler.core.pods.placement import Placement
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.kube.http.client import ApiResponse
    from gpu_scheduler.kube.leader_election import Fence
    from gpu_scheduler.scheduler.pod_states import PodState
    from gpu_scheduler.scheduler.ports import BindResult

    Put = Callable[[pytest.MonkeyPatch], None]


def forget_on_timeout(patch: pytest.MonkeyPatch) -> None:
    """A missing answer counts as a failure: the assumed devices go to the next pod."""
    usual = binding_cycle._settled

    def settled(state: PodState, bind: Bind, result: BindResult, *, again: bool) -> BindResult:
        found = usual(state, bind, result, again=again)
        return Failed(found.why) if isinstance(found, Unknown) else found

    patch.setattr(binding_cycle, "_settled", settled)


def expire_assumed(patch: pytest.MonkeyPatch) -> None:
    """An unconfirmed hold ends with its back-off."""
    usual = Scheduler._schedule_one

    def schedule_one(self: Scheduler, uid: str, began: float, cost: float) -> bool:
        state = self.pod_states.get(uid)
        if state is not None and state.bind_unknown_since is not None:
            self._binding_cycle.release(state, began)
            return False
        return usual(self, uid, began, cost)

    patch.setattr(Scheduler, "_schedule_one", schedule_one)


def skip_terminating(patch: pytest.MonkeyPatch) -> None:
    """A terminating pod counts as gone."""
    usual = Ledger.apply

    def apply(self: Ledger, pod: Pod) -> frozenset[Any]:
        return self.forget(pod.ref.uid) if pod.deleting_since is not None else usual(self, pod)

    patch.setattr(Ledger, "apply", apply)


def lose_deleted(patch: pytest.MonkeyPatch) -> None:
    """Objects missing from a new list are not reported as deleted."""
    usual = Reflector._settle

    async def settle(self: Reflector[Any], found: dict[str, Any], version: str | None, number: int) -> None:
        self._known = {}
        await usual(self, found, version, number)

    patch.setattr(Reflector, "_settle", settle)


def bind_without_uid(patch: pytest.MonkeyPatch) -> None:
    """A bind applies to any pod that has the name."""
    usual = ApiBinder._binding

    def binding(self: ApiBinder, bind: Bind) -> dict[str, Any]:
        body: dict[str, Any] = usual(self, bind)
        return {**body, "metadata": {key: value for key, value in body["metadata"].items() if key != "uid"}}

    patch.setattr(ApiBinder, "_binding", binding)


def former_leader(patch: pytest.MonkeyPatch) -> None:
    """A former leader continues to bind."""
    usual = ApiBinder.__init__

    def made(self: ApiBinder, api: Any, _fence: Fence, *args: Any) -> None:
        usual(self, api, _Open(), *args)

    patch.setattr(ApiBinder, "__init__", made)


class _Open:
    def may_write(self) -> bool:
        return True


def conflict_is_success(patch: pytest.MonkeyPatch) -> None:
    """Every 409 counts as our own earlier bind."""
    usual = ApiBinder.bind

    async def bind(self: ApiBinder, bind: Bind) -> BindResult:
        call, statuses = self._api.call, []

        async def record(*args: Any, **named: Any) -> ApiResponse:
            response = await call(*args, **named)
            statuses.append(response.status)
            return response

        api = _Recording(record)
        result = await usual(_with_api(self, api), bind)
        return Bound() if statuses[:1] == [409] else result

    patch.setattr(ApiBinder, "bind", bind)


class _Recording:
    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call


def _with_api(binder: ApiBinder, api: Any) -> ApiBinder:
    return ApiBinder(api, binder._fence, binder._identity, binder._wall)


def decide_before_listing(patch: pytest.MonkeyPatch) -> None:
    """A new leader decides before it has listed again."""

    async def at_once(_: Watches) -> None:
        return

    patch.setattr(Watches, "relist", at_once)


def drop_requeues(patch: pytest.MonkeyPatch) -> None:
    """No pod is requeued when a GPU is released."""
    patch.setattr(SchedulingQueue, "on_events", lambda *_: None)
    patch.setattr(SchedulingQueue, "requeue_soon", lambda *_: None)


def forget_index(patch: pytest.MonkeyPatch) -> None:
    """The line of a bound pod is not held."""
    usual = hold.hold_of

    def hold_of(pod: Pod, node: str) -> hold.Hold:
        return replace(usual(pod, node), index=None)

    patch.setattr("gpu_scheduler.core.ledger.ledger.hold_of", hold_of)


def assume_nothing(patch: pytest.MonkeyPatch) -> None:
    """A placement is held only when the watch shows it."""

    def assume(_ledger: Ledger, _pod: Pod, _placement: Placement) -> frozenset[Any]:
        return frozenset()

    patch.setattr(Ledger, "assume", assume)


def start_one_by_one(patch: pytest.MonkeyPatch) -> None:
    """A pod that starts together with others is bound as soon as it could have its own line."""
    patch.setattr("gpu_scheduler.core.decide.waits_for_others", lambda *_: None)


def bind_without_claims(patch: pytest.MonkeyPatch) -> None:
    """A pod is bound although its claims could not be allocated."""

    async def allocate(self: binding_cycle.BindingCycle, _: Pod, bind: Bind) -> None:
        await self._ports.allocator.allocate(bind)

    patch.setattr(binding_cycle.BindingCycle, "_allocate", allocate)


def hold_no_claim(patch: pytest.MonkeyPatch) -> None:
    """The devices of a claim of ours are free when its pod ends, not when its allocation is cleared."""
    usual = Ledger.apply_claim

    def apply_claim(self: Ledger, uid: str, holds: tuple[hold.Hold, ...]) -> frozenset[Any]:
        return usual(self, uid, tuple(each for each in holds if not each.ref.name.startswith(names.CLAIM)))

    patch.setattr(Ledger, "apply_claim", apply_claim)


def check_no_claim(patch: pytest.MonkeyPatch) -> None:
    """A pod is bound as soon as its claims are allocated, whatever others have allocated before."""

    async def allocate(self: binding_cycle.BindingCycle, _: Pod, bind: Bind) -> Failed | NotSent | None:
        failure = await self._ports.allocator.allocate(bind)
        return None if isinstance(failure, dict) else failure

    patch.setattr(binding_cycle.BindingCycle, "_allocate", allocate)


def release_no_claim(patch: pytest.MonkeyPatch) -> None:
    """What is allocated for a pod that waits stays allocated."""
    patch.setattr(ClusterCache, "reserved_for", lambda *_: ())


def keep_no_line(patch: pytest.MonkeyPatch) -> None:
    """Whoever comes first gets the GPUs of a line that none of the started pods has yet."""
    usual = SharedBy.allows

    def allows(self: SharedBy, other: hold.Hold, device: str) -> bool:
        return other.kept or usual(self, other, device)

    patch.setattr(SharedBy, "allows", allows)


BUGS: Final[dict[str, Put]] = {
    put.__name__: put
    for put in (
        forget_on_timeout,
        expire_assumed,
        skip_terminating,
        lose_deleted,
        bind_without_uid,
        former_leader,
        conflict_is_success,
        decide_before_listing,
        drop_requeues,
        forget_index,
        assume_nothing,
        start_one_by_one,
        keep_no_line,
        bind_without_claims,
        hold_no_claim,
        check_no_claim,
        release_no_claim,
    )
}


def main(name: str, seed: int, steps: int) -> None:
    """Run the simulator with this bug."""
    set_up_logging("ERROR")
    logging.getLogger().handlers[:] = []
    with pytest.MonkeyPatch.context() as patch:
        BUGS[name](patch)
        total = soak(seed, steps, starter, tries=0)
    found = None if total.failure is None else total.failure.violation
    sys.stdout.write(json.dumps({"steps": total.steps, "found": found}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
