"""Faults of what the scheduler reads: watches that end, lie, repeat themselves or are silent; lists that expire."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.faults.acts import (
    WATCH,
    Act,
    Answer,
    Call,
    Fault,
    Freeze,
    Hang,
    Insert,
    Lose,
    SmallPages,
    Swap,
    Truncate,
    Twice,
)
from tests.integration.faults.afar import IDLE, NODES, PODS, held, wait_well
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from tests.integration.bench import Bench
    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.faults.proxy import FaultProxy

pytestmark = pytest.mark.usefixtures("audited")
CONTINUED: Final = rf"{PODS}.*continue="
BURST: Final = 40


@pytest.mark.parametrize("seconds", [5, pytest.param(30, marks=pytest.mark.long)])
def test_a_burst_behind_a_frozen_watch_shares_nothing(
    bench: Bench, proxy: FaultProxy, far: Command, seconds: int
) -> None:
    """F5. No event comes for so long while forty pods want twenty GPUs: what was assumed is what counts."""
    for number in range(BURST):
        bench.pod(f"asker{number}-0", f"0=node1:{number % 20}\n1=node1:{number + 20}\n", str(number % 20))
    with proxy.breaking(Fault(WATCH, PODS, Freeze(), times=None)) as fault:
        # The watches that are open now end by their silence; the next ones freeze.
        eventually("the watch is frozen", lambda: fault.struck, seconds=20)
        frozen = time.monotonic()
        bench.node("node1")
        eventually("twenty are bound", lambda: bench.count_bound() == BURST // 2, seconds=20)
        time.sleep(max(0.0, frozen + seconds - time.monotonic()))
        assert bench.count_bound() == BURST // 2
    eventually("the others are told", lambda: bench.count_told("GpuHeld") == BURST // 2, seconds=20)


WATCHES: Final = {"pods": PODS, "nodes": NODES}
SILENT: Final = {
    "a watch that is never answered": Hang(delivered=False),
    "a watch that falls silent": Freeze(),
}


@pytest.mark.parametrize("act", SILENT.values(), ids=SILENT)
@pytest.mark.parametrize("resource", WATCHES)
def test_a_half_open_watch_is_found(bench: Bench, proxy: FaultProxy, far: Command, act: Act, resource: str) -> None:
    """F7. Within twice the time-out readiness is false and names the resource; the metric of silence grows."""
    path = WATCHES[resource]
    silence = f'gpu_scheduler_watch_silence_seconds{{resource="{resource}"}}'
    with proxy.breaking(Fault(WATCH, path, act, times=None)) as fault:
        eventually("the watch is silent", lambda: fault.struck, seconds=20)
        began = time.monotonic()
        eventually("it is tried anew", lambda: len(fault.struck) > 1, seconds=2 * IDLE)
        if isinstance(act, Hang):
            eventually("it is not ready", lambda: far.get("/readyz")[0] == 503, seconds=2 * IDLE)
            assert time.monotonic() - began <= limit(2 * IDLE)
            assert resource in far.get("/readyz")[1]
            assert far.metric(silence) > 2 * IDLE - 0.5
        bench.node("node1")
        bench.pod("asker-0", "0=node1:0\n", "0")
    bench.wait_bound("asker-0", "node1", seconds=20)
    wait_well(far)
    assert far.metric(silence) < 2 * IDLE


ODD_WATCHES: Final = {
    "each event comes twice": Twice(),
    "neighbours change places": Swap(),
    "an event is cut in its middle": Truncate(),
    "the server says 410 in the stream": Insert(
        b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired"}}'
    ),
    "the server says 500 in the stream": Insert(
        b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":500}}'
    ),
    "a line is no JSON": Insert(b"<html>504 Gateway Time-out</html>"),
    "an event of a kind that nobody knows": Insert(b'{"type":"RENAMED","object":{"metadata":{"name":"x"}}}'),
    "the watch is refused with 410": Answer(410),
    "the watch is refused with 429": Answer(429, (("Retry-After", "1"),)),
    "the watch is refused with 500": Answer(500),
}


@pytest.mark.parametrize("act", ODD_WATCHES.values(), ids=ODD_WATCHES)
def test_an_odd_watch_loses_nothing(bench: Bench, proxy: FaultProxy, far: Command, act: Act) -> None:
    """F8. Pods are placed and freed all the while, and what is held in the end is what a list shows."""
    bench.node("node1")
    with proxy.breaking(Fault(WATCH, PODS, act, times=2)) as fault:
        eventually("the watch is odd", lambda: fault.struck, seconds=20)
        bench.pod("holder-0", "0=node1:0\n", "0")
        bench.wait_bound("holder-0", "node1", seconds=30)
        bench.pod("waiter-0", "0=node1:0\n1=node1:1\n", "0")
        bench.wait_message("waiter-0", "GpuHeld: ", seconds=30)
        bench.delete("holder-0")
        bench.wait_bound("waiter-0", "node1", seconds=30)
    eventually("the ledger is what a list shows", lambda: held(far) == {f"{bench.namespace}/waiter-0": ["0"]})


def test_a_quiet_watch_goes_on_from_its_bookmark(bench: Bench, proxy: FaultProxy, far: Command) -> None:
    """F8. Nothing but a bookmark comes: the next watch begins there, without a list."""
    _, answer = bench.kube.call("GET", "/api/v1/pods?limit=1")
    version = str(answer["metadata"]["resourceVersion"])
    bookmark = f'{{"type":"BOOKMARK","object":{{"kind":"Pod","metadata":{{"resourceVersion":"{version}"}}}}}}'
    lists = proxy.count("GET", PODS)
    with proxy.breaking(Fault(WATCH, PODS, Insert(bookmark.encode()))) as fault:
        eventually("a bookmark came", lambda: fault.struck, seconds=20)
        going_on = rf"{PODS}.*resourceVersion={version}(&|$)"
        eventually("the next goes on from there", lambda: proxy.count(WATCH, going_on), seconds=20)
    assert proxy.count("GET", PODS) == lists


def test_a_lost_deletion_is_found_by_the_next_list(bench: Bench, proxy: FaultProxy, far: Command) -> None:
    """F8. The watch never says that the holder has gone; a list does, after a 410."""
    bench.node("node1")
    bench.pod("holder-0", "0=node1:0\n", "0")
    bench.wait_bound("holder-0", "node1")
    bench.pod("waiter-0", "0=node1:0\n1=node1:1\n", "0")
    bench.wait_message("waiter-0", "GpuHeld: ")
    with proxy.breaking(Fault(WATCH, PODS, Lose(b'"type":"DELETED"'), times=None)) as deaf:
        eventually("the watch is open", lambda: deaf.struck, seconds=20)
        bench.delete("holder-0")
        time.sleep(1)
        assert bench.node_of("waiter-0") == ""
        with proxy.breaking(Fault(WATCH, PODS, Answer(410))) as expired:
            eventually("the next watch was refused", lambda: expired.struck, seconds=20)
            bench.wait_bound("waiter-0", "node1", seconds=20)


def test_what_compaction_hid_is_found_by_pages(
    plane: ControlPlane, bench: Bench, proxy: FaultProxy, far: Command
) -> None:
    """F6. Under churn the versions of the watch and of a list's next page expire: nobody who went holds anything.

    Nobody is placed twice, and what came meanwhile is placed.
    """
    bench.node("node1")
    text = "".join(f"{line}=node1:{line}\n" for line in range(60))
    for number in range(20):
        bench.pod(f"old-{number}", text, str(number))
    eventually("all are bound", lambda: bench.count_bound() == 20, seconds=20)
    expired = _expirations(far)

    def churn(first: int, count: int) -> None:
        for number in range(first, first + count):
            bench.delete(f"old-{number}")
            bench.pod(f"new-{number + 20}", text, str(number + 20))
        plane.compact()
        # An API server that remembers nothing of what was before.
        plane.restart_api()

    with (
        proxy.breaking(Fault("GET", PODS, SmallPages(6), times=None)) as pages,
        proxy.breaking(Fault("GET", CONTINUED, Call(lambda: churn(10, 5), lost=False))) as page,
    ):
        with proxy.breaking(Fault(WATCH, PODS, Hang(delivered=False), times=None)) as deaf:
            eventually("the watch is deaf", lambda: deaf.struck, seconds=20)
            churn(0, 10)
        # By its log: the API server is away for a while.
        eventually("watch and page have expired", lambda: _expirations(far) - expired >= 2, seconds=60)
        eventually("all are bound", lambda: bench.count_bound() == 20, seconds=40)
        assert page.struck
        assert len(pages.struck) > 2
    there = {f"old-{n}": n for n in range(15, 20)} | {f"new-{n}": n for n in range(20, 35)}
    shown = {f"{bench.namespace}/{name}": [str(line)] for name, line in there.items()}
    eventually("the ledger is what a list shows", lambda: held(far) == shown, seconds=20)


def _expirations(command: Command) -> int:
    told = [line for line in command.lines() if line.get("event") == "The version has expired: listing anew"]
    return sum(line["resource"] == "pods" for line in told)


def test_410_after_410_slows_down(bench: Bench, proxy: FaultProxy, far: Command) -> None:
    """F6. A server that forgets at once is not asked in a loop: distances grow, and no two are alike."""
    with proxy.breaking(Fault(WATCH, NODES, Answer(410), times=None)) as fault:
        eventually("five watches expired", lambda: len(fault.struck) >= 5, seconds=60)
        times = [each.at for each in proxy.seen if each.fault is fault]
    gaps = [later - sooner for sooner, later in pairwise(times)]
    # 0.8 s that double up to the idle limit, each less up to a half; no two alike, as they are jittered.
    least = (0.4, 0.8, IDLE / 2, IDLE / 2)
    assert all(gap >= shortest for gap, shortest in zip(gaps, least, strict=False)), gaps
    assert len({round(gap, 3) for gap in gaps}) == len(gaps)
    bench.node("node1")
    bench.pod("asker-0", "0=node1:0\n", "0")
    bench.wait_bound("asker-0", "node1", seconds=40)


def test_a_list_waits_as_long_as_it_is_told(bench: Bench, proxy: FaultProxy, far: Command) -> None:
    """F3 for a list: it answers 429 and asks for two seconds, and has them."""
    with (
        proxy.breaking(Fault(WATCH, NODES, Answer(410))),
        proxy.breaking(Fault("GET", NODES, Answer(429, (("Retry-After", "2"),)))) as fault,
    ):
        lists = proxy.count("GET", NODES)
        eventually("it listed again", lambda: proxy.count("GET", NODES) == lists + 2, seconds=20)
        assert fault.struck
    first, second = proxy.times("GET", NODES)[-2:]
    assert second - first >= 2
    bench.node("node1")
    bench.pod("asker-0", "0=node1:0\n", "0")
    bench.wait_bound("asker-0", "node1", seconds=20)
