"""Prints plain data as aligned columns, JSON, YAML or names, or as an expression of the user says.

Every verb collects plain data first. All output formats are made from the same data, so that they cannot disagree.

LAW: no character that is not printable reaches the terminal. In cells and names it is escaped, line breaks too, so that
no text forges a row. JSON and YAML escape it by their own rules, so that the data stay the same.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler.cli.fitting import fitted, ljust, width_of, wrapped
from gpu_scheduler.cli.options import FailedError, Output, RefusedInputError
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.text import printable, quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpu_scheduler.cli.options import Options

View = dict[str, Any]

API_VERSION: Final = "cli.agentaflow.io/v1"
_GAP: Final = "   "
_RESET: Final = "\033[0m"
_COLOURS: Final = {"bad": "\033[31m", "odd": "\033[33m", "good": "\033[32m"}
_TONES: Final = {
    **dict.fromkeys(("unhealthy", "Failed", "NotReady", "stale", "Terminating", "error"), "bad"),
    **dict.fromkeys(("degraded", "Pending", "Scheduled", "Ready,cordoned", "Ready,stale", "warning", "unknown"), "odd"),
    **dict.fromkeys(("healthy", "Running", "Succeeded", "Ready", "ok"), "good"),
}


@immutable
class Column:
    """A column: its title, and the function that returns its value for a row."""

    title: str
    show: Callable[[View], object]
    wraps: int = 0
    """If this is above 0, a narrow terminal shows its text in several lines, at least so wide."""
    spare: int = 0
    """If this is above 0, a terminal that is too narrow leaves the column out, the highest number first."""


@immutable
class PrintedTable:
    """The columns and rows of a table."""

    columns: Sequence[Column]
    rows: Sequence[View]


@immutable
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

    RefusedInputError for `-o name` if the items have no names, and for an expression that cannot be read.
    """
    if options.sort_by:
        listing = _sorted(listing, options.sort_by)
    match options.output:
        case Output.TABLE | Output.WIDE:
            table = listing.wide if options.output is Output.WIDE else listing.table
            return on_terminal(table, options)
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
        case Output.JSONPATH:
            return _by_template(listing, options.expression)
        case Output.CUSTOM_COLUMNS:
            columns = _custom_columns(options.expression)
            rows = [item_of(listing.kind, item) for item in listing.items]
            return on_terminal(PrintedTable(columns, rows), options)


def on_terminal(table: PrintedTable, options: Options, widths: dict[str, int] | None = None) -> str:
    """Return the table for standard output: a terminal's width is kept, and a pipe gets whole lines.

    `-o wide` leaves no column out. Tables with the same `widths` are aligned with each other.
    """
    if options.output is Output.WIDE:
        table = replace(table, columns=[replace(column, spare=0) for column in table.columns])
    coloured = colours(sys.stdout.isatty(), os.environ)
    headers, width = not options.no_headers, terminal_width()
    return tabled(table, headers=headers, coloured=coloured, width=width, widths=widths)


def terminal_width() -> int | None:
    """Return the columns of the terminal, or None if standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _by_template(listing: Listing, expression: str) -> str:
    from gpu_scheduler.cli.jsonpath import JsonPathError, read_template, written

    try:
        template = read_template(expression)
    except JsonPathError as error:
        raise RefusedInputError(
            f"cannot read -o jsonpath={printable(expression)}: {error} (example: -o jsonpath='{{.items[*].name}}')"
        ) from error
    try:
        return written(template, listed(listing))
    except JsonPathError as error:
        raise FailedError(
            f"cannot print jsonpath={printable(expression)}: {error}; see the fields (example: -o json)"
        ) from error


def _custom_columns(expression: str) -> list[Column]:
    """Read `TITLE:PATH,…`. RefusedInputError if one of them is no column."""
    from gpu_scheduler.cli.jsonpath import JsonPathError

    columns = []
    for part in re.split(r",(?![^\[]*\])", expression):
        try:
            columns.append(_custom_column(part))
        except JsonPathError as error:
            raise RefusedInputError(
                f"cannot read {quote(part)} of -o custom-columns: {error} "
                "(example: -o custom-columns=NAME:.name,NODE:.node)"
            ) from error
    return columns


def _custom_column(text: str) -> Column:
    """Read `TITLE:PATH`. JsonPathError if it is no column; its cells raise FailedError if it does not suit the data."""
    from gpu_scheduler.cli.jsonpath import JsonPathError, read_relaxed, text_of

    title, _, path = text.partition(":")
    if not (title and path):
        raise JsonPathError("it is no column: that is a title, a colon and a path")
    found = read_relaxed(path)

    def show(item: View) -> str:
        try:
            return ",".join(map(text_of, found.find(item))) or "<none>"
        except JsonPathError as error:
            raise FailedError(
                f"cannot print {quote(text)} of -o custom-columns: {error}; see the fields (example: -o json)"
            ) from error

    return Column(printable(title), show, wraps=16)


def _sorted(listing: Listing, path: str) -> Listing:
    """Return the listing with items and rows sorted by the values at the path; items without such a value come first.

    RefusedInputError if the path cannot be read, or no item has such a field.
    """
    from gpu_scheduler.cli.jsonpath import JsonPathError, read_relaxed, sort_key

    def ordered(rows: Sequence[View]) -> Sequence[View]:
        return sorted(rows, key=lambda row: sort_key(found.find(row)))

    try:
        found = read_relaxed(path)
        if listing.items and not any(found.find(item) for item in listing.items):
            raise JsonPathError("no item has such a value")  # noqa: TRY301 - the sentence below is for both
        tables = [PrintedTable(table.columns, ordered(table.rows)) for table in (listing.table, listing.wide)]
        return replace(listing, items=ordered(listing.items), table=tables[0], wide=tables[1])
    except JsonPathError as error:
        raise RefusedInputError(
            f"cannot sort by {quote(path)}: {error}; name a field of the JSON (example: --sort-by .name)"
        ) from error


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


def tabled(
    table: PrintedTable,
    *,
    headers: bool = True,
    coloured: bool = False,
    width: int | None = None,
    widths: dict[str, int] | None = None,
) -> str:
    """Return the table as aligned columns; an empty text if there are no rows.

    With a `width`, columns that wrap are narrowed, and then columns that can be spared are left out, until it fits.
    `widths` by title are kept from table to table, so that later rows are aligned with earlier ones.
    """
    if not table.rows:
        return ""
    columns = [[cell(column.show(row)) for row in table.rows] for column in table.columns]
    if headers:
        columns = [[column.title, *cells] for column, cells in zip(table.columns, columns, strict=True)]
    natural = [max(map(width_of, cells)) for cells in columns]
    if widths is not None:
        for at, column in enumerate(table.columns):
            natural[at] = widths[column.title] = max(natural[at], widths.get(column.title, len(column.title)))
    rooms = fitted(natural, [(column.wraps, column.spare) for column in table.columns], width, len(_GAP))
    shown = [(cells, room) for cells, room in zip(columns, rooms, strict=True) if room is not None]
    lines = []
    for row in zip(*(cells for cells, _ in shown), strict=True):
        parts = [wrapped(text, room) for text, (_, room) in zip(row, shown, strict=True)]
        for number in range(max(map(len, parts))):
            line = (
                painted(row[at], ljust(part[number] if number < len(part) else "", shown[at][1]), coloured=coloured)
                for at, part in enumerate(parts)
            )
            lines.append(_GAP.join(line).rstrip(" ") + "\n")
    return "".join(lines)


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
