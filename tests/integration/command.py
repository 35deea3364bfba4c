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
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self
from urllib.error import HTTPError

from gpu_scheduler.process.http_server import PAUSE, PROGRESS
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.integration.programs import Process
from tests.ports import free_port
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.integration.control_plane import ControlPlane
    from tests.kube_client import KubeClient
    from tests.objects import Object

SCHEDULER: Final = Path(__file__).resolve().parents[2] / "scheduler"
MALLOC: Final = dict(re.findall(r"\b(MALLOC_\w+)=(\w+)", (SCHEDULER.parent / "Dockerfile").read_text(encoding="utf-8")))
"""The environment variables with which the image configures malloc."""
LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases/gpu-scheduler"
# Seconds. Long, because five control planes may run on the machine. Other tests measure how soon a replica is ready.
READY: Final = 40
# Seconds. It ends a test that hangs: nothing is promised of this time.
SEEN: Final = 60


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

    @contextmanager
    def serving(self, *, leads: bool = False) -> Iterator[Self]:
        """Yield it when it is ready, with `leads` when it leads too. It is ended afterwards."""
        try:
            self.wait_ready()
            if leads:
                eventually(f"{self.process.name} leads", self.leads, seconds=30)
            yield self
        finally:
            self.process.stop()

    def progress(self) -> Object:
        """Return the versions that it has applied, and how much is due."""
        status, text = self.get(PROGRESS)
        assert status == 200, (self.process.name, status, self.process.output()[-3000:])
        found: Object = json.loads(text)
        return found

    def wait_seen(self, versions: Mapping[str, str], *, idle: bool = True) -> None:
        """Wait until it has applied these versions of resources or later ones. With `idle`, until nothing is due.

        Versions are numbers that one etcd counts, so a version of another resource can be compared too.
        """

        def seen() -> bool:
            found = self.progress()
            applied = found["versions"]
            return all(int(applied[name] or 0) >= int(version) for name, version in versions.items()) and not (
                idle and any(found["due"].values())
            )

        try:
            eventually(f"{self.process.name} has seen {versions}", seen, seconds=SEEN)
        except AssertionError as error:
            error.add_note(str(self.progress()))
            raise

    def wait_read(self, more: int = 2) -> None:
        """Wait until a monitor has ended so many more readings. The first of two may have begun before this call."""
        enough = self.progress()["readings"] + more
        eventually(f"{more} more readings", lambda: self.progress()["readings"] >= enough, seconds=SEEN)

    def metrics(self) -> str:
        """Return the metrics as they are now.

        The process answers with its last text until PAUSE times the time that it took have passed. So sleep for that
        time, counted from the last call here, which took longer: nobody else may read them meanwhile.
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
    settings = {"KUBERNETES_NAMESPACE": SYSTEM_NAMESPACE, **env}
    replica = Command(folder, name, ["run", "--kubeconfig", str(kubeconfig)], settings, module)
    _replicas.append((plane, replica))
    return replica


def start_alone(
    plane: ControlPlane, folder: Path, name: str, port: int | None = None, module: str = "gpu_scheduler", **env: str
) -> Command:
    """Start the only replica.

    The Lease is deleted first: the replica does not wait until the Lease of a killed replica expires. Where a module
    shares a replica, none of its tests starts another one: the shared one would lose its Lease and end.
    """
    running = [each.process.name for at, each in _replicas if at is plane and each.process.alive()]
    assert not running, f"cannot start {name} alone: {running} run on its control plane; stop them first"
    plane.kube.delete(LEASE)
    return start_scheduler(plane, folder, name, port, module, **env)


def give_up_lease(kube: KubeClient, path: str = LEASE) -> None:
    """Release the Lease of a replica that was killed, so that a test need not wait until it expires.

    That another replica takes a Lease when it expires, and not before, is tested in virtual time, and with the shipped
    times in faults/test_leaders.py.
    """
    kube.patch(path, {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})
