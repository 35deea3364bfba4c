"""The live screen of `watch`: the tables of `nodes` and `workloads`, drawn by rich."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpu_scheduler.cli.columns import nodes_listing, workloads_listing
from gpu_scheduler.cli.output import cell, tone
from gpu_scheduler.cli.verbs.watch_state import NODE
from gpu_scheduler.core.text import number_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gpu_scheduler.cli.output import PrintedTable
    from gpu_scheduler.cli.verbs.watch_state import Key

View = dict[str, Any]

_STYLES: Final = {"bad": "red", "odd": "yellow", "good": "green"}


@contextmanager
def live_screen(*, wide: bool) -> Iterator[Callable[[Mapping[Key, View]], None]]:
    """Yield a function that draws a view. The last view remains on the terminal."""
    with Live(console=Console(), auto_refresh=False) as live:
        yield lambda view: live.update(screen(view, datetime.now(UTC), wide=wide), refresh=True)


def screen(view: Mapping[Key, View], now: datetime, *, wide: bool = False) -> Group:
    """Return the whole screen: headline, nodes, workloads."""
    nodes = [each for (kind, _, _), each in view.items() if kind == NODE]
    workloads = [each for (kind, _, _), each in view.items() if kind != NODE]
    gpus, pods = nodes_listing(nodes), workloads_listing(workloads, namespaces=True, now=now)
    return Group(
        Text(f"{_headline(nodes, workloads, now)}\n", style="bold"),
        _table(gpus.wide if wide else gpus.table),
        Text(),
        _table(pods.wide if wide else pods.table),
    )


def _headline(nodes: list[View], workloads: list[View], now: datetime) -> str:
    total, held, free = (sum(node["gpus"][key] or 0 for node in nodes) for key in ("total", "held", "available"))
    waiting = sum(each["phase"] == "Pending" for each in workloads)
    return (
        f"{now:%H:%M:%S}  {number_of(total, 'GPU')} known, {held} held, {free} free; "
        f"{number_of(len(workloads), 'workload')}, {waiting} pending; Ctrl-C ends"
    )


def _table(printed: PrintedTable) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    for column in printed.columns:
        table.add_column(column.title, overflow="ellipsis", no_wrap=True)
    for row in printed.rows:
        table.add_row(*(_text(cell(column.show(row))) for column in printed.columns))
    return table


def _text(word: str) -> Text:
    return Text(word, style=_STYLES.get(tone(word), ""))
