"""Prints findings: as a table or as data, and as the annotations of GitHub and GitLab.

LAW: a text of users forges no line and no command: it is escaped as each format says.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler.cli.lint.findings import Severity, finding_view
from gpu_scheduler.cli.lint.formats import LintOutput
from gpu_scheduler.cli.output import Column, Listing, PrintedTable, as_json, as_yaml, listed, tabled
from gpu_scheduler.core.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpu_scheduler.cli.lint.findings import Finding

View = dict[str, Any]


_DATA: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})
_COLUMNS: Final = (
    Column("FILE:LINE", lambda view: view["file"] if view["line"] is None else f"{view['file']}:{view['line']}"),
    Column("OBJECT", lambda view: view["name"] and f"{view['objectKind']}/{view['name']}"),
    Column("SEVERITY", lambda view: view["severity"]),
    Column("FINDING", lambda view: view["finding"]),
    Column("MESSAGE", lambda view: view["message"]),
)


def report(findings: Iterable[Finding], output: LintOutput, *, headers: bool) -> str:
    """Return the findings as text in this format, in the order of files and lines."""
    views = [finding_view(each) for each in sorted(findings, key=_place)]
    listing = Listing("Finding", views, PrintedTable(_COLUMNS, views), PrintedTable(_COLUMNS, views))
    match output:
        case LintOutput.TABLE:
            return tabled(listing.table, headers=headers)
        case LintOutput.JSON:
            return as_json(listed(listing), indent=2) + "\n"
        case LintOutput.YAML:
            return as_yaml(listed(listing))
        case LintOutput.GITHUB:
            return "".join(map(_workflow_command, views))
        case LintOutput.GITLAB:
            return as_json(_code_quality(views), indent=2) + "\n"


def _place(each: Finding) -> tuple[str, int]:
    return each.source, each.line or 0


def _workflow_command(view: View) -> str:
    """Return a finding as a command of GitHub's workflows. GitHub shows it beside the line of the change."""
    place = {"file": view["file"], "line": view["line"], "title": view["finding"]}
    properties = ",".join(
        f"{key}={printable(str(value)).translate(_PROPERTY)}" for key, value in place.items() if value is not None
    )
    about = f"{view['objectKind']}/{view['name']}: " if view["name"] else ""
    return f"::{view['severity']} {properties}::{printable(about + view['message']).translate(_DATA)}\n"


def _code_quality(views: Sequence[View]) -> list[View]:
    """Return the findings as GitLab's report of code quality. A fingerprint does not change when lines move."""
    return [
        {
            "description": view["message"],
            "check_name": view["finding"],
            "fingerprint": blake2b(
                "\0".join(str(value) for key, value in view.items() if key != "line").encode(errors="replace"),
                digest_size=16,
            ).hexdigest(),
            "severity": "major" if view["severity"] == Severity.ERROR else "minor",
            "location": {"path": view["file"], "lines": {"begin": view["line"] or 1}},
        }
        for view in views
    ]
