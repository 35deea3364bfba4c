"""A process that prints `ready`, waits for the line `go`, and ends with its result as one line of JSON."""

from __future__ import annotations

import select
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from bench.contenders import prepared_requests

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")
ROOT: Final = Path(__file__).resolve().parents[1]


class GatedProcess(Generic[T]):
    """One run of such a process."""

    def __init__(self, what: type[T], command: Sequence[str], log_path: Path) -> None:
        """Start it. Its result has the type `what`; standard error goes to `log_path`."""
        self._what = what
        self._log = log_path
        with log_path.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        self.pid = self._process.pid

    def wait_ready(self, seconds: float = 60.0) -> None:
        """Wait for `ready`; RuntimeError when the process ends instead, TimeoutError after `seconds`.

        kube-apiserver closes idle connections after 90 s: with a later `go`, opening them again is measured too.
        """
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], seconds)
        if not readable:
            raise TimeoutError(f"cannot wait longer: after {seconds:g} s it is not ready")
        if self._process.stdout.readline().decode().strip() != prepared_requests.READY:
            raise self._ended()

    def go(self) -> None:
        """Let it begin: send the line `go`."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{prepared_requests.GO}\n".encode())
        self._process.stdin.flush()

    def wait(self, seconds: float) -> T:
        """Return its result; RuntimeError when it failed, TimeoutError after `seconds`."""
        try:
            output, _ = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"cannot wait longer: after {seconds:g} s it is not done") from error
        if self._process.returncode != 0:
            raise self._ended()
        return msgspec.json.decode(output, type=self._what)

    def stop(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.communicate()

    def _ended(self) -> RuntimeError:
        code = self._process.wait()
        reported = self._log.read_text(encoding="utf-8", errors="replace").strip()
        return RuntimeError(f"it ended with {code}: {reported}")
