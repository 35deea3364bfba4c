import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gpu_scheduler.controller import reconcile_loop
from gpu_scheduler.controller.reconcile_loop import Reconcile, ReconcileError, ReconcileLoop
from unit_tests.kube.server import until
from unit_tests.virtual import settle


@asynccontextmanager
async def running(work: ReconcileLoop, **reconcilers: Reconcile) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(work.run(reconcilers))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_each_key_is_reconciled_by_the_reconciler_of_its_kind() -> None:
    """Keys that were added before the loop runs, and later ones."""
    seen: list[tuple[str, str]] = []

    async def pods(name: str) -> None:
        seen.append(("pod", name))

    async def nodes(name: str) -> None:
        seen.append(("node", name))

    work = ReconcileLoop()
    work.add("pods", "a")
    async with running(work, pods=pods, nodes=nodes):
        await until(lambda: seen)
        work.add("nodes", "b")
        await until(lambda: len(seen) == 2)

    assert seen == [("pod", "a"), ("node", "b")]
    assert (work.waiting, work.heartbeat_age) == (0, 0)


async def test_a_failure_is_repeated_and_delays_no_other_key(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A reported failure and an error of our own: both delay only their key."""
    monkeypatch.setattr(reconcile_loop, "BACKOFF_FIRST", 0.01)
    seen: list[str] = []

    async def reconcile(name: str) -> None:
        seen.append(name)
        if seen.count(name) == 1 and name != "well":
            raise ReconcileError("try again") if name == "reported" else ZeroDivisionError

    work = ReconcileLoop()
    for name in ("reported", "bug", "well"):
        work.add("x", name)
    async with running(work, x=reconcile):
        await until(lambda: len(seen) == 5)

    assert sorted(seen) == ["bug", "bug", "reported", "reported", "well"]
    assert "Reconciling failed with an internal error" in caplog.text


async def test_a_reconcile_can_request_another() -> None:
    """Even if no object changed."""
    seen: list[str] = []

    async def reconcile(name: str) -> float | None:
        seen.append(name)
        return 0.01 if len(seen) < 3 else None

    work = ReconcileLoop()
    work.add("x", "a")
    async with running(work, x=reconcile):
        await until(lambda: len(seen) == 3)
        await asyncio.sleep(60)

    assert seen == ["a"] * 3


async def test_concurrent_reconciles_are_limited() -> None:
    """The other keys wait, and the heartbeat continues."""
    active, most, go_on = 0, 0, asyncio.Event()

    async def reconcile(_: str) -> None:
        nonlocal active, most
        active += 1
        most = max(most, active)
        await go_on.wait()
        active -= 1

    work = ReconcileLoop(workers=2)
    for number in range(5):
        work.add("x", str(number))
    async with running(work, x=reconcile):
        await until(lambda: active == 2)
        assert (work.waiting, work.heartbeat_age) == (5, 0)
        go_on.set()
        await until(lambda: work.waiting == 0)

    assert most == 2


async def test_drain_starts_nothing_and_waits_for_reconciles_in_progress() -> None:
    """At most the given seconds; it returns whether all of them ended."""
    began: list[str] = []
    go_on = asyncio.Event()

    async def reconcile(name: str) -> None:
        began.append(name)
        await go_on.wait()

    work = ReconcileLoop(workers=1)
    work.add("x", "a")
    work.add("x", "b")
    async with running(work, x=reconcile) as task:
        await until(lambda: began)
        assert not await work.drain(0.01)
        go_on.set()
        assert await work.drain(1)
        await asyncio.wait_for(task, 1)

    assert began == ["a"]
    assert await ReconcileLoop().drain(1)


async def test_the_heartbeat_of_a_blocked_loop_ages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The elector then gives up the lease."""
    now = [0.0]
    work = ReconcileLoop(clock=lambda: now[0])
    async with running(work):
        await settle()
        now[0] = 12

        assert work.heartbeat_age == 12 - reconcile_loop.LONGEST_WAIT
