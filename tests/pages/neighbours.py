"""What a tenant's pods wait for beside another tenant, from the committed result of `make bench-neighbours`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench import medians, results
from bench.report import target_row
from bench.targets import TARGETS
from tests.pages.parts import measured, medians_of, table

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHOWN: Final = (
    "ms from creation to bind, p50",
    "ms from creation to bind, p99",
    "ms from creation to watch event, p50",
    "ms from creation to watch event, p99",
    "ms to create a pod, p99",
    "ms in the queue, mean",
    "answers/s",
    "CPU ms a pod",
    "RSS MiB",
)


def lines() -> Iterator[str]:
    """Yield the targets, and the figures beside each load of the other tenant."""
    found = medians.read(results.FOLDER / "neighbours.json")
    targets = zip(TARGETS, found.targets, strict=True)
    rows = [target_row(aim, each.found) for aim, each in targets if aim.workload == "neighbour"]
    yield measured(found)
    yield ""
    yield from table(("what", "found", "aim", "result"), ((row[1], row[4], row[3], row[7]) for row in rows))
    yield ""
    cells = ((cell.cell.variant, *medians_of(cell, _SHOWN)) for cell in found.cells)
    yield from table(("the other tenant's load", *_SHOWN), cells)
