"""Faults of the scheduler's reads: watches that end, repeat events or send none, and lists that expire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.barrier import node_sentinel
from tests.integration.faults.proxied_replica import IDLE, NODES, PODS, held, wait_ready_again
from tests.integration.faults.proxy_faults import (
    WATCH,
    Act,
    Answer,
    Call,
    Fault,
    Freeze,
    Hang,
    Insert,
    SmallPages,
    Swap,
    Truncate,
    Twice,
)
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.faults.proxy import FaultProxy
    from tests.integration.namespace import Namespace

pytestmark = pytest.mark.usefixtures("audited")
CONTINUED: Final = rf"{PODS}.*continue="
BURST: Final = 40


@pytest.mark.parametrize("watches", [2, pytest.param(12, marks=pytest.mark.long)])
def test_a_burst_of_pods_during_a_frozen_watch_shares_no_gpu(
    namespace: Namespace, proxy: FaultProxy, proxied: Command, watches: int
) -> None:
    """F5. Without watch events, forty pods ask for twenty GPUs: the scheduler counts its assumed placements."""
    for number in range(BURST):
        namespace.pod(f"asker{number}-0", f"0=node1:{number % 20}\n1=node1:{number + 20}\n", str(number % 20))
    with proxy.breaking(Fault(WATCH, PODS, Freeze(), times=None)) as fault:
        # The open watches are replaced because they get no events; the next ones freeze.
        eventually("the watch is frozen", lambda: fault.struck, seconds=20)
        tried = len(fault.struck)
        namespace.node("node1")
        eventually("twenty are bound", lambda: namespace.count_bound() == BURST // 2, seconds=20)
        eventually("more watches freeze", lambda: len(fault.struck) >= tried + watches, seconds=60)
        proxied.wait_seen({"nodes": node_sentinel(namespace)})
        assert namespace.count_bound() == BURST // 2
    eventually("the others report GpuHeld", lambda: namespace.count_waiting("GpuHeld") == BURST // 2, seconds=20)


WATCHES: Final = {"pods": PODS, "nodes": NODES}
SILENT: Final = {
    "a watch that is never answered": Hang(delivered=False),
    "a watch that sends no events": Freeze(),
}


@pytest.mark.parametrize("act", SILENT.values(), ids=SILENT)
@pytest.mark.parametrize("resource", WATCHES)
def test_a_half_open_watch_is_found(
    namespace: Namespace, proxy: FaultProxy, proxied: Command, act: Act, resource: str
) -> None:
    """F7. The watch is opened again. While none is answered, /readyz fails and names the resource; the metric grows."""
    path = WATCHES[resource]
    silence = f'gpu_scheduler_watch_silence_seconds{{resource="{resource}"}}'
    with proxy.breaking(Fault(WATCH, path, act, times=None)) as fault:
        eventually("the watch was struck", lambda: fault.struck, seconds=20)
        eventually("it is tried again", lambda: len(fault.struck) > 1, seconds=60)
        if isinstance(act, Hang):
            eventually("it is not ready", lambda: proxied.get("/readyz")[0] == 503, seconds=60)
            assert resource in proxied.get("/readyz")[1]
            assert proxied.metric(silence) > 2 * IDLE - 0.5
        namespace.node("node1")
        namespace.pod("asker-0", "0=node1:0\n", "0")
    namespace.wait_bound("asker-0", "node1", seconds=20)
    wait_ready_again(proxied)
    assert proxied.metric(silence) < 2 * IDLE


ODD_WATCHES: Final = {
    "each event comes twice": Twice(),
    "neighbouring events are swapped": Swap(),
    "an event is cut in its middle": Truncate(),
    "the server sends 410 in the stream": Insert(
        b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired"}}'
    ),
    "the server sends 500 in the stream": Insert(
        b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":500}}'
    ),
    "a line is no JSON": Insert(b"<html>504 Gateway Time-out</html>"),
    "an event has an unknown type": Insert(b'{"type":"RENAMED","object":{"metadata":{"name":"x"}}}'),
    "the watch is refused with 410": Answer(410),
    "the watch is refused with 429": Answer(429, (("Retry-After", "1"),)),
    "the watch is refused with 500": Answer(500),
}


@pytest.mark.parametrize("act", ODD_WATCHES.values(), ids=ODD_WATCHES)
def test_a_faulty_watch_loses_no_change(namespace: Namespace, proxy: FaultProxy, proxied: Command, act: Act) -> None:
    """F8. Pods are bound and deleted meanwhile. At the end the ledger agrees with a list."""
    namespace.node("node1")
    with proxy.breaking(Fault(WATCH, PODS, act, times=2)) as fault:
        eventually("the fault has struck", lambda: fault.struck, seconds=20)
        namespace.pod("holder-0", "0=node1:0\n", "0")
        namespace.wait_bound("holder-0", "node1", seconds=30)
        namespace.pod("waiter-0", "0=node1:0\n1=node1:1\n", "0")
        namespace.wait_message("waiter-0", "GpuHeld: ", seconds=30)
        namespace.delete("holder-0")
        namespace.wait_bound("waiter-0", "node1", seconds=30)
    eventually("the ledger is what a list shows", lambda: held(proxied) == {f"{namespace.name}/waiter-0": ["0"]})


@pytest.mark.promise("hold-8")
def test_changes_lost_by_compaction_are_found_by_a_paged_list(
    plane: ControlPlane, namespace: Namespace, proxy: FaultProxy, proxied: Command
) -> None:
    """F6. During churn, the versions of the watch and of the next page of a list expire.

    Deleted pods hold no GPU, no pod is bound twice, and pods created meanwhile are bound.
    """
    namespace.node("node1")
    text = "".join(f"{line}=node1:{line}\n" for line in range(60))
    for number in range(20):
        namespace.pod(f"old-{number}", text, str(number))
    eventually("all are bound", lambda: namespace.count_bound() == 20, seconds=20)
    expired = _expirations(proxied)

    def churn(first: int, count: int) -> None:
        for number in range(first, first + count):
            namespace.delete(f"old-{number}")
            namespace.pod(f"new-{number + 20}", text, str(number + 20))
        plane.compact()

    with (
        proxy.breaking(Fault("GET", PODS, SmallPages(6), times=None)) as pages,
        proxy.breaking(Fault("GET", CONTINUED, Call(lambda: churn(10, 5), lost=False))) as page,
    ):
        with proxy.breaking(Fault(WATCH, PODS, Hang(delivered=False), times=None)) as no_answer:
            eventually("the watch hangs", lambda: no_answer.struck, seconds=20)
            churn(0, 10)
            # The new API server has an empty watch cache, and keeps no old state of it for the next page.
            plane.restart_api("--feature-gates=ListFromCacheSnapshot=false")
        # Read from the log, because the API server is down for a while.
        eventually("watch and page have expired", lambda: _expirations(proxied) - expired >= 2, seconds=60)
        eventually("all are bound", lambda: namespace.count_bound() == 20, seconds=40)
        assert page.struck
        assert len(pages.struck) > 2
    there = {f"old-{n}": n for n in range(15, 20)} | {f"new-{n}": n for n in range(20, 35)}
    shown = {f"{namespace.name}/{name}": [str(line)] for name, line in there.items()}
    eventually("the ledger is what a list shows", lambda: held(proxied) == shown, seconds=20)


def _expirations(command: Command) -> int:
    reported = [
        line for line in command.lines() if line.get("event") == "The resource version has expired: listing again"
    ]
    return sum(line["resource"] == "pods" for line in reported)
