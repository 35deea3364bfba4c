"""docs/sources.md has every command of the five sources, and each row says how it is known to work."""

from __future__ import annotations

import re
import subprocess
from typing import Final

import pytest

from tests import source_page
from tests.contracts.roles import ROOT
from tests.suites.beyond import BEYOND
from tests.suites.gate import GATE

COMMANDS: Final = ROOT / "tests" / "contracts" / "source_commands.txt"
ROWS: Final = source_page.read()
HOST: Final = re.compile(r"\b[a-z]+\.(?!kubernetes\.|k8s\.)[a-z]+\.(?:com|io)\b")
"""A registry or a site that the sources' users type. Groups of Kubernetes are no hosts."""


def collapsed(command: str) -> str:
    """Return the command as the list has it."""
    return HOST.sub("HOST", " ".join(command.split()))


def listed() -> dict[str, list[str]]:
    """Return source → its commands."""
    found: dict[str, list[str]] = {}
    for line in filter(None, COMMANDS.read_text(encoding="utf-8").splitlines()[1:]):
        if line.startswith("## "):
            found[line.removeprefix("## ")] = commands = []
        else:
            commands.append(line)
    return found


def test_there_is_a_table_for_each_source() -> None:
    """Five, in the order of the list."""
    assert list(ROWS) == list(listed())
    assert len(ROWS) == 5


@pytest.mark.parametrize("source", listed())
def test_every_command_of_a_source_has_a_row(source: str) -> None:
    """In the order of the source, and as it is written there."""
    assert [collapsed(command) for row in ROWS[source] for command in row.theirs] == listed()[source]


@pytest.mark.parametrize("source", listed())
def test_every_row_says_how_it_is_known(source: str) -> None:
    """Whatever is run has commands. Whoever runs it elsewhere is a suite, or a test that exists."""
    for row in ROWS[source]:
        assert row.ours or not row.status.startswith(source_page.RUN), row
        name = row.elsewhere
        assert not name or name in {**GATE, **BEYOND} or (ROOT / name).exists(), f"{name} of {row.theirs}"


@pytest.mark.parametrize("source", listed())
def test_their_command_is_run_or_a_reason_is_given(source: str) -> None:
    """A row with a reason has a command of ours, which is another one."""
    for row in ROWS[source]:
        assert not row.reason or (row.ours and row.ours != row.theirs), row


@pytest.mark.parametrize("source", listed())
def test_every_command_of_ours_is_one_that_bash_can_read(source: str) -> None:
    """No row is cut off by a bar or a quote of its table."""
    for row in ROWS[source]:
        done = subprocess.run(("bash", "-n"), input=row.script, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), row.script


def test_every_source_with_rows_to_run_is_typed() -> None:
    """By the test on the cluster, under its title."""
    typed = (ROOT / "tests" / "cluster" / "usage" / "test_sources.py").read_text(encoding="utf-8")
    titles = re.findall(r'type_rows\(reader, "([^"]+)"\)', typed)

    assert titles == [source for source, rows in ROWS.items() if any(row.status == source_page.RUN for row in rows)]


def test_hosts_are_those_that_users_of_the_sources_type() -> None:
    """They stand in the first column alone."""
    rest = source_page.PAGE.read_text(encoding="utf-8")
    for rows in ROWS.values():
        for command in (command for row in rows for command in row.theirs):
            rest = rest.replace(command.replace("|", "\\|"), "")

    assert HOST.findall(rest) == []
