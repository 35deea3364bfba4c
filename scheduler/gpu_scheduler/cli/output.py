"""Facts become text: aligned columns, JSON, YAML or names.

Every verb gathers plain facts first; a table is a projection of them, so that no two outputs can differ.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler.cli.options import Output, RefusedInputError

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
    **dict.fromkeys(("unhealthy", "Failed", "NotReady", "stale", "Terminating"), "bad"),
    **dict.fromkeys(("degraded", "Pending", "Scheduled", "Ready,cordoned", "Ready,stale"), "odd"),
    **dict.fromkeys(("healthy", "Running", "Succeeded", "Ready"), "good"),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, and what it shows of a row."""

    title: str
    show: Callable[[View], object]


@dataclass(frozen=True, slots=True)
class PrintedTable:
    """A table."""

    columns: Sequence[Column]
    rows: Sequence[View]


@dataclass(frozen=True, slots=True)
class Listing:
    """What a verb found."""

    kind: str
    items: Sequence[View]
    table: PrintedTable
    wide: PrintedTable
    name: Callable[[View], str] | None = None
    """How one is called in kubectl's way; None where the items have no names."""


def render(listing: Listing, options: Options) -> str:
    """The whole text, with its last line feed."""
    match options.output:
        case Output.TABLE | Output.WIDE:
            sheet = listing.wide if options.output is Output.WIDE else listing.table
            return tabled(sheet, headers=not options.no_headers, coloured=colours(sys.stdout.isatty(), os.environ))
        case Output.NAME:
            if listing.name is None:
                raise RefusedInputError(
                    'cannot print "name": what this verb tells has no names; '
                    "it is one of table, wide, json, yaml (example: -o json)"
                )
            return "".join(f"{listing.name(item)}\n" for item in listing.items)
        case Output.JSON:
            return json.dumps(listed(listing), indent=2, ensure_ascii=False) + "\n"
        case Output.YAML:
            return as_yaml(listed(listing))


def listed(listing: Listing) -> View:
    """The items as a List, as kubectl gives it."""
    items = [item_of(listing.kind, item) for item in listing.items]
    return {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}


def item_of(kind: str, view: View) -> View:
    """One item of a List."""
    return {"apiVersion": API_VERSION, "kind": kind, **view}


def as_yaml(value: object) -> str:
    """Block style, in the order given."""
    import yaml

    return yaml.dump(value, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=10_000)


def _dumper() -> Any:
    """Texts of several lines as people write them, and no aliases."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - asked for every value
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    # Words of enumerations too.
    Dumper.add_multi_representer(str, text)
    Dumper.add_representer(str, text)
    return Dumper


def tabled(sheet: PrintedTable, *, headers: bool = True, coloured: bool = False) -> str:
    """Aligned columns; nothing at all where there are no rows."""
    if not sheet.rows:
        return ""
    rows = [[cell(column.show(row)) for column in sheet.columns] for row in sheet.rows]
    lines = [[column.title for column in sheet.columns], *rows] if headers else rows
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return "".join(
        _GAP.join(
            painted(text, text.ljust(width), coloured=coloured) for text, width in zip(line, widths, strict=True)
        ).rstrip(" ")
        + "\n"
        for line in lines
    )


def cell(value: object) -> str:
    """A value as one cell shows it: nothing is a dash."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        value = ",".join(map(str, value))
    return "-" if value is None or value == "" else str(value)


def gpus_of(devices: Sequence[str]) -> str:
    """Devices as a sentence names them."""
    return f"{'GPU' if len(devices) == 1 else 'GPUs'} {','.join(devices)}" if devices else "no GPU"


def marked(view: View, text: str) -> str:
    """`text` of a pod or workload; one that sees GPUs and holds none says so, lest they seem to be held twice."""
    return f"{text} (observer)".lstrip() if view["observer"] else text


def shortened(text: str) -> str:
    """A message as far as a table has room."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1].rstrip() + "…"


def tone(word: str) -> str:
    """Whether a word is good, odd or bad news; empty where it is none."""
    return _TONES.get(word, "")


def painted(word: str, text: str, *, coloured: bool) -> str:
    """`text` in the colour of the word that it is."""
    colour = _COLOURS.get(tone(word)) if coloured else None
    return text if colour is None else f"{colour}{text}{_RESET}"


def colours(terminal: bool, environment: Mapping[str, str]) -> bool:  # noqa: FBT001 - what isatty() answers
    """Whether to use colours: on a terminal that knows them, unless NO_COLOR says otherwise."""
    return terminal and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def flattened(items: Iterable[View], part: str) -> list[View]:
    """One row for each part of each item; a row knows its item too."""
    return [{**item, **each} for item in items for each in item[part]]
