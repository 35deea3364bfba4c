"""What the tests say and ask: nodes, pods, conditions and events of one namespace, in a test's own words."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.error import HTTPError

from tests.integration.plant import Object, Process, free_port
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.plant import ControlPlane, Kube

SYSTEM_NAMESPACE: Final = "gpu-scheduler-system"
SCHEDULER: Final = Path(__file__).resolve().parents[2] / "scheduler"
# Shipped values are 15, 10 and 2 s; tests can't wait for those to run out.
QUICK_LEASE: Final = {"LEASE_DURATION": "3s", "RENEW_DEADLINE": "2s", "RETRY_PERIOD": "400ms"}

MAP: Final = "gpu-scheduling-map"


class Bench:
    """One namespace of a running control plane."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        """Make the namespace."""
        self.kube = kube
        self.namespace = namespace
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        kube.create("/api/v1/namespaces", {"metadata": {"name": namespace}})

    def node(self, name: str, *, ready: bool = True, unschedulable: bool = False, alias: str | None = None) -> None:
        """Make a node."""
        self.kube.create(
            "/api/v1/nodes",
            {
                "metadata": {"name": name, "labels": {"gpu-node-name": alias} if alias else {}},
                "spec": {"unschedulable": unschedulable},
                "status": {"conditions": [_ready(ready)]},
            },
        )

    def set_ready(self, name: str, *, ready: bool) -> None:
        """Let a node's kubelet speak."""
        self.kube.patch(f"/api/v1/nodes/{name}/status", {"status": {"conditions": [_ready(ready)]}})

    def cordon(self, name: str, *, cordoned: bool) -> None:
        """`kubectl cordon` or `uncordon`."""
        self.kube.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": cordoned}})

    def pod(  # noqa: PLR0913 - each has its test
        self,
        name: str,
        text: str | None,
        devices: str | None,
        *,
        scheduler: str = "gpu-scheduler",
        gated: bool = False,
        annotations: dict[str, str] | None = None,
    ) -> str:
        """Make a pod as the webhook would have left it (`devices` None: as if it had not been there). Gives its uid."""
        container: Object = {"name": "main", "image": "registry.invalid/none"}
        if devices is not None:
            container["env"] = [
                {"name": "CUDA_VISIBLE_DEVICES", "value": devices},
                {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"},
            ]
        mapped = {} if text is None else {MAP: text}
        spec: Object = {"schedulerName": scheduler, "containers": [container]}
        if gated:
            spec["schedulingGates"] = [{"name": "example.com/wait"}]
        body = {"metadata": {"name": name, "annotations": {**mapped, **(annotations or {})}}, "spec": spec}
        return str(self.kube.create(self.pods, body)["metadata"]["uid"])

    def read(self, name: str) -> Object:
        """Give the pod as it is."""
        pod = self.kube.get(f"{self.pods}/{name}")
        assert pod is not None, f"no pod {name}"
        return pod

    def delete(self, name: str) -> None:
        """Delete a pod without grace."""
        self.kube.delete(f"{self.pods}/{name}")

    def node_of(self, name: str) -> str:
        """Tell where the pod is bound; empty when it is not."""
        return str(self.read(name)["spec"].get("nodeName", ""))

    def wait_bound(self, name: str, node: str, seconds: float = 10.0) -> Object:
        """Wait until the pod is bound, and check where."""
        eventually(f"pod {name} is bound", lambda: self.node_of(name), seconds)
        pod = self.read(name)
        assert pod["spec"]["nodeName"] == node
        return pod

    def condition(self, name: str) -> Object:
        """Give the pod's PodScheduled condition; empty when there is none."""
        conditions = self.read(name).get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == "PodScheduled"), {})

    def wait_message(self, name: str, start: str, seconds: float = 10.0) -> str:
        """Wait until the condition's message starts so; give the whole message."""

        def message() -> str | None:
            text = str(self.condition(name).get("message", ""))
            return text if text.startswith(start) else None

        return eventually(f"{name} waits with {start}", message, seconds)

    def events(self, name: str) -> list[Object]:
        """Give the pod's events, oldest first."""
        status, answer = self.kube.call("GET", f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        assert status == 200, answer
        mine = [event for event in answer["items"] if event["regarding"]["name"] == name]
        return sorted(mine, key=lambda event: str(event["eventTime"]))

    def wait_event(self, name: str, reason: str) -> Object:
        """Wait for the pod's first event of this reason."""

        def found() -> Object | None:
            return next((event for event in self.events(name) if event["reason"] == reason), None)

        return eventually(f"{name} has event {reason}", found)


class Command:
    """`gpu-scheduler COMMAND` as a process of its own, with its HTTP port."""

    def __init__(self, folder: Path, name: str, arguments: list[str], env: dict[str, str]) -> None:
        """Start it at once."""
        self.port = free_port()
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(SCHEDULER),
            "PYTHONUNBUFFERED": "1",
            "BIND_ADDRESS": "127.0.0.1",
            "HTTP_PORT": str(self.port),
            "POD_NAME": name,
            **env,
        }
        command = [sys.executable, "-m", "gpu_scheduler", *arguments]
        self.process = Process(name, command, folder / f"{name}.log", environment)

    def get(self, path: str) -> tuple[int, str]:
        """Ask its HTTP port; status 0 when nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as response:
                return response.status, response.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def wait_ready(self) -> None:
        """Wait until it says so itself."""

        def ready() -> bool:
            assert self.process.alive(), self.process.output()[-3000:]
            return self.get("/readyz")[0] == 200

        eventually(f"{self.process.name} is ready", ready, seconds=20)

    def metric(self, name: str) -> float:
        """Give one sample's value, by its full name with labels."""
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith(f"{name} "):
                return float(line.rpartition(" ")[2])
        raise AssertionError(f"no metric {name}")

    def leads(self) -> bool:
        """Tell whether this replica decides."""
        return self.metric("gpu_scheduler_leader") == 1

    def lines(self) -> list[Object]:
        """Give its log, line by line."""
        return [json.loads(line) for line in self.process.output().splitlines() if line.startswith("{")]

    def said(self, text: str) -> bool:
        """Tell whether a log line's event holds `text`."""
        return any(text in str(line.get("event")) for line in self.lines())

    def resident(self) -> float:
        """Give its resident memory in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.send(signal.SIGKILL)
        self.process.wait()


def start_scheduler(plane: ControlPlane, folder: Path, name: str, port: int | None = None, **env: str) -> Command:
    """Start a replica under the rights that the roles give it; `port` leads to the API server by a detour."""
    token = plane.service_account_token(SYSTEM_NAMESPACE, "gpu-scheduler")
    kubeconfig = plane.kubeconfig(folder / f"{name}.kubeconfig", token, port)
    settings = {"KUBERNETES_NAMESPACE": SYSTEM_NAMESPACE, **QUICK_LEASE, **env}
    return Command(folder, name, ["run", "--kubeconfig", str(kubeconfig)], settings)


def _ready(ready: bool) -> Object:  # noqa: FBT001 - the value is the condition
    return {"type": "Ready", "status": "True" if ready else "False"}
