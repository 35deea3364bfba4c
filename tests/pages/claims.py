"""What ResourceClaims cost, from the committed result of `make bench-claims`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench import medians, results
from bench.gated_process import ROOT
from bench.report import target_row
from bench.targets import TARGETS
from tests.pages import neighbours, result
from tests.pages.parts import Page, measured, medians_of, table

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHOWN: Final = (
    "pods/s to the last bind",
    "CPU ms a pod",
    "CPU ms of API server and etcd a pod",
    "writes a pod",
    "reads a pod",
)
_CONTENDERS: Final = {
    ("claims", "O"): "ours, a claim each",
    ("claims-env", "O"): "ours, without claims",
    ("claims", "K"): "kube-scheduler, a claim each that exists before",
    ("claims", "KC"): "kube-scheduler, a claim each that a client creates meanwhile",
}
_COSTS: Final = {
    ("rate to the last bind", "O/K"): "pods bound in a second, beside kube-scheduler whose claims exist before",
    ("rate to the last bind", "O/KC"): "pods bound in a second, beside kube-scheduler while its claims are created",
    ("rate beside the same pods without claims", "O/O"): "pods bound in a second, beside the same pods with `env`",
    ("writes a pod", "O"): "writes for a pod, its event included",
    ("memory a claim", "O"): "memory of the scheduler for a claim",
}


def pages() -> Iterator[Page]:
    """Yield docs/performance.md, with all figures, and docs/isolation.md, with those that its readers ask for."""
    found = medians.read(results.FOLDER / "claims.json")
    rows = {
        _COSTS[aim.what, aim.contenders]: target_row(aim, each.found)
        for aim, each in zip(TARGETS, found.targets, strict=True)
        if aim.workload in {"claims", "growth"} and (aim.what, aim.contenders) in _COSTS
    }
    head = ("workload", "what", "of", "aim", "found", "95 % interval", "repetitions", "result")
    claims = (measured(found), "", *table(head, rows.values()), "", *table(("pods", *_SHOWN), _cells(found)))
    parts = {
        "result": tuple(result.lines()),
        "figures of claims": claims,
        "figures of neighbours": tuple(neighbours.lines()),
    }
    yield Page(ROOT / "docs/performance.md", parts)
    costs = table(("what", "measured", "95 % interval"), ((what, *row[4:6]) for what, row in rows.items()))
    yield Page(ROOT / "docs/isolation.md", {"cost of claims": tuple(costs)})


def _cells(found: medians.Medians) -> Iterator[tuple[str, ...]]:
    """Yield the median of each figure for each contender."""
    for cell in found.cells:
        name = _CONTENDERS.get((cell.cell.workload, cell.cell.contender))
        if name is not None:
            yield name, *medians_of(cell, _SHOWN)
