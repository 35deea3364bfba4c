"""Types the commands of docs/tutorial.md on a real API server, and demands what the page shows.

No kubelet runs: a thread stands in for them. What needs containers or the play (`make`, `kubectl exec`, `kubectl logs`)
is left out.
"""

from __future__ import annotations

import subprocess
import threading
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from tests import objects
from tests.contracts.roles import read
from tests.integration.complete import APPS, CompleteInstallation, own_address
from tests.integration.control_plane import ADMIN_TOKEN
from tests.integration.controller_manager import start_controller_manager
from tests.integration.installed import Installed
from tests.integration.monitored_node import NAMESPACE as MONITORS
from tests.integration.monitored_node import MonitoredNode
from tests.integration.namespace import SYSTEM_NAMESPACE as SYSTEM
from tests.tutorial_page import agrees, script, steps
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.objects import Object

NODES: Final = ("node1", "node2", "node3", "node4")
CONFIG_MAP: Final = f"/api/v1/namespaces/{MONITORS}/configmaps/{MONITORS}"
PODS: Final = "/api/v1/namespaces/default/pods"


class Kubelets:
    """Starts pods that are bound, ends those that are deleted, and gives the monitors the text of their ConfigMap."""

    def __init__(self, complete: CompleteInstallation, monitored: list[MonitoredNode]) -> None:
        self._kube = complete.plane.client(ADMIN_TOKEN)
        self._monitored = monitored
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Return when the thread has ended."""
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(0.2):
            for pod in self._kube.call("GET", PODS)[1]["items"]:
                self._sync(pod)
            text = (self._kube.get(CONFIG_MAP) or {})["data"]["inventory.yaml"]
            for each in self._monitored:
                each.file.write_text(text, encoding="utf-8")

    def _sync(self, pod: Object) -> None:
        path = f"{PODS}/{pod['metadata']['name']}"
        if "deletionTimestamp" in pod["metadata"]:
            self._kube.delete(f"{path}?gracePeriodSeconds=0")
        elif pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
            conditions = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Ready")]
            self._kube.patch(f"{path}/status", {"status": {"phase": "Running", "conditions": conditions}})


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompleteInstallation]:
    """The installation of the page, and the StatefulSet that has the image."""
    made = CompleteInstallation(tmp_path_factory.mktemp("complete"))
    folder = tmp_path_factory.mktemp("manager")
    manager = start_controller_manager(made.plane, folder, "statefulset-controller", "garbage-collector-controller")
    template = {"metadata": {"labels": {"app": "check"}}, "spec": objects.pod_template()["spec"]}
    spec = {"replicas": 0, "serviceName": "check", "selector": {"matchLabels": {"app": "check"}}, "template": template}
    made.kube.create(f"{APPS}/default/statefulsets", {"metadata": {"name": "gpu-scheduler-check"}, "spec": spec})
    serve_metrics(made)
    try:
        yield made
    finally:
        manager.stop()
        made.stop()


@pytest.fixture(scope="module")
def kubelets(complete: CompleteInstallation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubelets]:
    """The nodes of the page with their monitors."""
    declared = read("inventory", "kind", "group_vars", "all", "facts.yml")["monitor_simulated_inventory"]
    body = {"metadata": {"name": MONITORS}, "data": {"inventory.yaml": yaml.safe_dump(declared)}}
    complete.kube.create(f"/api/v1/namespaces/{MONITORS}/configmaps", body)
    monitored = []
    for node in NODES[1:]:
        complete.kube.create("/api/v1/nodes", objects.node(node))
        monitored.append(MonitoredNode(complete.plane, tmp_path_factory.mktemp(node), node))
    made = Kubelets(complete, monitored)
    monitors = [each.start() for each in monitored]
    label_monitors(complete)
    try:
        for each in monitored:
            eventually(f"the GPUs of {each.node} are known", each.devices)
        yield made
    finally:
        made.stop()
        for monitor in monitors:
            monitor.process.stop()


def serve_metrics(complete: CompleteInstallation) -> None:
    """Let the scheduler's Service lead to the scheduler, which runs as a process here."""
    address, port = own_address(), complete.scheduler.port
    ports = [{"name": "metrics", "port": 9090, "targetPort": port}]
    name = "gpu-scheduler"
    complete.kube.create(
        f"/api/v1/namespaces/{SYSTEM}/services", {"metadata": {"name": name}, "spec": {"ports": ports}}
    )
    pod = {"kind": "Pod", "namespace": SYSTEM, "name": complete.scheduler.process.name}
    addresses = [{"ip": address, "targetRef": pod}]
    subsets = [{"addresses": addresses, "ports": [{"name": "metrics", "port": port}]}]
    complete.kube.create(f"/api/v1/namespaces/{SYSTEM}/endpoints", {"metadata": {"name": name}, "subsets": subsets})


def label_monitors(complete: CompleteInstallation) -> None:
    """Give the monitors' pods the label by which the page finds them."""
    path = f"/api/v1/namespaces/{MONITORS}/pods"
    for pod in complete.kube.call("GET", path)[1]["items"]:
        labels = {"app.kubernetes.io/component": "monitor"}
        complete.kube.patch(f"{path}/{pod['metadata']['name']}", {"metadata": {"labels": labels}})


# Suite redeploy types the page on real kubelets.
@pytest.mark.plays
@pytest.mark.usefixtures("kubelets")
def test_the_commands_print_what_the_page_shows(complete: CompleteInstallation, tmp_path: Path) -> None:
    """In one shell, in their order."""
    cli = Installed(tmp_path, complete.plane, ADMIN_TOKEN, "default")
    for commands, shown in steps("make", "eval", "kubectl exec", "kubectl logs"):
        done = subprocess.run(
            ("bash", "-c", script(commands, str(tmp_path))),
            env=cli.env,
            capture_output=True,
            text=True,
            timeout=limit(120),
            check=False,
        )
        assert shown is None or agrees(shown, done.stdout + done.stderr), (commands, done.stdout + done.stderr)
