"""The kept breakages: a patch of one line each, with the tests that must fail for it.

A patch begins with a sentence that says what it breaks and with lines `test: NODE-ID [NODE-ID…]`; git skips both.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = Path(__file__).resolve().parent
TEST: Final = "test:"
LENIENT: Final = ("-C1",)
"""How git applies a patch: one line around it has to be as it was, so that a neighbour may change."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One breakage of the checkout."""

    path: Path
    what: str
    tests: tuple[str, ...]
    changed: tuple[str, ...]
    """The lines that it takes away and adds, each with its sign."""

    @property
    def name(self) -> str:
        """How it is called: its number and what is broken."""
        return self.path.stem

    @property
    def needs_api_server(self) -> bool:
        """Whether its tests start a control plane of their own."""
        return any(test.startswith("tests/integration") for test in self.tests)


def read_mutants() -> tuple[Mutant, ...]:
    """Read all patches, by number."""
    return tuple(
        _read(path) for path in sorted(FOLDER.glob("*.patch"), key=lambda path: int(path.name.partition("-")[0]))
    )


def _read(path: Path) -> Mutant:
    head, _, diff = path.read_text(encoding="utf-8").partition("\n--- ")
    lines = [line.strip() for line in head.splitlines() if line.strip() and not line.startswith("diff ")]
    tests = (name for line in lines if line.startswith(TEST) for name in line.removeprefix(TEST).split())
    what = " ".join(line for line in lines if not line.startswith(TEST))
    # Past the second of the two lines that name the file.
    body = diff.partition("\n@@")[2].splitlines()
    return Mutant(path, what, tuple(tests), tuple(line for line in body if line[:1] in {"+", "-"}))


def missing_tests(mutant: Mutant) -> list[str]:
    """Name the mutant's tests that the checkout does not have, as far as reading their files tells."""
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
            # A state machine's test is made by its library.
            return _assigned(found, names[0])
        found = bodies[0]
    return True


def _assigned(body: list[ast.stmt], name: str) -> bool:
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


_NAMED: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
