"""Prints plain data as aligned columns, JSON, YAML or names.

Every verb collects plain data first. All output formats are made from the same data, so that they cannot disagree.

LAW: no character that is not printable reaches the terminal. In cells and names it is escaped, line breaks too, so that
no text forges a row. JSON and YAML escape it by their own rules, so that the data stay the same.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler.cli.options import Output, RefusedInputError
from gpu_scheduler.core.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpu_scheduler.cli.options import Options

View = dict[str, Any]

API_VERSION: Final = "cli.agentaflow.io/v1"
_GAP: Final = "   "
_LONGEST: Final = 100
_RESET: Final = "\033[0m"
_COLOURS: Final = {"bad": "\033[31m", "odd": "\033[33m", "good": "\033[32m"}
_TONES: Final = {
    **dict.fromkeys(("unhealthy", "Failed", "NotReady", "stale", "Terminating", "error"), "bad"),
    **dict.fromkeys(("degraded", "Pending", "Scheduled", "Ready,cordoned", "Ready,stale", "warning", "unknown"), "odd"),
    **dict.fromkeys(("healthy", "Running", "Succeeded", "Ready", "ok"), "good"),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, and the function that returns its value for a row."""

    title: str
    show: Callable[[View], object]


@dataclass(frozen=True, slots=True)
class PrintedTable:
    """The columns and rows of a table."""

    columns: Sequence[Column]
    rows: Sequence[View]


@dataclass(frozen=True, slots=True)
class Listing:
    """The result of a verb: its items, and the tables that show them."""

    kind: str
    items: Sequence[View]
    table: PrintedTable
    wide: PrintedTable
    name: Callable[[View], str] | None = None
    """Returns an item's name as kubectl prints it with `-o name`; None if the items have no names."""


def render(listing: Listing, options: Options) -> str:
    """Return the listing as text in the format of the options, with a line feed at the end.

    RefusedInputError for `-o name` if the items have no names.
    """
    match options.output:
        case Output.TABLE | Output.WIDE:
            table = listing.wide if options.output is Output.WIDE else listing.table
            return tabled(table, headers=not options.no_headers, coloured=colours(sys.stdout.isatty(), os.environ))
        case Output.NAME:
            if listing.name is None:
                raise RefusedInputError(
                    'cannot print "name": the items of this verb have no names; '
                    "it is one of table, wide, json, yaml (example: -o json)"
                )
            return "".join(f"{printable(listing.name(item))}\n" for item in listing.items)
        case Output.JSON:
            return as_json(listed(listing), indent=2) + "\n"
        case Output.YAML:
            return as_yaml(listed(listing))


def listed(listing: Listing) -> View:
    """Return the items as a List object, as kubectl prints it."""
    items = [item_of(listing.kind, item) for item in listing.items]
    return {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}


def item_of(kind: str, view: View) -> View:
    """Return one item of a List, with its apiVersion and kind."""
    return {"apiVersion": API_VERSION, "kind": kind, **view}


def as_json(value: object, indent: int | None = None) -> str:
    """Return `value` as JSON. If a character of it is not printable, all that are not ASCII are escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return text if _legible(text) else json.dumps(value, indent=indent)


def as_yaml(value: object) -> str:
    """Return `value` as YAML in block style; keys keep their order.

    If a character of it is not printable, all that are not ASCII are escaped.
    """
    import yaml

    def dump(*, unicode: bool) -> str:
        return yaml.dump(value, Dumper=_dumper(), sort_keys=False, allow_unicode=unicode, width=10_000)

    text = dump(unicode=True)
    return text if _legible(text) else dump(unicode=False)


def _legible(text: str) -> bool:
    """Whether all characters are printable, except line breaks."""
    return text.replace("\n", "").isprintable()


def _dumper() -> Any:
    """Return a YAML dumper that writes texts of several lines as block scalars, and no aliases."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - asked for every value
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    # Subclasses of str too: StrEnum members are written as text.
    Dumper.add_multi_representer(str, text)
    Dumper.add_representer(str, text)
    return Dumper


def tabled(table: PrintedTable, *, headers: bool = True, coloured: bool = False) -> str:
    """Return the table as aligned columns; an empty text if there are no rows."""
    if not table.rows:
        return ""
    rows = [[cell(column.show(row)) for column in table.columns] for row in table.rows]
    lines = [[column.title for column in table.columns], *rows] if headers else rows
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return "".join(
        _GAP.join(
            painted(text, text.ljust(width), coloured=coloured) for text, width in zip(line, widths, strict=True)
        ).rstrip(" ")
        + "\n"
        for line in lines
    )


def cell(value: object) -> str:
    """Return a value as the printable text of one cell; None and an empty text or list are a dash."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        value = ",".join(map(str, value))
    return "-" if value is None or value == "" else printable(str(value))


def gpus_of(devices: Sequence[str]) -> str:
    """Return devices as words of a sentence: "GPU 0", "GPUs 0,1" or "no GPU"."""
    return f"{'GPU' if len(devices) == 1 else 'GPUs'} {','.join(devices)}" if devices else "no GPU"


def marked(view: View, text: str) -> str:
    """Return `text`, marked if the pod or workload is an observer.

    An observer sees GPUs and holds none. Without the mark its GPUs would seem to be held twice.
    """
    return f"{text} (observer)".lstrip() if view["observer"] else text


def shortened(text: str) -> str:
    """Return a message cut to 100 characters, for a table."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1].rstrip() + "…"


def tone(word: str) -> str:
    """Return whether a state is "good", "odd" or "bad"; empty if `word` is no known state."""
    return _TONES.get(word, "")


def painted(word: str, text: str, *, coloured: bool) -> str:
    """Return `text` in the colour of the state `word`; unchanged if `word` is no known state or `coloured` is false."""
    colour = _COLOURS.get(tone(word)) if coloured else None
    return text if colour is None else f"{colour}{text}{_RESET}"


def colours(terminal: bool, environment: Mapping[str, str]) -> bool:  # noqa: FBT001 - what isatty() answers
    """Return whether to use colours: on a terminal that is not "dumb", unless NO_COLOR is set."""
    return terminal and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def flattened(items: Iterable[View], part: str) -> list[View]:
    """Return one row for each element of `item[part]` of each item; a row has the item's fields too."""
    return [{**item, **each} for item in items for each in item[part]]
