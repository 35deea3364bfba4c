"""Explanations as text for people: what is decided, the devices, the nodes, all obstacles, and the remedy last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpu_scheduler.cli.columns import age
from gpu_scheduler.cli.explaining.views import QUESTIONS, State
from gpu_scheduler.cli.output import Column, Listing, PrintedTable, cell, tabled
from gpu_scheduler.cli.views import holder_name
from gpu_scheduler.core.text import number_of, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from gpu_scheduler.cli.output import View

_NO_COMMAND: Final = "No command is both safe and enough: edit the pod's text, or wait.\n"
_NOBODY: Final = {
    "kind": None,
    "namespace": "",
    "name": "",
    "since": None,
    "until": None,
    "deletingSince": None,
    "line": None,
}


def explanation_listing(items: Sequence[View]) -> Listing:
    """Return explanations as a listing. Its tables are empty: `explanation_screen` prints them for people."""
    nothing = PrintedTable((), ())
    return Listing("Explanation", items, nothing, nothing, lambda item: f"pod/{item['name']}")


def explanation_screen(view: View, now: datetime, *, headers: bool, coloured: bool) -> str:
    """Return the screen of one pod: parts that are separated by blank lines."""
    sentence = printable(view["sentence"]) + "\n"
    if view["state"] in {State.PLACED, State.FINISHED}:
        parts = [sentence, _placement(view["placement"], now)]
    elif view["state"] in {State.WAITING, State.REFUSED}:
        parts = [
            sentence,
            tabled(_devices(view, now), headers=headers, coloured=coloured),
            tabled(_places(view), headers=headers, coloured=coloured) + _others(view),
            tabled(_obstacles(view), headers=headers, coloured=coloured),
            _remedy(view),
        ]
    else:
        parts = [sentence]
    return "\n".join(filter(None, parts))


def _placement(placement: View | None, now: datetime) -> str:
    """Return why the pod is where it is, one fact a line."""
    if placement is None:
        return "It was not placed by a Binding of this scheduler.\n"
    bound = age(placement["at"], now)
    facts = {
        "Strategy": placement["strategy"],
        "Reason": placement["reason"] or "unknown: an earlier version of the scheduler placed it",
        "Bound": None if bound is None else f"{bound} ago, at {placement['at']}",
        "By": placement["by"],
        "UUIDs": placement["uuids"],
        "Phase": placement["phase"],
    }
    return _facts((what, how) for what, how in facts.items() if how)


def _facts(facts: Iterator[tuple[str, object]]) -> str:
    columns = (Column("", lambda row: row["what"]), Column("", lambda row: row["how"]))
    return tabled(PrintedTable(columns, [{"what": what, "how": how} for what, how in facts]), headers=False)


def _devices(view: View, now: datetime) -> PrintedTable:
    """Return the devices of all places. A device with several holders has a row for each."""
    rows = [
        {**device, "index": place["index"], "holder": holder}
        for place in view["places"]
        for device in place["devices"]
        for holder in device["holders"] or [_NOBODY]
    ]
    columns = (
        *_line_column(view),
        Column("NODE", lambda row: row["node"]),
        Column("GPU", lambda row: row["device"]),
        Column("STATE", lambda row: row["state"]),
        Column("HELD BY", lambda row: _holder(row["holder"])),
        Column("SINCE", lambda row: age(row["holder"]["since"], now)),
        Column("UNTIL", lambda row: row["holder"]["until"]),
        Column("WHY", lambda row: row["why"]),
    )
    return PrintedTable(columns, rows)


def _holder(holder: View) -> str:
    shown = holder_name(holder)
    return f"{shown} (terminating)" if holder["deletingSince"] else shown


def _line_column(view: View) -> list[Column]:
    """Return the column of the map's lines, if the pod has a map."""
    by_map = any(place["index"] is not None for place in view["places"])
    return [Column("LINE", lambda row: row["index"])] * by_map


def _places(view: View) -> PrintedTable:
    """Return what each question about a node answers: ok, or the reason."""
    columns = [*_line_column(view), Column("NODE", lambda row: row["node"])]
    return PrintedTable([*columns, *map(_question, QUESTIONS)], view["places"])


def _question(name: str) -> Column:
    return Column(name.upper(), lambda row: (row["questions"][name] or "ok") if name in row["questions"] else None)


def _others(view: View) -> str:
    """Return how many further lines or nodes there are."""
    if not view["others"]:
        return ""
    what = "line" if view["places"][0]["index"] is not None else "node"
    count = sum(each["places"] for each in view["others"])
    reasons = ", ".join(f"{each['places']} {each['reason']}" for each in view["others"])
    return f"{number_of(count, f'more {what}')}: {reasons}\n"


def _obstacles(view: View) -> PrintedTable:
    """Return all obstacles of the pod itself and of its nearest place; nothing if the sentence has the only one."""
    nearest = view["places"][0]["obstacles"] if view["places"] else []
    rows = [*view["obstacles"], *nearest]
    columns = (
        Column("REASON", lambda row: row["reason"]),
        Column("MESSAGE", lambda row: row["message"].removeprefix(f"{row['reason']}: ")),
    )
    return PrintedTable(columns, rows if len(rows) > 1 else [])


def _remedy(view: View) -> str:
    """Return the steps of the smallest remedy, and the line that the pod could have now."""
    remedy = view["remedy"]
    if remedy is None:
        return ""
    where = f" on {remedy['node']}" if remedy["node"] else ""
    where = where if remedy["index"] is None else f" of line {remedy['index']}{where}"
    steps = _facts((",".join(step["reasons"]), _step(step)) for step in remedy["steps"])
    none = "" if any(step["command"] for step in remedy["steps"]) or not view["places"] else _NO_COMMAND
    line = f"Or write this line into the map, which is free: {cell(remedy['line'])}\n" if remedy["line"] else ""
    return f"Smallest remedy{where}:\n{steps}{none}{line}"


def _step(step: View) -> str:
    if step["command"] is None:
        return str(step["remedy"])
    return str(step["command"]) + (f"   (or wait until {step['until']})" if step["until"] else "")
