"""The stub of NVIDIA's library, compiled for a test, and a process that reads GPUs through it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parents[1]
COMPILER = shutil.which("cc") or shutil.which("gcc")

Gpu = dict[str, Any]


def build(folder: Path, *flags: str) -> Path:
    """Compile the stub into `folder` and return that."""
    assert COMPILER is not None
    library = folder / "libnvidia-ml.so.1"
    warnings = ("-Wall", "-Wextra", "-Werror")
    subprocess.run((COMPILER, *warnings, *flags, "-shared", "-fPIC", "-o", library, HERE / "stub.c"), check=True)
    return folder


def environment(library: Path, lines: Path) -> dict[str, str]:
    """Return the environment by which a process finds the stub, and the stub finds its lines."""
    measured = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(PACKAGE),
        "LD_LIBRARY_PATH": str(library),
        "NVML_STUB": str(lines),
        **measured,
    }


def write(lines: Path, text: str) -> None:
    """Change the stub's answers. The file is replaced in one step."""
    fresh = lines.with_suffix(".new")
    fresh.write_text(text)
    fresh.rename(lines)


class Machine:
    """Four GPUs and a process that reads them. `read` blocks, so `async with` is not needed."""

    def __init__(
        self, library: Path, folder: Path, *, deadline: float = 10, remembered: tuple[object, ...] = ((),)
    ) -> None:
        """`remembered` has the reports of an earlier monitor, one for each query; None: no answer."""
        self._lines = folder / "lines"
        self.set()
        self._process = subprocess.Popen(
            (sys.executable, HERE / "read_gpus.py", str(deadline), json.dumps(remembered)),
            env=environment(library, self._lines),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the process, whatever its driver does."""
        self.set()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        assert self._process.wait(limit(10)) == 0
        self._process.stdout.close()

    def set(self, lines: Mapping[tuple[str, int], int] | None = None) -> None:
        """Change the stub's answers: (what, GPU) → value."""
        write(self._lines, "".join(f"{what} {gpu} {value}\n" for (what, gpu), value in (lines or {}).items()))

    @property
    def threads(self) -> int:
        return len(list(Path(f"/proc/{self._process.pid}/task").iterdir()))

    def read(self, *cordoned: str) -> Any:
        """Return the GPUs of one read while these devices are cordoned, or the sentence of the error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(cordoned) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())
