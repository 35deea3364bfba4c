"""The audit beside other tasks: it holds up none of them, and misses no change that they make meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from gpu_scheduler.core.policy import Policy
from gpu_scheduler.kube import turns
from gpu_scheduler.kube.turns import ApplyingLists
from gpu_scheduler.scheduler.audit import LedgerAudit
from gpu_scheduler.scheduler.cluster_cache import ClusterCache
from gpu_scheduler.scheduler.pod_states import PodState, PodStates
from unit_tests.core.build import node, running
from unit_tests.fakes import FakeEventRecorder, FakeRecorder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from gpu_scheduler.core.ledger.ledger import Ledger

PODS = 40
AT_LEAST = 20
"""Turns of other tasks during an audit."""


class Audited:
    """A cluster with pods, and its audit, which is due."""

    def __init__(self) -> None:
        self.cache = ClusterCache(Policy(), lambda _: None)
        self.states = PodStates()
        self.recorder = FakeRecorder()
        self.audit = LedgerAudit(FakeEventRecorder(), self.recorder, now=0, interval=1, rebuild=0)
        self.pods = 0
        self.turns = 0
        self.rebuilds = 0
        for number in range(1, 5):
            self.cache.nodes.applied(node(f"node{number}"))
        for _ in range(PODS):
            self.add_pod()

    def add_pod(self) -> None:
        """Let the watch show one more pod that runs. Each GPU has two, so that there are conflicts to look for."""
        each = running(f"train-{self.pods}", "node4", f"{self.pods}=node4:{self.pods // 2}\n")
        self.pods += 1
        self.states[each.ref.uid] = PodState(each, 0.0)
        self.cache.cluster.ledger.apply(each)

    async def run(self) -> None:
        """Audit as the scheduling loop does."""

        def steps() -> tuple[Ledger, Iterator[Callable[[], object]]]:
            self.rebuilds += 1
            return self.cache.ledger_steps(self.states)

        ledger = self.cache.cluster.ledger
        found = await self.audit.run(1, ledger, steps, ApplyingLists().ended)
        if found is not ledger:
            self.cache.replace(found)

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """Let another task add a pod at each of its turns."""

        async def change() -> None:
            while True:
                self.turns += 1
                self.add_pod()
                await asyncio.sleep(0)

        task = asyncio.create_task(change())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def wrong(self) -> int:
        """Return the number of wrong entries of the ledger."""
        return self.cache.cluster.ledger.differences(self.cache.rebuild_ledger(self.states))


@pytest.fixture
def audited(monkeypatch: pytest.MonkeyPatch) -> Audited:
    """Return a cluster whose audit lets others run as often as it can."""
    monkeypatch.setattr(turns, "TURN", 0.0)
    return Audited()


@pytest.mark.promise("hold-9")
async def test_other_tasks_run_while_the_ledger_is_compared(audited: Audited) -> None:
    """What they change meanwhile is no fault of the ledger, which stays in use."""
    ledger = audited.cache.cluster.ledger
    async with audited.changing():
        await audited.run()

    assert audited.turns > AT_LEAST
    assert audited.rebuilds == 1
    assert audited.cache.cluster.ledger is ledger
    assert audited.recorder.repairs == []
    assert audited.wrong() == 0


@pytest.mark.promise("hold-9")
async def test_a_repair_keeps_what_was_changed_during_the_audit(audited: Audited) -> None:
    """The ledger that is used next has every change until then: a GPU that was missed would be given again."""
    audited.cache.cluster.ledger.forget(next(iter(audited.states)))
    async with audited.changing():
        await audited.run()

    assert len(audited.recorder.repairs) == 1
    assert audited.wrong() == 0
