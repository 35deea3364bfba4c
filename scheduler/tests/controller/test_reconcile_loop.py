import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gpu_scheduler.controller import reconcile_loop
from gpu_scheduler.controller.reconcile_loop import Reconcile, ReconcileError, ReconcileLoop
from tests.kube.server import until
from tests.waiting import limit


@asynccontextmanager
async def at_work(work: ReconcileLoop, **reconcilers: Reconcile) -> AsyncIterator[asyncio.Task[None]]:
    """Let it look."""
    task = asyncio.create_task(work.run(reconcilers))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_every_key_is_looked_at_by_who_knows_its_kind() -> None:
    """What was added before it ran, and what comes later."""
    seen: list[tuple[str, str]] = []

    async def pods(name: str) -> None:
        seen.append(("pod", name))

    async def nodes(name: str) -> None:
        seen.append(("node", name))

    work = ReconcileLoop()
    work.add("pods", "a")
    async with at_work(work, pods=pods, nodes=nodes):
        await until(lambda: seen)
        work.add("nodes", "b")
        await until(lambda: len(seen) == 2)

    assert seen == [("pod", "a"), ("node", "b")]
    assert (work.waiting, work.heartbeat_age) == (0, 0)


async def test_a_failure_is_repeated_and_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Told or not: an error of our own costs its key a pause, and no other key anything."""
    monkeypatch.setattr(reconcile_loop, "BACKOFF_FIRST", 0.01)
    seen: list[str] = []

    async def look(name: str) -> None:
        seen.append(name)
        if seen.count(name) == 1 and name != "well":
            raise ReconcileError("try again") if name == "told" else ZeroDivisionError

    work = ReconcileLoop()
    for name in ("told", "bug", "well"):
        work.add("x", name)
    async with at_work(work, x=look):
        await until(lambda: len(seen) == 5)

    assert sorted(seen) == ["bug", "bug", "told", "told", "well"]
    assert "Looking ended in an error of our own" in caplog.text


async def test_a_look_that_wants_another_gets_it() -> None:
    """Though nothing changed."""
    seen: list[str] = []

    async def look(name: str) -> float | None:
        seen.append(name)
        return 0.01 if len(seen) < 3 else None

    work = ReconcileLoop()
    work.add("x", "a")
    async with at_work(work, x=look):
        await until(lambda: len(seen) == 3)
        await asyncio.sleep(0.05)

    assert seen == ["a"] * 3


async def test_only_so_many_looks_at_once() -> None:
    """The rest wait their turn; the pulse goes on."""
    going, most, go_on = 0, 0, asyncio.Event()

    async def look(_: str) -> None:
        nonlocal going, most
        going += 1
        most = max(most, going)
        await go_on.wait()
        going -= 1

    work = ReconcileLoop(workers=2)
    for number in range(5):
        work.add("x", str(number))
    async with at_work(work, x=look):
        await until(lambda: going == 2)
        assert (work.waiting, work.heartbeat_age) == (5, 0)
        go_on.set()
        await until(lambda: work.waiting == 0)

    assert most == 2


async def test_stopping_begins_nothing_and_waits_for_what_is_under_way() -> None:
    """At most so long; whether all ended is the answer."""
    began: list[str] = []
    go_on = asyncio.Event()

    async def look(name: str) -> None:
        began.append(name)
        await go_on.wait()

    work = ReconcileLoop(workers=1)
    work.add("x", "a")
    work.add("x", "b")
    async with at_work(work, x=look) as task:
        await until(lambda: began)
        assert not await work.drain(0.01)
        go_on.set()
        assert await work.drain(1)
        await asyncio.wait_for(task, limit(1))

    assert began == ["a"]
    assert await ReconcileLoop().drain(1)


async def test_a_loop_that_does_not_come_round_has_no_pulse(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease is then given up by who holds it."""
    now = [0.0]
    work = ReconcileLoop(clock=lambda: now[0])
    async with at_work(work):
        await asyncio.sleep(0)
        now[0] = 12

        assert work.heartbeat_age == 12 - reconcile_loop.REST
