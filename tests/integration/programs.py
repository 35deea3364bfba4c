"""Finds the programs under test, and runs processes that end with their parent."""

from __future__ import annotations

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.waiting import limit

if TYPE_CHECKING:
    import signal
    from collections.abc import Generator

CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpu-scheduler"
NODE_IMAGE: Final = Path(__file__).resolve().parents[2] / "roles" / "node_image"
KUBERNETES: Final = ("kubernetes", "k8s.io/kubernetes")
PINS: Final = {
    "etcd": ("etcd", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": KUBERNETES,
    "kube-controller-manager": KUBERNETES,
    "kube-scheduler": KUBERNETES,
    "kubectl": KUBERNETES,
    "helm": ("helm", "helm.sh/helm/v4"),
    "alertmanager": ("prometheus-operator", "github.com/prometheus/alertmanager"),
    "prometheus-operator": ("prometheus-operator", "github.com/prometheus-operator/prometheus-operator"),
    "kinds-argo-cd": ("argo-cd", "github.com/argoproj/argo-cd/v3"),
    "kinds-prometheus-operator": ("prometheus-operator", "github.com/prometheus-operator/prometheus-operator"),
}
"""A folder of the cache → the folder in the role's files/go whose go.mod pins its version, and the module there."""
DEBIAN: Final = ("prometheus", "promtool", "amtool")
_OF_DEBIAN: Final = "debian"


def program(name: str) -> Path:
    """Return the path of the pinned `name` that `make programs` makes or fetches; FileNotFoundError without it."""
    return pinned(_OF_DEBIAN if name in DEBIAN else name) / name


def pinned(name: str) -> Path:
    """Return the folder in the cache with the version of `name` that this checkout pins; FileNotFoundError without it.

    Checkouts share the cache: it has the versions of others, too, and perhaps newer ones.
    """
    folder = CACHE / "bin" / f"{name}-{_version(name)}"
    if not folder.exists():
        raise FileNotFoundError(
            f"cannot find {folder}: build or fetch what this checkout pins (example: make programs)"
        )
    return folder


@cache
def _version(name: str) -> str:
    """Return the version of a folder of the cache, from where role node_image has it."""
    if name == _OF_DEBIAN:
        file, pattern = NODE_IMAGE / "vars" / "main" / "images.yml", r"^_node_image_release: (\S+)$"
    else:
        folder, module = PINS[name]
        file, pattern = NODE_IMAGE / "files" / "go" / folder / "go.mod", rf"^(?:require)?\s+{re.escape(module)} (\S+)"
    found = re.search(pattern, file.read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        raise LookupError(f"cannot find the version of {name} in {file}: no line matches {pattern}")
    return found[1]


_started: list[Process] = []
"""What runs, or has ended and was never stopped."""
LAST_LINES: Final = 15
"""Lines of a program's output that the report of a failed test shows."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failed test which programs run, which have ended, and their last lines."""
    report = yield
    if report.failed:
        # A test that has killed a program itself may have removed its folder.
        report.sections += [
            (f"program {each}", "\n".join(each.output().splitlines()[-LAST_LINES:]))
            for each in _started
            if each.log.exists()
        ]
        report.user_properties += [("ended", str(each)) for each in _started if not each.alive()]
    return report


# Linux ends a child with the *thread* that started it. Some tests start replicas in threads of their own, and end those
# first, so all children are started in this one, which ends with this process.
_starter: Final = ThreadPoolExecutor(1, "starter of processes")


class Process:
    """A program under test, with its output in a file. It is killed when this process ends, however that ends."""

    def __init__(self, name: str, command: list[str], log: Path, env: dict[str, str] | None = None) -> None:
        """Start the process."""
        self.name = name
        self.log = log
        tied = ["/usr/bin/setpriv", "--pdeathsig", "KILL", "--", *command]
        with log.open("ab") as output:
            self._process = _starter.submit(
                subprocess.Popen, tied, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=env
            ).result()
        self.pid = self._process.pid
        _started.append(self)

    def __str__(self) -> str:
        """Return its name, and whether it runs."""
        code = self._process.poll()
        return f"{self.name}, which runs" if code is None else f"{self.name}, which has ended with {code}"

    def output(self) -> str:
        """Return its standard output and standard error so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def alive(self) -> bool:
        """Return whether it is running."""
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def wait(self, seconds: float = 60.0) -> int:
        """Wait for its end, at most `limit(seconds)`. Return its exit code."""
        return self._process.wait(limit(seconds))

    def stop(self, seconds: float = 10.0) -> int:
        """End it with SIGTERM, and after `limit(seconds)` with SIGKILL. Return its exit code."""
        if self in _started:
            _started.remove(self)
        if self.alive():
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(limit(seconds))
            self._process.kill()
        return self._process.wait()
