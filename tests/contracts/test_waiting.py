"""Time limits of tests grow on a busy or slow machine and are bounded; random tests are repeatable."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import settings

from tests import waiting
from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from pathlib import Path

CORES = os.cpu_count() or 1
HANGS = """\
import time
import pytest

@pytest.mark.timeout(0.2)
def test_hangs():
    time.sleep(60)

@pytest.mark.timeout(0.2)
def test_takes_a_little_longer():
    time.sleep(0.3)
"""
SWALLOWS: Final = """\
import time
import pytest

@pytest.mark.timeout(0.2)
def test_swallows():
    while True:
        try:
            time.sleep(0.01)
        except BaseException:
            pass

def test_follows():
    pass
"""


@pytest.mark.parametrize(
    ("speed", "load", "seconds"),
    [
        pytest.param(1.0, 0.0, 2.0, id="an idle machine: twice the time"),
        pytest.param(0.5, 0.0, 2.0, id="a fast machine has the same limit"),
        pytest.param(1.5, 0.0, 3.0, id="a slow machine has a longer limit"),
        pytest.param(1.0, 2.0 * CORES, 4.0, id="two processes for each core"),
        pytest.param(1.5, 2.0 * CORES, 6.0, id="a slow machine with two processes for each core"),
        pytest.param(1.0, 100.0 * CORES, 10.0, id="never more than ten times the time"),
    ],
)
def test_a_limit_grows_with_the_machine(
    monkeypatch: pytest.MonkeyPatch, speed: float, load: float, seconds: float
) -> None:
    """With its slowness and its present load."""
    monkeypatch.setattr(waiting, "_speed", lambda: speed)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))

    assert waiting.limit(1.0) == pytest.approx(seconds)


def test_eventually_fails_with_its_description(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the limit, with the last value."""
    monkeypatch.setattr(waiting, "limit", lambda seconds: seconds)

    with pytest.raises(AssertionError, match=r"after 0.05 s still not: the sun shines \(last answer: ''\)"):
        waiting.eventually("the sun shines", lambda: "", 0.05)


def run_pytest(file: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the file as a test of this checkout."""
    options = ("-q", "-p", "no:cacheprovider", f"--rootdir={ROOT}", f"--confcutdir={ROOT}", "-p", "conftest", *words)
    command = (sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), *options, str(file))
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_test_that_hangs_is_ended(tmp_path: Path) -> None:
    """After its limit for this machine, not after its bare time-out, which is for an idle machine."""
    file = tmp_path / "test_hanging.py"
    file.write_text(HANGS)
    done = run_pytest(file)

    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "::test_hangs - Failed: Timeout" in done.stdout


def test_a_test_that_swallows_its_time_out_ends_its_worker(tmp_path: Path) -> None:
    """It is named, is not run again in the next worker, and the rest of its file runs there."""
    file = tmp_path / "test_swallowing.py"
    file.write_text(SWALLOWS)
    done = run_pytest(file, "--numprocesses=1", "--dist=loadfile")

    assert "crashed while running" in done.stdout, done.stdout + done.stderr
    assert "::test_swallows - Failed: it ended its process, and is not run again" in done.stdout
    assert "1 failed, 1 passed, 1 error" in done.stdout
    assert "::test_swallows: still runs after 1.5 times its time-out" in done.stdout + done.stderr


def test_hypothesis_repeats_itself_in_the_gate() -> None:
    """The same examples each time; profile `search` has others."""
    gate, search = settings.get_profile("gate"), settings.get_profile("search")

    assert (gate.derandomize, gate.database, gate.deadline) == (True, None, None)
    assert (search.derandomize, search.database, search.deadline) == (False, None, None)
    assert search.max_examples > gate.max_examples
    assert settings.default is not None
    assert settings.default.derandomize is (os.environ.get("HYPOTHESIS_PROFILE", "gate") == "gate")
