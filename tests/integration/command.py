"""Runs the programs under test as processes, and reads their logs, metrics and debug endpoints."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.error import HTTPError

from gpu_scheduler.process.http_server import PAUSE
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.integration.programs import Process, free_port
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from tests.integration.control_plane import ControlPlane
    from tests.objects import Object

SCHEDULER: Final = Path(__file__).resolve().parents[2] / "scheduler"
MALLOC: Final = dict(re.findall(r"\b(MALLOC_\w+)=(\w+)", (SCHEDULER.parent / "Dockerfile").read_text(encoding="utf-8")))
"""The environment variables with which the image configures malloc."""
# For tests that wait until the Lease expires. On a machine that pauses for two seconds the leader loses its Lease.
QUICK_LEASE: Final = {"LEASE_DURATION": "3s", "RENEW_DEADLINE": "2s", "RETRY_PERIOD": "400ms"}
SHIPPED_LEASE: Final = {"LEASE_DURATION": "15s", "RENEW_DEADLINE": "10s", "RETRY_PERIOD": "2s"}
LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases/gpu-scheduler"
# Seconds. Long, because five control planes may run on the machine. Other tests measure how soon a replica is ready.
READY: Final = 40


class Command:
    """`gpu-scheduler COMMAND` as a separate process, with its HTTP port."""

    def __init__(
        self, folder: Path, name: str, arguments: list[str], env: dict[str, str], module: str = "gpu_scheduler"
    ) -> None:
        """Start the process. `module` replaces the program's own module, for a program with an injected fault."""
        self.port = free_port()
        self.module = module
        self._kept: http.client.HTTPConnection | None = None
        self._metrics_fresh_at = 0.0
        self.journal = Path(env["DECISION_JOURNAL"]) if "DECISION_JOURNAL" in env else None
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{SCHEDULER}{os.pathsep}{SCHEDULER.parent}",
            "PYTHONUNBUFFERED": "1",
            **MALLOC,
            "BIND_ADDRESS": "127.0.0.1",
            "HTTP_PORT": str(self.port),
            "POD_NAME": name,
            **env,
        }
        command = [sys.executable, "-m", module, *arguments]
        self.process = Process(name, command, folder / f"{name}.log", environment)

    def get(self, path: str) -> tuple[int, str]:
        """Send a GET to its HTTP port. Return status and body; status 0 if no connection was possible."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=limit(5)) as response:
                return response.status, response.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def ask(self, path: str) -> tuple[int, bytes]:
        """Send a GET over a connection that is kept open, for tests that send thousands."""
        if self._kept is None:
            self._kept = http.client.HTTPConnection("127.0.0.1", self.port, timeout=limit(5))
        self._kept.request("GET", path)
        response = self._kept.getresponse()
        return response.status, response.read()

    def wait_ready(self) -> None:
        """Wait until /readyz answers 200. If it never does, the error quotes /readyz and the end of the log."""

        def ready() -> bool:
            assert self.process.alive(), self.process.output()[-3000:]
            return self.get("/readyz")[0] == 200

        try:
            eventually(f"{self.process.name} is ready", ready, seconds=READY)
        except AssertionError as error:
            error.add_note(f"{self.get('/readyz')}\n{self.process.output()[-3000:]}")
            raise

    def metrics(self) -> str:
        """Return the metrics as they are now.

        The process answers with its last text until PAUSE times the time that it took have passed. So wait for that,
        counted from the last call here: nobody else may read them meanwhile.
        """
        time.sleep(max(0.0, self._metrics_fresh_at - time.monotonic()))
        began = time.monotonic()
        text = self.get("/metrics")[1]
        ended = time.monotonic()
        self._metrics_fresh_at = ended + PAUSE * (ended - began)
        return text

    def metric(self, name: str) -> float:
        """Return the value of one sample. `name` is its full name with labels."""
        for line in self.metrics().splitlines():
            if line.startswith(f"{name} "):
                return float(line.rpartition(" ")[2])
        raise AssertionError(f"no metric {name}")

    def attempts(self, result: str = "") -> float:
        """Count the scheduling attempts with this result; without `result`, all attempts."""
        start = f'scheduler_schedule_attempts_total{{profile="gpu-scheduler",result="{result}'
        lines = [line for line in self.metrics().splitlines() if line.startswith(start)]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def leads(self) -> bool:
        """Return whether this replica is the leader."""
        return self.metric("gpu_scheduler_leader") == 1

    def lines(self) -> list[Object]:
        """Return the JSON lines of its log."""
        # The process may be writing the last line at this moment: what stands after the last newline is not read.
        whole = self.process.output().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]

    def logged(self, text: str) -> bool:
        """Return whether the event of a log line contains `text`."""
        return self.count(text) > 0

    def count(self, text: str) -> int:
        """Count the log lines whose event contains `text`."""
        return sum(text in str(line.get("event")) for line in self.lines())

    def hang_up(self) -> None:
        """Close the connection that `ask` keeps open."""
        if self._kept is not None:
            self._kept.close()

    def resident(self) -> float:
        """Return its resident memory in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def kill(self) -> None:
        """End the process with SIGKILL, like a crash."""
        self.hang_up()
        self.process.send(signal.SIGKILL)
        self.process.wait()


_replicas: list[tuple[ControlPlane, Command]] = []
"""The replicas that `start_scheduler` started."""


def start_scheduler(
    plane: ControlPlane, folder: Path, name: str, port: int | None = None, module: str = "gpu_scheduler", **env: str
) -> Command:
    """Start a replica with the RBAC of its role. With `port` it connects to the proxy on that port."""
    token = plane.service_account_token(SYSTEM_NAMESPACE, "gpu-scheduler")
    kubeconfig = plane.kubeconfig(folder / f"{name}.kubeconfig", token, port)
    settings = {"KUBERNETES_NAMESPACE": SYSTEM_NAMESPACE, **QUICK_LEASE, **env}
    replica = Command(folder, name, ["run", "--kubeconfig", str(kubeconfig)], settings, module)
    _replicas.append((plane, replica))
    return replica


def start_alone(
    plane: ControlPlane, folder: Path, name: str, port: int | None = None, module: str = "gpu_scheduler", **env: str
) -> Command:
    """Start the only replica, with the shipped times of the Lease.

    The Lease is deleted first: the replica does not wait until the Lease of a killed replica expires. Where a module
    shares a replica, none of its tests starts another one: the shared one would lose its Lease and end.
    """
    running = [each.process.name for at, each in _replicas if at is plane and each.process.alive()]
    assert not running, f"cannot start {name} alone: {running} run on its control plane; stop them first"
    plane.kube.delete(LEASE)
    return start_scheduler(plane, folder, name, port, module, **{**SHIPPED_LEASE, **env})
