"""`make test`, `make test-all` and continuous integration run every suite."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
from typing import TYPE_CHECKING, Final

import pytest

from tests.contracts.roles import ROOT
from tests.suites.__main__ import main
from tests.suites.beyond import BEYOND
from tests.suites.gate import GATE, INTEGRATION
from tests.suites.rotation import choose_in_turn
from tests.suites.steps import Step, Suite, run_suite

if TYPE_CHECKING:
    from pathlib import Path

NAMES: Final = list(BEYOND)
COMMITS: Final = 2 * len(NAMES)
PEOPLE: Final = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "somebody"), ("EMAIL", "somebody@example.com"), ("DATE", "2026-11-23T00:00:00Z"))
}
CONFIGURATION: Final = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


def git(folder: Path, *words: str) -> None:
    """Run git with a fixed author and date, so that the same commits have the same hashes."""
    environment = {**os.environ, **PEOPLE, **CONFIGURATION}
    subprocess.run(("git", "-C", str(folder), *words), env=environment, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit."""
    folder = tmp_path / "whole"
    folder.mkdir()
    git(folder, "init", "--quiet")
    git(folder, "commit", "--quiet", "--allow-empty", "--message=1")
    return folder


def test_make_test_runs_each_suite_of_the_gate_once() -> None:
    """The Makefile runs each suite of the gate, and no other."""
    asked = re.search(r"^GATE := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert asked is not None

    assert sorted(asked[1].replace("+", " ").split()) == sorted(GATE)
    assert not GATE.keys() & BEYOND.keys()


@pytest.mark.parametrize("name", [*GATE, *BEYOND])
def test_the_files_of_a_suite_exist(name: str) -> None:
    """A renamed file must be noticed at once, not when its suite runs, once in eight commits."""
    suite = {**GATE, **BEYOND}[name]()
    commands = [command for step in (*suite.steps, *suite.cleanup) for command in (step.command, *step.beside)]
    paths = [word for command in commands for word in command if re.fullmatch(r"[\w./-]+\.(py|yml|yaml)", word)]

    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_consecutive_commits_run_suites_in_turn(repository: Path) -> None:
    """Consecutive commits run the suites in turn, in a fixed order."""
    chosen = []
    for number in range(1, COMMITS + 1):
        name, why = choose_in_turn(NAMES, repository)
        chosen.append(name)
        assert f"this is commit number {number}, and {name} is suite " in why
        git(repository, "commit", "--quiet", "--allow-empty", f"--message={number}")

    assert sorted(chosen[: len(NAMES)]) == sorted(NAMES)
    assert chosen[len(NAMES) :] == chosen[: len(NAMES)]


def test_a_shallow_clone_has_turns_too(repository: Path, tmp_path: Path) -> None:
    """A shallow clone always has one commit, so the hash decides: the same commit always has the same suite."""
    chosen = []
    for number in range(COMMITS):
        git(repository, "commit", "--quiet", "--allow-empty", f"--message={number}")
        clone = tmp_path / f"clone-{number}"
        git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{repository}", str(clone))
        name, why = choose_in_turn(NAMES, clone)
        assert choose_in_turn(NAMES, clone) == (name, why)
        assert why.startswith("the hash of this commit of a shallow clone begins with ")
        chosen.append(name)

    assert len(set(chosen)) > len(NAMES) // 2


def test_without_a_repository_the_first_suite_runs(tmp_path: Path) -> None:
    """An unpacked archive has no commits."""
    assert choose_in_turn(NAMES, tmp_path)[0] == NAMES[0]


@pytest.mark.parametrize(("given", "suite"), [({}, ""), ({"SUITE": "healing"}, "healing")])
def test_continuous_integration_runs_the_gate_and_one_suite(tmp_path: Path, given: dict[str, str], suite: str) -> None:
    """`make test`, then the suite of the commit, or the one in SUITE."""
    notes = tmp_path / "notes"
    (tmp_path / "make").write_text(f'#!/bin/sh\necho "$*" >> {notes}\n')
    (tmp_path / "make").chmod(0o755)
    clean = {key: value for key, value in os.environ.items() if key != "SUITE"}
    environment = {**clean, "PATH": f"{tmp_path}:{os.environ['PATH']}", **given}

    subprocess.run((ROOT / ".ci" / "run",), env=environment, check=True)

    assert notes.read_text().splitlines() == ["test", f"test-suite SUITE={suite}"]


@pytest.mark.parametrize(("suite", "asked"), [("", "in-turn"), ("healing", "healing")])
def test_a_suite_is_chosen_by_its_name(suite: str, asked: str) -> None:
    """Without a name the commit decides."""
    command = ("make", "--dry-run", "test-suite", f"SUITE={suite}")
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)

    assert done.stdout.splitlines()[-1].endswith(f" -m tests.suites {asked}")


def test_two_runs_do_not_have_the_test_cluster_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second fails with a reason and touches nothing, its cleanup included. After the first it runs."""
    lock, mark = tmp_path / "cache" / "lock", tmp_path / "mark"
    touch = Step("touch", ("touch", str(mark)))
    suite = Suite((Step("true", ("true",)),), cleanup=(touch,), lock=lock)
    lock.parent.mkdir()
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not run_suite(suite)
    assert f"cannot run: another run of the tests has the test cluster, and {lock} is locked" in capsys.readouterr().out
    assert not mark.exists()

    assert run_suite(suite)
    assert mark.exists()


def test_an_unknown_suite_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    """And no suite runs."""
    assert main(["check", "nonsense"]) == 2

    assert f"cannot run suite nonsense: known suites are check unit contracts {INTEGRATION.split('/')[1]}" in (
        capsys.readouterr().out
    )
