import json
from typing import Any

import pytest
import yaml

from gpu_scheduler.cli.options import Options, Output, RefusedInputError
from gpu_scheduler.cli.output import Column, Listing, PrintedTable, cell, colours, render, tabled

Facts = dict[str, Any]

ITEMS: list[Facts] = [
    {"name": "node2", "health": "unhealthy", "cards": [0, 1], "map": "0=node1:0\n1=node2:1\n", "free": 0},
    {"name": "node10", "health": "healthy", "cards": [], "map": "", "free": 4},
]
COLUMNS = (
    Column("NAME", lambda item: item["name"]),
    Column("HEALTH", lambda item: item["health"]),
    Column("CARDS", lambda item: item["cards"]),
)
LISTING = Listing(
    "Node",
    ITEMS,
    PrintedTable(COLUMNS, ITEMS),
    PrintedTable((*COLUMNS, Column("FREE", lambda item: item["free"])), ITEMS),
    lambda item: f"node/{item['name']}",
)


def test_a_table_has_aligned_columns_and_dashes_for_empty_cells() -> None:
    """As in kubectl's tables."""
    assert render(LISTING, Options()).splitlines() == [
        "NAME     HEALTH      CARDS",
        "node2    unhealthy   0,1",
        "node10   healthy     -",
    ]


RENDERED = {
    "titles can be left out, for scripts that cut columns": (Options(no_headers=True), "node2    unhealthy   0,1\n"),
    "wide shows more columns": (Options(output=Output.WIDE), "CARDS   FREE\n"),
    "names are kubectl's, one a line for xargs": (Options(output=Output.NAME), "node/node2\nnode/node10\n"),
    "YAML writes texts of several lines as blocks": (
        Options(output=Output.YAML),
        "  map: |\n    0=node1:0\n    1=node2:1\n",
    ),
}


@pytest.mark.parametrize(("options", "part"), RENDERED.values(), ids=RENDERED)
def test_a_listing_has_the_form_that_is_asked_for(options: Options, part: str) -> None:
    """With its titles, or without."""
    printed = render(LISTING, options)

    assert part in printed
    assert printed == part or options.output is not Output.NAME
    assert ("NAME" in printed) == (options.output is Output.WIDE)


def test_a_listing_without_names_has_no_name_output() -> None:
    """The error is one sentence with an alternative."""
    with pytest.raises(RefusedInputError, match=r'^cannot print "name": .*example: -o json'):
        render(Listing("Status", ITEMS, PrintedTable((), ()), PrintedTable((), ())), Options(output=Output.NAME))


@pytest.mark.parametrize(("output", "read"), [(Output.JSON, json.loads), (Output.YAML, yaml.safe_load)])
def test_data_is_a_list_of_all_facts(output: Output, read: Any) -> None:
    """JSON and YAML have the same data, and each item has its kind."""
    found = read(render(LISTING, Options(output=output)))

    head = {"apiVersion": "cli.agentaflow.io/v1", "kind": "Node"}
    assert found == {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": [{**head, **item} for item in ITEMS]}


def test_an_empty_table_prints_nothing() -> None:
    """No titles without rows."""
    assert tabled(PrintedTable(COLUMNS, ())) == ""


CELLS = {
    "None is a dash": (None, "-"),
    "an empty text is a dash": ("", "-"),
    "zero is a number": (0, "0"),
    "yes": (True, "yes"),
    "no": (False, "no"),
    "an empty list is a dash": ((), "-"),
    "a list is one cell": ([0, "a"], "0,a"),
}


@pytest.mark.parametrize(("value", "text"), CELLS.values(), ids=CELLS)
def test_cells(value: object, text: str) -> None:
    """The text of one cell."""
    assert cell(value) == text


COLOURS: dict[str, tuple[bool, dict[str, str], bool]] = {
    "a terminal has colours": (True, {"TERM": "xterm"}, True),
    "a pipe has no colours": (False, {"TERM": "xterm"}, False),
    "NO_COLOR removes them": (True, {"NO_COLOR": "1"}, False),
    "an empty NO_COLOR does not": (True, {"NO_COLOR": ""}, True),
    "a dumb terminal has no colours": (True, {"TERM": "dumb"}, False),
}


@pytest.mark.parametrize(("terminal", "environment", "coloured"), COLOURS.values(), ids=COLOURS)
def test_colours(terminal: bool, environment: dict[str, str], coloured: bool) -> None:  # noqa: FBT001 - rows of the table
    """As no-color.org asks."""
    assert colours(terminal, environment) is coloured


def test_colours_do_not_move_the_columns() -> None:
    """Escape sequences have no width."""
    plain = tabled(PrintedTable(COLUMNS, ITEMS)).splitlines()
    coloured = tabled(PrintedTable(COLUMNS, ITEMS), coloured=True).splitlines()

    assert coloured[1] == plain[1].replace("unhealthy", "\033[31munhealthy\033[0m")
    assert "\033[32mhealthy  \033[0m" in coloured[2]
