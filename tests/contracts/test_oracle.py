from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROBE = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(*sorted(name for name in sys.modules if name.partition(".")[0] == "gpu_scheduler"))
"""
INDEPENDENT = ("oracle", "auditor")


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / "tests" / folder).glob("*.py"))


@pytest.mark.parametrize("folder", INDEPENDENT)
def test_who_judges_the_scheduler_reads_without_it(folder: str) -> None:
    """What both read from one text would be wrong in both: nothing of the package is imported, however far away."""
    path = f"{ROOT}:{ROOT / 'scheduler'}"
    modules = [f"tests.{folder}.{source.stem}" for source in sources(folder)]

    ran = subprocess.run(
        [sys.executable, "-c", PROBE, *modules],
        cwd=ROOT,
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )

    assert modules
    assert (ran.returncode, ran.stdout.strip()) == (0, ""), ran.stderr


@pytest.mark.parametrize("folder", INDEPENDENT)
def test_who_judges_the_scheduler_names_nothing_of_it(folder: str) -> None:
    """Nor is it imported later, inside a function."""
    assert [path.name for path in sources(folder) if "gpu_scheduler" in path.read_text(encoding="utf-8")] == []
