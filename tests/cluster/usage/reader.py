"""A reader of docs/sources.md: a shell in a checkout, with the kubeconfig and the programs that `make env` names."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tests.cluster.clusters import NAME, ROOT, Cluster
from tests.waiting import limit

if TYPE_CHECKING:
    from pathlib import Path

    from tests.source_page import Row

# From → to: the tests' cluster has another name than a reader's.
SUBSTITUTIONS: Final = (
    ("kind-gpu-scheduler", f"kind-{NAME}"),
    ("gpu-scheduler-worker", f"{NAME}-worker"),
    ("CHECKOUT", "."),
)
# Links of the reader's folder, without what a run writes.
LEFT_OUT: Final = {".git", ".kube", ".venv", "certs"}
WITHIN: Final = 60
"""Seconds within which a row must print what it says: pods start meanwhile."""
_FOLLOWS: Final = re.compile(r"\bkubectl logs\b.*\s-f\b")


class Reader:
    """Types the rows of a source, one after the other, in a folder of its own that has everything of the checkout."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        """Prepare the folder, and install the command line beside it."""
        self.folder, self._logs = folder / "checkout", folder
        self._groups: list[int] = []
        self.folder.mkdir()
        for entry in ROOT.iterdir():
            if entry.name not in LEFT_OUT:
                (self.folder / entry.name).symlink_to(entry)
        self._kubeconfig = folder / "kubeconfig"
        self._kubeconfig.write_text(cluster.kubectl("config", "view", "--minify", "--raw").stdout)
        # The console script of `pip install ./scheduler`, with the packages of the tests' own environment.
        programs = folder / "programs"
        programs.mkdir()
        script = programs / "gpu-scheduler"
        script.write_text(
            f'#!/bin/sh\nPYTHONPATH={ROOT}/scheduler exec {ROOT}/.venv/bin/python -m gpu_scheduler "$@"\n'
        )
        script.chmod(0o755)
        self._path = os.pathsep.join((str(programs), str(ROOT / ".venv" / "bin"), os.environ["PATH"]))

    def type(self, row: Row) -> None:
        """Run the row's commands. They must end with exit code 0, and print what the row says."""
        deadline = time.monotonic() + limit(WITHIN)
        while True:
            code, output = self._run(row)
            if not code and not row.missing(output):
                return
            # Only what prints something may be asked again: the others would change the cluster twice.
            asked_again = row.prints and time.monotonic() < deadline
            assert asked_again, f"{row.script}exit code {code}, without {row.missing(output)}:\n{output}"
            time.sleep(1)

    def start(self, script: str, log: Path, **environment: str) -> subprocess.Popen[bytes]:
        """Start a script of bash, which ends at the first command that fails."""
        for old, new in SUBSTITUTIONS:
            script = script.replace(old, new)
        values = {"KUBECONFIG": str(self._kubeconfig), "PATH": self._path, "NO_COLOR": "1", **environment}
        with log.open("w") as output:
            process = subprocess.Popen(
                ("bash", "-e", "-c", script),
                cwd=self.folder,
                env={**os.environ, **values},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._groups.append(process.pid)
        return process

    def leave(self) -> None:
        """End what still runs in the background."""
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def _run(self, row: Row) -> tuple[int, str]:
        """Return exit code and output. Press Ctrl-C when a log that is followed has shown what the row says."""
        # What runs in the background goes on writing into the file of its row.
        log = self._logs / f"{len(self._groups)}.log"
        process = self.start(row.script, log)
        follows = bool(_FOLLOWS.search(row.script))
        deadline = time.monotonic() + limit(WITHIN)
        while process.poll() is None and time.monotonic() < deadline:
            if follows and not row.missing(log.read_text()):
                end(process)
                return 0, log.read_text()
            time.sleep(0.1)
        return end(process), log.read_text()


def end(process: subprocess.Popen[bytes]) -> int:
    """Press Ctrl-C if the process still runs. Return its exit code."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    try:
        return process.wait(limit(15))
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
