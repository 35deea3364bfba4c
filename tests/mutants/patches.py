"""The kept mutants: one-line patches, each with the tests that must fail for it.

A patch begins with a sentence that names what it breaks, and with lines `test: NODE-ID [NODE-ID…]` and, where that is a
promise of docs/contract.md, `promise: ID [ID…]`. git ignores them.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = Path(__file__).resolve().parent
TEST: Final = "test:"
PROMISE: Final = "promise:"
LENIENT: Final = ("-C1",)
"""Options of `git apply`: only one line of context must match, so that other lines nearby may change."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One patch that breaks the checkout, and the tests that must fail for it."""

    path: Path
    what: str
    tests: tuple[str, ...]
    promises: tuple[str, ...]
    """The promises of docs/contract.md that it breaks."""
    changed: tuple[str, ...]
    """The removed and added lines, each with its sign."""

    @property
    def name(self) -> str:
        """The name of its file without the ending: a number and the breakage."""
        return self.path.stem

    @property
    def file(self) -> str:
        """The file that it changes."""
        return self.path.read_text(encoding="utf-8").partition("\n+++ b/")[2].partition("\n")[0]

    @property
    def needs_api_server(self) -> bool:
        """Whether its tests start a control plane of their own."""
        return any(test.startswith(("tests/integration", "tests/attacks")) for test in self.tests)


def read_mutants() -> tuple[Mutant, ...]:
    """Return all mutants, sorted by number."""
    return tuple(
        _read(path) for path in sorted(FOLDER.glob("*.patch"), key=lambda path: int(path.name.partition("-")[0]))
    )


def _read(path: Path) -> Mutant:
    head, _, diff = path.read_text(encoding="utf-8").partition("\n--- ")
    lines = [line.strip() for line in head.splitlines() if line.strip() and not line.startswith("diff ")]
    what = " ".join(line for line in lines if not line.startswith((TEST, PROMISE)))
    # Skip the two lines that name the file.
    body = diff.partition("\n@@")[2].splitlines()
    changed = tuple(line for line in body if line[:1] in {"+", "-"})
    return Mutant(path, what, _words(lines, TEST), _words(lines, PROMISE), changed)


def _words(lines: list[str], start: str) -> tuple[str, ...]:
    return tuple(word for line in lines if line.startswith(start) for word in line.removeprefix(start).split())


def missing_tests(mutant: Mutant) -> list[str]:
    """Return the mutant's tests that the checkout does not have. The test files are parsed, not imported."""
    return [test for test in mutant.tests if not _has(test)]


def _has(test: str) -> bool:
    place, *names = test.partition("[")[0].split("::")
    path = ROOT / place
    if not path.is_file():
        return False
    found: list[ast.stmt] = ast.parse(path.read_text(encoding="utf-8")).body
    for name in names:
        bodies = [node.body for node in found if isinstance(node, _NAMED) and node.name == name]
        if not bodies:
            # Hypothesis creates the test of a state machine by an assignment.
            return _assigned(found, names[0])
        found = bodies[0]
    return True


def _assigned(body: list[ast.stmt], name: str) -> bool:
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


_NAMED: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
