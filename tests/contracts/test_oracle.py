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
def test_oracle_and_auditor_import_nothing_of_the_scheduler(folder: str) -> None:
    """Shared code would hide its bugs: no module of the package is imported, directly or indirectly."""
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
def test_oracle_and_auditor_do_not_mention_the_package(folder: str) -> None:
    """So they do not import it inside a function either."""
    assert [path.name for path in sources(folder) if "gpu_scheduler" in path.read_text(encoding="utf-8")] == []
