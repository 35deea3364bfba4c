"""Bugs that others have had, each put into the payload for the length of a test.

As a program it looks for one of them, bugs.py NAME SEED STEPS, and tells as JSON what it found after how many steps.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpu_scheduler.core.ledger import hold
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.scheduling_queue import SchedulingQueue
from gpu_scheduler.kube.reflector import Reflector
from gpu_scheduler.process.logs import set_up_logging
from gpu_scheduler.scheduler import binding_cycle
from gpu_scheduler.scheduler.binder import ApiBinder
from gpu_scheduler.scheduler.ports import Bound, Failed, Unknown
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
    """No answer is taken for a failure: what was promised is given to the next."""
    usual = binding_cycle._settled

    def settled(tracked: PodState, bind: Bind, result: BindResult, *, again: bool) -> BindResult:
        found = usual(tracked, bind, result, again=again)
        return Failed(found.why) if isinstance(found, Unknown) else found

    patch.setattr(binding_cycle, "_settled", settled)


def expire_assumed(patch: pytest.MonkeyPatch) -> None:
    """A hold that nobody has confirmed ends with its back-off."""
    usual = Scheduler._schedule_one

    def schedule_one(self: Scheduler, uid: str, began: float) -> bool:
        tracked = self.tracked.get(uid)
        if tracked is not None and tracked.bind_unknown_since is not None:
            self._binding_cycle.release(tracked, began)
            return False
        return usual(self, uid, began)

    patch.setattr(Scheduler, "_schedule_one", schedule_one)


def skip_terminating(patch: pytest.MonkeyPatch) -> None:
    """A pod that is ending is taken for gone."""
    usual = Ledger.apply

    def apply(self: Ledger, pod: Pod) -> frozenset[Any]:
        return self.forget(pod.ref.uid) if pod.deleting_since is not None else usual(self, pod)

    patch.setattr(Ledger, "apply", apply)


def lose_deleted(patch: pytest.MonkeyPatch) -> None:
    """What a list does not show any more is not told."""
    usual = Reflector._settle

    async def settle(self: Reflector[Any], found: dict[str, Any], version: str | None, number: int) -> None:
        self._known = {}
        await usual(self, found, version, number)

    patch.setattr(Reflector, "_settle", settle)


def bind_without_uid(patch: pytest.MonkeyPatch) -> None:
    """Whoever has the name gets the place."""
    usual = ApiBinder._binding

    def binding(self: ApiBinder, bind: Bind) -> dict[str, Any]:
        body: dict[str, Any] = usual(self, bind)
        return {**body, "metadata": {key: value for key, value in body["metadata"].items() if key != "uid"}}

    patch.setattr(ApiBinder, "_binding", binding)


def stale_leader(patch: pytest.MonkeyPatch) -> None:
    """Who once led goes on binding."""
    usual = ApiBinder.__init__

    def made(self: ApiBinder, api: Any, _fence: Fence, *words: Any) -> None:
        usual(self, api, _Open(), *words)

    patch.setattr(ApiBinder, "__init__", made)


class _Open:
    def may_bind(self) -> bool:
        return True


def conflict_is_success(patch: pytest.MonkeyPatch) -> None:
    """Every 409 is taken for our own earlier bind."""
    usual = ApiBinder.bind

    async def bind(self: ApiBinder, bind: Bind) -> BindResult:
        call, told = self._api.call, []

        async def hear(*words: Any, **named: Any) -> ApiResponse:
            answer = await call(*words, **named)
            told.append(answer.status)
            return answer

        api = _Heard(hear)
        result = await usual(_with_api(self, api), bind)
        return Bound() if told[:1] == [409] else result

    patch.setattr(ApiBinder, "bind", bind)


class _Heard:
    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call


def _with_api(binder: ApiBinder, api: Any) -> ApiBinder:
    return ApiBinder(api, binder._fence, binder._identity, binder._wall)


def decide_before_listing(patch: pytest.MonkeyPatch) -> None:
    """A new leader decides by what it has seen so far."""

    async def at_once(_: Watches) -> None:
        return

    patch.setattr(Watches, "relist", at_once)


def drop_wakes(patch: pytest.MonkeyPatch) -> None:
    """Nobody is told that a GPU is free."""
    patch.setattr(SchedulingQueue, "on_events", lambda *_: None)
    patch.setattr(SchedulingQueue, "requeue_soon", lambda *_: None)


def forget_index(patch: pytest.MonkeyPatch) -> None:
    """Which line a bound pod has is known to the process that bound it, and to nobody else."""
    usual = hold.hold_of

    def hold_of(pod: Pod, node: str) -> hold.Hold:
        return replace(usual(pod, node), index=None)

    patch.setattr("gpu_scheduler.core.ledger.ledger.hold_of", hold_of)


def assume_nothing(patch: pytest.MonkeyPatch) -> None:
    """A place is booked when the watch shows it, and not before."""

    def assume(_ledger: Ledger, _pod: Pod, _placement: Placement) -> None:
        return

    patch.setattr(Ledger, "assume", assume)


BUGS: Final[dict[str, Put]] = {
    put.__name__: put
    for put in (
        forget_on_timeout,
        expire_assumed,
        skip_terminating,
        lose_deleted,
        bind_without_uid,
        stale_leader,
        conflict_is_success,
        decide_before_listing,
        drop_wakes,
        forget_index,
        assume_nothing,
    )
}


def main(name: str, seed: int, steps: int) -> None:
    """Look for one of them."""
    set_up_logging("ERROR")
    logging.getLogger().handlers[:] = []
    with pytest.MonkeyPatch.context() as patch:
        BUGS[name](patch)
        total = soak(seed, steps, starter, tries=0)
    found = None if total.failure is None else total.failure.violation
    sys.stdout.write(json.dumps({"steps": total.steps, "found": found}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
