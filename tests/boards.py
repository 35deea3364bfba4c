"""Reads the Grafana boards of role observability: their panels and their queries."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.objects import Object

FOLDER: Final = Path(__file__).resolve().parents[1] / "roles/observability/files/boards"
NAMES: Final = ("cluster", "scheduling", "waiting", "operations")


@dataclass(frozen=True, slots=True)
class PanelQuery:
    """One query of a panel. An instant query asks for the present alone."""

    place: str
    expr: str
    legend: str
    instant: bool


def read_board(name: str) -> Object:
    """Return the board of this name."""
    board: Object = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return board


def panels_of(board: Object) -> Iterator[Object]:
    """Yield the panels of a board, also those of collapsed rows, but no rows."""
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def queries_of(board: Object) -> Iterator[PanelQuery]:
    """Yield the queries of all panels of a board."""
    for panel in panels_of(board):
        for target in panel.get("targets", ()):
            place = f"{board['title']}, {panel['title']}"
            yield PanelQuery(place, target["expr"], target.get("legendFormat", ""), target["instant"])
