"""The commands of docs/existing-clusters.md can be taken from the page and run."""

from __future__ import annotations

import subprocess
from typing import Final

from tests.cluster.existing import page
from tests.contracts.roles import inventory_variables

LONGEST: Final = 150
VALUES: Final = {"CONTEXT": "kind-it's", "REGISTRY": "localhost:5000/team"}


def test_the_page_has_exactly_the_sections_that_the_scenario_runs() -> None:
    """A new section with commands needs its case."""
    assert page.Page(VALUES).headings == page.WALK


def test_every_command_of_the_page_is_a_script_that_bash_can_read() -> None:
    """And the page stays short enough to be read."""
    read = page.Page(VALUES)
    for heading in read.headings:
        for block in read.blocks(heading):
            subprocess.run(("bash", "-n", "-c", read.script(block)), check=True)

    assert len(page.PAGE.read_text(encoding="utf-8").splitlines()) <= LONGEST


def test_every_value_that_the_page_names_is_an_input_of_the_inventory() -> None:
    """Each `name: value` in the table of values is a variable of inventory/existing."""
    text = page.PAGE.read_text(encoding="utf-8")
    table = text.partition("| your cluster | value |")[2].partition("\n\n")[0]
    named = {part.partition(":")[0] for part in table.split("`")[1::2] if ": " in part}

    assert named
    assert named - inventory_variables("existing") == set()
