from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROBE = """
import sys
from tests.oracle import player, reader
print(*sorted(name for name in sys.modules if name.partition(".")[0] == "gpu_scheduler"))
"""


def test_the_oracle_reads_without_the_scheduler() -> None:
    """What both read from one text would be wrong in both: nothing of the package is imported, however far away."""
    path = f"{ROOT}:{ROOT / 'scheduler'}"

    ran = subprocess.run(
        [sys.executable, "-c", PROBE], cwd=ROOT, env={"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )

    assert (ran.returncode, ran.stdout.strip()) == (0, ""), ran.stderr


def test_the_oracle_names_nothing_of_the_scheduler() -> None:
    """Nor is it imported later, inside a function."""
    sources = sorted((ROOT / "tests" / "oracle").glob("*.py"))

    assert sources
    assert [path.name for path in sources if "gpu_scheduler" in path.read_text(encoding="utf-8")] == []
