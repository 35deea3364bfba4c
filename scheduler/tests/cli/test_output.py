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


def test_a_table_has_aligned_columns_and_dashes_for_nothing() -> None:
    """As kubectl prints."""
    assert render(LISTING, Options()).splitlines() == [
        "NAME     HEALTH      CARDS",
        "node2    unhealthy   0,1",
        "node10   healthy     -",
    ]


def test_titles_can_be_left_out() -> None:
    """For scripts that cut columns."""
    assert render(LISTING, Options(no_headers=True)).startswith("node2 ")


def test_wide_shows_more() -> None:
    """Columns that most do not need."""
    assert render(LISTING, Options(output=Output.WIDE)).splitlines()[0].endswith("CARDS   FREE")


def test_names_are_kubectls() -> None:
    """One a line, for xargs."""
    assert render(LISTING, Options(output=Output.NAME)) == "node/node2\nnode/node10\n"


def test_what_has_no_name_is_not_named() -> None:
    """One sentence with a way out."""
    with pytest.raises(RefusedInputError, match=r'^cannot print "name": .*example: -o json'):
        render(Listing("Status", ITEMS, PrintedTable((), ()), PrintedTable((), ())), Options(output=Output.NAME))


@pytest.mark.parametrize(("output", "read"), [(Output.JSON, json.loads), (Output.YAML, yaml.safe_load)])
def test_data_is_a_list_of_all_facts(output: Output, read: Any) -> None:
    """The same in both forms, and each item says what it is."""
    found = read(render(LISTING, Options(output=output)))

    head = {"apiVersion": "cli.agentaflow.io/v1", "kind": "Node"}
    assert found == {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": [{**head, **item} for item in ITEMS]}


def test_yaml_has_texts_of_several_lines_as_people_write_them() -> None:
    """A map can be read, and put into a template."""
    assert "  map: |\n    0=node1:0\n    1=node2:1\n" in render(LISTING, Options(output=Output.YAML))


def test_nothing_is_printed_of_nothing() -> None:
    """No titles without rows."""
    assert tabled(PrintedTable(COLUMNS, ())) == ""


CELLS = {
    "nothing is a dash": (None, "-"),
    "an empty text too": ("", "-"),
    "zero is a number": (0, "0"),
    "yes": (True, "yes"),
    "no": (False, "no"),
    "an empty list is a dash": ((), "-"),
    "a list is one cell": ([0, "a"], "0,a"),
}


@pytest.mark.parametrize(("value", "text"), CELLS.values(), ids=CELLS)
def test_cells(value: object, text: str) -> None:
    """What stands in a column."""
    assert cell(value) == text


COLOURS: dict[str, tuple[bool, dict[str, str], bool]] = {
    "a terminal has colours": (True, {"TERM": "xterm"}, True),
    "a pipe has none": (False, {"TERM": "xterm"}, False),
    "NO_COLOR takes them away": (True, {"NO_COLOR": "1"}, False),
    "an empty NO_COLOR does not": (True, {"NO_COLOR": ""}, True),
    "a dumb terminal has none": (True, {"TERM": "dumb"}, False),
}


@pytest.mark.parametrize(("terminal", "environment", "coloured"), COLOURS.values(), ids=COLOURS)
def test_colours(terminal: bool, environment: dict[str, str], coloured: bool) -> None:  # noqa: FBT001 - rows of the table
    """As no-color.org asks."""
    assert colours(terminal, environment) is coloured


def test_colours_leave_the_columns_where_they_are() -> None:
    """Escape sequences have no width."""
    plain = tabled(PrintedTable(COLUMNS, ITEMS)).splitlines()
    coloured = tabled(PrintedTable(COLUMNS, ITEMS), coloured=True).splitlines()

    assert coloured[1] == plain[1].replace("unhealthy", "\033[31munhealthy\033[0m")
    assert "\033[32mhealthy  \033[0m" in coloured[2]
