"""The commands in `bin/` run the command line of the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from typing import TYPE_CHECKING

from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def run(command: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command, with nothing but PATH in its environment."""
    env = {"PATH": os.environ["PATH"]}
    return subprocess.run([str(command), *words], env=env, capture_output=True, text=True, check=False)


def test_each_script_of_the_package_is_there() -> None:
    """Under the name that an installation gives it, so that messages name what exists."""
    project = tomllib.loads((ROOT / "scheduler" / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert sorted(path.name for path in (ROOT / "bin").iterdir()) == sorted(project["scripts"])


def test_a_checkout_runs_its_own_command_line() -> None:
    """Also as kubectl's plugin, and as its completion."""
    called = [run(ROOT / "bin" / name, "nodse").stderr for name in ("gpu-scheduler", "kubectl-gpu_scheduler")]

    assert called[0].startswith("cannot run gpu-scheduler: no such command 'nodse'")
    assert called[1].startswith("cannot run kubectl gpu-scheduler: no such command 'nodse'")
    assert run(ROOT / "bin" / "kubectl_complete-gpu_scheduler", "st").stdout.split() == ["status", "strategy", ":4"]


def test_without_an_environment_it_says_how_to_make_one(tmp_path: Path) -> None:
    """In one sentence."""
    (tmp_path / "bin").mkdir()
    copy = shutil.copy(ROOT / "bin" / "gpu-scheduler", tmp_path / "bin")

    result = run(tmp_path / "bin" / "gpu-scheduler", "status")

    assert copy
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith(
        f"cannot run gpu-scheduler: {tmp_path}/.venv is not there; make it (example: make -C"
    )
