"""`make test`, `make test-all` and continuous integration run every suite."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.contracts.roles import ROOT
from tests.suites.bare import BARE
from tests.suites.beyond import BEYOND
from tests.suites.gate import GATE
from tests.suites.steps import Step, Suite, run_suite, started
from tests.waiting import eventually, limit

GATE_OF_MAKE: Final = "".join(re.findall(r"^GATE := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_make_test_runs_each_suite_of_the_gate_once() -> None:
    """The Makefile runs each suite of the gate, and no other."""
    assert sorted(GATE_OF_MAKE.replace("+", " ").split()) == sorted(GATE)
    assert not GATE.keys() & BEYOND.keys()


@pytest.mark.parametrize("name", [*BARE, *GATE, *BEYOND])
def test_the_files_of_a_suite_exist(name: str) -> None:
    """A renamed file must be noticed at once, not when its suite runs, once in eight commits."""
    suite = {**BARE, **GATE, **BEYOND}[name]()
    commands = [command for step in (*suite.steps, *suite.cleanup) for command in (step.command, *step.beside)]
    paths = [word for command in commands for word in command if re.fullmatch(r"[\w./-]+\.(py|yml|yaml)", word)]

    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(("suite", "asked"), [("", "in-turn"), ("healing", "healing")])
def test_continuous_integration_runs_a_bare_machine_the_gate_and_one_suite(
    tmp_path: Path, suite: str, asked: str
) -> None:
    """In one run, so that a failure of the gate does not hide the other. CI is set, so that a skip fails."""
    make = tmp_path / "make"
    make.write_text(f'#!/bin/sh\necho "CI=$CI"\nexec {shutil.which("make")} --dry-run "$@"\n')
    make.chmod(0o755)
    # The make around this test hands its own variables and its level down.
    outside_make = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    environment = {**outside_make, "PATH": f"{tmp_path}:{os.environ['PATH']}", "CI": "", "SUITE": suite}

    for command, suites in ((".ci/run",), f"bare {GATE_OF_MAKE} {asked}"), ((make, "test-suite"), asked):
        done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
        assert done.stdout.rstrip().endswith(f" -m tests.suites {suites}")
        assert done.stdout.startswith("CI=true" if command == (".ci/run",) else "CI=\n")


def test_a_step_that_hangs_is_ended_and_the_next_runs(tmp_path: Path) -> None:
    """With all that it started. After a step that is needed, only the cleanup runs."""
    hanging = Step("hang", ("sh", "-c", f"sleep 999 & echo $! > {tmp_path}/started; wait"), limit=1)
    marks = [Step(name, ("touch", str(tmp_path / name))) for name in ("next", "left out", "cleanup")]
    suite = Suite((hanging, marks[0], Step("false", ("false",), needed=True), marks[1]), cleanup=(marks[2],))

    failures = [(each.name, each.failure) for each in run_suite(suite) if each.failure]

    assert failures == [
        ("hang", f"{' '.join(hanging.command)} was ended after the step's limit of 1 s"),
        ("false", "exit status 1"),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cleanup", "next", "started"]
    child = Path("/proc", (tmp_path / "started").read_text().strip(), "cmdline")
    eventually("what it started is gone", lambda: not child.exists() or not child.read_text())  # empty: a zombie


def test_what_python_compiles_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the environment forbids it, as that of many containers does."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")

    with started((sys.executable, "-c", "import sys; sys.exit(sys.dont_write_bytecode)")) as process:
        assert process.wait(limit(30)) == 0
