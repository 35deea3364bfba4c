"""docs/security.md names a test or a reason for each line, and contains each attack and each policy."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import Final

import pytest

from tests.contracts.roles import ROOT

PAGE: Final = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAMED: Final = re.compile(r"`([\w/]+\.py)::(\w+)`")
TESTS: Final = sorted(set(NAMED.findall(PAGE)))
NO_TEST: Final = "no test: "
"""Followed by a reason."""
ATTACKS: Final = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests/attacks").glob("test_*.py"))
KINDS: Final = re.compile(r"^kind: (?:Validating|Mutating)AdmissionPolicy$", re.MULTILINE)
POLICIES: Final = re.compile(KINDS.pattern + r"\nmetadata: \{name: ([\w-]+),", re.MULTILINE)
TEMPLATES: Final = [
    path.read_text(encoding="utf-8")
    for role in ("policies", "driver")
    for path in sorted((ROOT / "roles" / role / "templates").glob("*.j2"))
]


def _rows() -> list[str]:
    """Return the rows of the tables whose last column is `test`, without their heads."""
    rows, within = [], False
    for line in PAGE.splitlines():
        if line.endswith("| test |"):
            within = True
        elif not line.startswith("|"):
            within = False
        elif within and not line.startswith("|---"):
            rows.append(line)
    return rows


@cache
def _functions(file: str) -> frozenset[str]:
    path = ROOT / file
    tree = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else ast.Module([], [])
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize(("file", "name"), TESTS, ids="::".join)
def test_each_test_that_the_page_names_exists(file: str, name: str) -> None:
    """A test that the page names exists."""
    assert name.startswith("test_")
    assert name in _functions(file)


@pytest.mark.parametrize("row", _rows(), ids=lambda row: row.split("|")[1].strip()[:40])
def test_each_line_has_its_test(row: str) -> None:
    """Or the reason why a test is not useful."""
    cell = row.split("|")[-2].strip()

    assert cell.startswith(NO_TEST) or NAMED.search(cell)


@pytest.mark.parametrize("file", ATTACKS)
def test_each_file_of_attacks_stands_on_the_page(file: str) -> None:
    """The page names every threat that a test of attacks covers."""
    assert file in {named for named, _ in TESTS}


def test_each_policy_stands_on_the_page() -> None:
    """The page names every policy of roles policies and driver, including those for `injection: policy`."""
    text = "\n".join(TEMPLATES)
    shipped = POLICIES.findall(text)

    assert len(shipped) == len(KINDS.findall(text)) > 0
    assert [name for name in shipped if f"`{name}`" not in PAGE] == []
