from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from bench import pairs
from bench.gated_process import ROOT
from tests.bench.sample_results import WRONG, one, session

if TYPE_CHECKING:
    from pathlib import Path


def test_the_report_has_the_ratios_of_each_pair() -> None:
    """The median of the ratios, not the ratio of the medians; a pair with a fault is left out."""
    measured = [
        (one("O", 100, 1, cpu=2.0), one("O", 200, 1, cpu=1.0)),
        (one("O", 100, 2, cpu=2.0), one("O", 100, 2, cpu=2.0)),
        (one("O", 50, 3, cpu=2.0), one("O", 200, 3, cpu=0.5)),
        (one("O", 10, 4, cpu=9.0), one("O", 20, 4, cpu=9.0, **WRONG)),
    ]

    lines = list(pairs.markdown(session(), "90344c679b98", {"W1": measured}))

    assert "- began: 2026-01-02T03:04:05Z, now: commit `abc123-dirty`, before: commit `90344c679b98`" in lines
    assert "| W1 | seconds to the last bind | 10 | 5 | 2.000 | 1.000 to 4.000 | 3 |" in lines
    assert "| W1 | ms of CPU a pod | 2 | 1 | 2.000 | 1.000 to 4.000 | 3 |" in lines
    assert "| W1 | ms of CPU a pod of API server and etcd | — | — | — | — | 0 |" in lines


def test_the_package_of_a_commit_is_what_runs(tmp_path: Path) -> None:
    """And not this tree's, which is installed nowhere and stands beside."""
    folder = pairs.package("HEAD", tmp_path)

    command = (sys.executable, "-c", "import bench, gpu_scheduler; print(gpu_scheduler.__file__)")
    ran = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(folder)}, capture_output=True, check=True)

    assert ran.stdout.decode().strip() == str(folder / "gpu_scheduler/__init__.py")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "cannot measure pairs of '': name a commit"),
        (["HEAD", "W9"], "cannot measure pairs of 'W9': it must be one of W1, W3, claims"),
        (["nowhere"], "cannot measure 'nowhere': it must be a commit of this repository"),
        (["--help"], "cannot measure '--help': it must be a commit of this repository"),
    ],
)
def test_other_arguments_are_refused(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is measured."""
    monkeypatch.setattr(sys, "argv", ["pairs", *words])

    assert pairs.main() == 2
    assert capsys.readouterr().out.startswith(said)
