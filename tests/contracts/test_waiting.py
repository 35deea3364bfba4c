"""A test that hangs is ended, and named: pytest-timeout and pytest-xdist may change."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final

from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from pathlib import Path

HANGS: Final = """\
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
