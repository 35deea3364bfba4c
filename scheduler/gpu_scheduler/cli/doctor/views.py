"""What `doctor` found, as plain data and as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler.cli.output import Column, Listing, PrintedTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpu_scheduler.cli.doctor.findings import CheckFinding

View = dict[str, Any]

_BLANK: Final = " "
"""A cell that shows nothing: an empty one would be a dash."""


def finding_view(finding: CheckFinding) -> View:
    """Return one finding, or one check that passed."""
    return {
        "check": finding.check,
        "result": finding.result.value,
        "message": finding.what,
        "remedy": finding.remedy or None,
        "object": finding.object or None,
    }


def doctor_listing(items: Sequence[View]) -> Listing:
    """Return the findings with one row each, and the remedy in a row below."""
    columns = (
        Column("RESULT", lambda row: row["result"]),
        Column("CHECK", lambda row: row["check"]),
        Column("MESSAGE", lambda row: row["message"]),
    )
    more = Column("OBJECT", lambda row: row["object"])
    rows = list(_rows(items))
    table, wide = PrintedTable(columns, rows), PrintedTable((*columns[:2], more, columns[2]), rows)
    return Listing("Check", items, table, wide, lambda item: item["object"] or f"check/{item['check']}")


def _rows(items: Iterable[View]) -> Iterator[View]:
    for item in items:
        yield item
        if item["remedy"]:
            yield {"result": _BLANK, "check": _BLANK, "object": _BLANK, "message": f"remedy: {item['remedy']}"}
