"""The programs under test as processes: `gpu-scheduler run` and its siblings, with what their HTTP ports say."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.error import HTTPError

from tests.integration.bench import SYSTEM_NAMESPACE
from tests.integration.programs import Process, free_port
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from tests.integration.control_plane import ControlPlane
    from tests.objects import Object

SCHEDULER: Final = Path(__file__).resolve().parents[2] / "scheduler"
MALLOC: Final = dict(re.findall(r"\b(MALLOC_\w+)=(\w+)", (SCHEDULER.parent / "Dockerfile").read_text(encoding="utf-8")))
"""How the image sets up memory."""
# Where a test waits for a lease to run out; it costs the lead on a machine that stands still for two seconds.
QUICK_LEASE: Final = {"LEASE_DURATION": "3s", "RENEW_DEADLINE": "2s", "RETRY_PERIOD": "400ms"}
SHIPPED_LEASE: Final = {"LEASE_DURATION": "15s", "RENEW_DEADLINE": "10s", "RETRY_PERIOD": "2s"}
LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases/gpu-scheduler"
# Seconds. How soon a replica is ready, others measure; here a machine may have five control planes beside it.
READY: Final = 40


class Command:
    """`gpu-scheduler COMMAND` as a process of its own, with its HTTP port."""

    def __init__(
        self, folder: Path, name: str, arguments: list[str], env: dict[str, str], module: str = "gpu_scheduler"
    ) -> None:
        """Start it at once; `module` may stand in for the program's own."""
        self.port = free_port()
        self._kept: http.client.HTTPConnection | None = None
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
        """Ask its HTTP port; status 0 when nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=limit(5)) as response:
                return response.status, response.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def ask(self, path: str) -> tuple[int, bytes]:
        """Ask its HTTP port over a connection that is kept: for who asks thousands of times."""
        if self._kept is None:
            self._kept = http.client.HTTPConnection("127.0.0.1", self.port, timeout=limit(5))
        self._kept.request("GET", path)
        response = self._kept.getresponse()
        return response.status, response.read()

    def wait_ready(self) -> None:
        """Wait until it says so itself; one that does not is quoted."""

        def ready() -> bool:
            assert self.process.alive(), self.process.output()[-3000:]
            return self.get("/readyz")[0] == 200

        try:
            eventually(f"{self.process.name} is ready", ready, seconds=READY)
        except AssertionError as error:
            error.add_note(f"{self.get('/readyz')}\n{self.process.output()[-3000:]}")
            raise

    def metric(self, name: str) -> float:
        """Give one sample's value, by its full name with labels."""
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith(f"{name} "):
                return float(line.rpartition(" ")[2])
        raise AssertionError(f"no metric {name}")

    def attempts(self, result: str = "") -> float:
        """Give how many attempts to place a pod ended so; without `result`, all."""
        start = f'scheduler_schedule_attempts_total{{profile="gpu-scheduler",result="{result}'
        lines = [line for line in self.get("/metrics")[1].splitlines() if line.startswith(start)]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def leads(self) -> bool:
        """Tell whether this replica decides."""
        return self.metric("gpu_scheduler_leader") == 1

    def lines(self) -> list[Object]:
        """Give its log, line by line."""
        return [json.loads(line) for line in self.process.output().splitlines() if line.startswith("{")]

    def said(self, text: str) -> bool:
        """Tell whether a log line's event holds `text`."""
        return self.count(text) > 0

    def count(self, text: str) -> int:
        """Count the log lines whose event holds `text`."""
        return sum(text in str(line.get("event")) for line in self.lines())

    def hang_up(self) -> None:
        """Close the connection that `ask` keeps."""
        if self._kept is not None:
            self._kept.close()

    def resident(self) -> float:
        """Give its resident memory in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def kill(self) -> None:
        """End it as a crash would."""
        self.hang_up()
        self.process.send(signal.SIGKILL)
        self.process.wait()


def start_scheduler(
    plane: ControlPlane, folder: Path, name: str, port: int | None = None, module: str = "gpu_scheduler", **env: str
) -> Command:
    """Start a replica under the rights that the roles give it; `port` leads to the API server by a detour."""
    token = plane.service_account_token(SYSTEM_NAMESPACE, "gpu-scheduler")
    kubeconfig = plane.kubeconfig(folder / f"{name}.kubeconfig", token, port)
    settings = {"KUBERNETES_NAMESPACE": SYSTEM_NAMESPACE, **QUICK_LEASE, **env}
    return Command(folder, name, ["run", "--kubeconfig", str(kubeconfig)], settings, module)


def start_alone(
    plane: ControlPlane, folder: Path, name: str, port: int | None = None, module: str = "gpu_scheduler", **env: str
) -> Command:
    """Start the only replica, with the lease as shipped: it need not wait for one that was killed before."""
    plane.kube.delete(LEASE)
    return start_scheduler(plane, folder, name, port, module, **{**SHIPPED_LEASE, **env})
