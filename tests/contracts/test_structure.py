"""The structure guard of the house: sizes that ruff does not count."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from tests.contracts import roles
from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONGEST_MODULE = 300
LONGEST_FUNCTION = 50
MOST_EXCEPTIONS = 5

MODULES = sorted(
    path
    for folder in ("scheduler/gpu_scheduler", "check", "simulator", "plugins", "roles", "tests", "bench")
    for path in (ROOT / folder).rglob("*.py")
)


def exceptions() -> dict[str, str]:
    """Return place → dated reason, from the one file that may excuse anything."""
    path = ROOT / "tests" / "contracts" / "exceptions.yml"
    return roles.read("tests", "contracts", "exceptions.yml") if path.exists() else {}


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield each function of the module at `path` with its number of lines, docstring not counted."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
            yield node.name, (node.end_lineno or 0) - body[0].lineno + 1


def test_few_exceptions_each_dated() -> None:
    """At most five places are excused, each with a date and a reason."""
    excused = exceptions()

    assert len(excused) <= MOST_EXCEPTIONS
    for reason in excused.values():
        assert reason[:4].isdigit()
        assert len(reason) > len("2026-11-21: ")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_has_one_subject(path: Path) -> None:
    """A module has at most 300 lines, a function at most 50."""
    name = str(path.relative_to(ROOT))
    if name in exceptions():
        return
    long_functions = [(function, lines) for function, lines in functions(path) if lines > LONGEST_FUNCTION]

    assert len(path.read_text().splitlines()) <= LONGEST_MODULE
    assert long_functions == []
