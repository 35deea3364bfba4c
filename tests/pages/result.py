"""What the benchmark shows, in five lines, from the committed result of `make bench`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench import medians, results
from bench.columns import number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.comparison import Estimate

BINDS: Final = "pods/s to the last bind"
EVENTS: Final = "pods/s to the last event"
P50, P99 = (f"ms from creation to bind, p{percent}" for percent in (50, 99))


def lines() -> Iterator[str]:
    """Yield the lines for the head of docs/performance.md."""
    found = medians.read(results.FOLDER / "standard.json")
    targets = {(each.workload, each.what, each.contenders): each.found for each in found.targets}

    def median(workload: str, contender: str, name: str) -> str:
        cells = (each for each in found.cells if (each.cell.workload, each.cell.contender) == (workload, contender))
        return number(max(each.figures[name].median for each in cells if name in each.figures))

    yield (
        f"- **A backlog** of 5,000 pods is bound at {median('W1', 'O', BINDS)} pods a second, and has its events at"
        f" {median('W1', 'O', EVENTS)}; a client that only sends the same reaches {median('W1', 'L0', BINDS)} and"
        f" {median('W1', 'L', EVENTS)}. kube-scheduler binds {median('W1', 'K', BINDS)} without its client's throttle,"
        f" and {median('W1', 'K50', BINDS)} with it."
    )
    yield (
        f"- **Pods that arrive**, {median('W2', 'O', BINDS)} a second, are bound {median('W2', 'O', P50)} ms after"
        f" their creation at p50 and {median('W2', 'O', P99)} ms at p99; by a client that decides nothing after"
        f" {median('W2', 'A', P50)} and {median('W2', 'A', P99)} ms. Their events follow within"
        f" {median('W2', 'O', 's from bind to event, p99')} s."
    )
    sustained = targets["W2-sustained", "most of the interval of the rate", "O/A"]
    yield (
        f"- **Where more arrive** than the machine can take, ours binds {_interval(sustained)} of what that client"
        f" does, which is {median('W2-sustained', 'A', BINDS)} a second."
    )
    half, most = (targets["W8", f"added to a creation, p{percent}", "O-P"] for percent in (50, 99))
    left = targets["W8", "creations a second", "O/H"]
    yield (
        f"- **The webhook** adds {_interval(half)} ms to the creation of a pod at p50 and {_interval(most)} ms at p99;"
        f" of the creations with a handler that only writes a patch, {_interval(left)} are left."
    )
    plane = median("W1", "O", "CPU ms of API server and etcd a pod")
    yield (
        f"- **What ends it** is the API server: with etcd it spends {plane} ms of processor time on a pod of a backlog,"
        f" ours {median('W1', 'O', 'CPU ms a pod')} ms."
    )
    yield ""
    where = f"{found.machine.processor}, {found.machine.cores} cores"
    yield f"`make bench`, three times each, on {where}, {found.began[:10]}, commit `{found.commit}`."


def _interval(estimate: Estimate | None) -> str:
    assert estimate is not None
    assert estimate.low is not None
    assert estimate.high is not None
    return f"{number(estimate.low)} to {number(estimate.high)}"
