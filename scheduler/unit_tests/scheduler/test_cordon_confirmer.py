"""The confirmation of cordons: when it is written, what it waits for, and what is tried again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from gpu_scheduler.core.decision import Bind
from gpu_scheduler.core.nodes.cordons import Cordon, NodeCordons
from gpu_scheduler.scheduler import cordon_confirmer
from gpu_scheduler.scheduler.binder import ApiCordonStatus
from gpu_scheduler.scheduler.cordon_confirmer import CordonConfirmer
from gpu_scheduler.scheduler.pod_states import PodState, PodStates
from tests.messages import text_of
from unit_tests.core.build import placed, pod
from unit_tests.fakes import Gate
from unit_tests.kube.server import Reply, connected, until

CORDON = Cordon("0", reason="fan noise", by="alice")
FIRST = NodeCordons("node1", (CORDON,), 2)
STATUS = "/apis/agentaflow.io/v1/gpunodes/node1/status"


@dataclass
class Status:
    """Remembers what was confirmed. The first tries fail as `failures` says."""

    failures: list[str] = field(default_factory=list)
    confirmed: list[tuple[str, int]] = field(default_factory=list)

    async def confirm(self, cordons: NodeCordons) -> str | None:
        if self.failures:
            return self.failures.pop()
        self.confirmed.append((cordons.node, cordons.generation))
        return None


def binding(name: str, node: str) -> PodState:
    """Return the state of a pod whose bind to the node is under way."""
    given = pod(name)
    return PodState(given, 0.0, assumed=Bind(given.ref, placed(node, "0"), "", "map", ""))


@asynccontextmanager
async def confirming(states: PodStates, *failures: str) -> AsyncIterator[tuple[CordonConfirmer, Status]]:
    confirmer, status = CordonConfirmer(states), Status(list(failures))
    task = asyncio.create_task(confirmer.run(status))
    try:
        yield confirmer, status
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cordon_confirmer, "RETRY", 0.01)
    monkeypatch.setattr(cordon_confirmer, "POLL", 0.01)


@pytest.mark.promise("cordon-2")
async def test_a_cordon_is_confirmed_after_the_binds_that_were_under_way() -> None:
    """Binds that began later obey the cordon already, and binds to other nodes do not matter."""
    states = PodStates(early=binding("early", "node1"), gone=binding("gone", "node1"), other=binding("other", "node2"))
    async with confirming(states) as (confirmer, status):
        confirmer.applied(FIRST)
        states["late"] = binding("late", "node1")
        del states["gone"]
        await asyncio.sleep(0.05)
        assert status.confirmed == []
        states["early"].assumed = None

        await until(lambda: status.confirmed)

        assert status.confirmed == [("node1", 2)]


async def test_a_failed_write_is_tried_again() -> None:
    """Until it succeeds; the watch then shows the confirmation, and nothing more is written."""
    async with confirming(PodStates(), "HTTP 500: no", "HTTP 500: no") as (confirmer, status):
        confirmer.applied(FIRST)
        await until(lambda: status.confirmed)
        confirmer.applied(NodeCordons("node1", (CORDON,), 2, 2))
        await asyncio.sleep(0.05)

        assert status.confirmed == [("node1", 2)]


async def test_only_the_newest_generation_is_confirmed() -> None:
    """A replica that does not lead yet writes nothing. A GPUNode that is gone needs no confirmation."""
    states = PodStates(a=binding("a", "node1"))
    confirmer, status = CordonConfirmer(states), Status()
    for cordons in (FIRST, FIRST, NodeCordons("node1", (), 3, 1), NodeCordons("node2", (CORDON,), 5)):
        confirmer.applied(cordons)
    confirmer.forgotten(NodeCordons("node2", (CORDON,), 5))
    task = asyncio.create_task(confirmer.run(status))
    states["a"].assumed = None

    await until(lambda: status.confirmed)

    task.cancel()
    assert status.confirmed == [("node1", 3)]


async def test_a_change_during_the_write_is_confirmed_too() -> None:
    """The write was about the generation before."""
    confirmer = CordonConfirmer(PodStates())

    class Changing(Status):
        async def confirm(self, cordons: NodeCordons) -> str | None:
            if not self.confirmed:
                confirmer.applied(NodeCordons("node1", (), 3, 1))
            return await super().confirm(cordons)

    status = Changing()
    confirmer.applied(FIRST)
    task = asyncio.create_task(confirmer.run(status))

    await until(lambda: len(status.confirmed) > 1)

    task.cancel()
    assert status.confirmed == [("node1", 2), ("node1", 3)]


NOON, TEN = "2026-11-25T12:00:00Z", "2026-11-25T10:00:00Z"
SOME = {"status": "True", "reason": "GpusCordoned", "message": "no pod is bound to the cordoned GPUs from now on"}
NONE = {"status": "False", "reason": "NoGpuCordoned", "message": "all GPUs are in service"}
SHOWN: dict[str, tuple[NodeCordons, dict[str, Any]]] = {
    "a first cordon": (FIRST, {**SOME, "lastTransitionTime": NOON, "observedGeneration": 2}),
    "one more": (
        NodeCordons("node1", (CORDON, CORDON), 3, 2, TEN),
        {**SOME, "lastTransitionTime": TEN, "observedGeneration": 3},
    ),
    "none any more": (
        NodeCordons("node1", (), 4, 3, TEN),
        {**NONE, "lastTransitionTime": NOON, "observedGeneration": 4},
    ),
}


def status_of(api: Any, gate: Gate) -> ApiCordonStatus:
    """Return the writer at noon."""
    return ApiCordonStatus(api, gate, lambda: datetime(2026, 11, 25, 12, tzinfo=UTC))


@pytest.mark.parametrize(("cordons", "condition"), SHOWN.values(), ids=SHOWN)
async def test_the_condition_names_the_generation(cordons: NodeCordons, condition: dict[str, Any]) -> None:
    """As Kubernetes' conditions: the time changes only with the status."""
    async with connected() as (server, api):
        server.on("PATCH", STATUS, Reply(200, {}))

        assert await status_of(api, Gate()).confirm(cordons) is None

        (sent,) = server.requests
        assert sent.body["status"] == {"conditions": [{"type": "Cordoned", **condition}]}
        assert sent.headers["Content-Type"] == "application/apply-patch+yaml"


ANSWERS: dict[str, tuple[Reply, str | None]] = {
    "a GPUNode that is gone": (Reply(404, {"message": "not found"}), None),
    "a right that is missing": (Reply(403, {"message": "forbidden"}), "HTTP 403: forbidden"),
    "a conflict": (Reply(409, {"message": "try again"}), "HTTP 409: try again"),
}


@pytest.mark.parametrize(("reply", "why"), ANSWERS.values(), ids=ANSWERS)
async def test_an_answer_is_returned_and_never_raised(reply: Reply, why: str | None) -> None:
    """The confirmer decides when the next try is due."""
    async with connected() as (server, api):
        server.on("PATCH", STATUS, reply)

        found = await status_of(api, Gate()).confirm(FIRST)

        assert found == why


async def test_a_missing_answer_is_returned_and_never_raised() -> None:
    """To write the same twice is harmless."""
    async with connected() as (server, api):
        server.on("PATCH", STATUS, Reply(200, hang=True))

        assert STATUS in (await status_of(api, Gate()).confirm(FIRST) or "")


@pytest.mark.promise("cordon-2", "lead-1")
async def test_only_the_leader_confirms() -> None:
    """Another replica may have a bind under way."""
    async with connected() as (server, api):
        why = await status_of(api, Gate(open=False)).confirm(FIRST)

        assert why == text_of("a Lease no longer allows a write")
        assert server.requests == []
