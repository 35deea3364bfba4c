"""A control plane with everything that the roles install, whose programs run as processes behind objects of pods.

No kubelet runs: the tests write the status of pods, Deployments and the DaemonSet.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from gpu_scheduler.names import MONITOR
from tests import objects
from tests.integration import monitored_node
from tests.integration.certified import Certified
from tests.integration.command import Command, start_alone
from tests.integration.namespace import SYSTEM_NAMESPACE as SYSTEM
from tests.integration.role_manifests import rendered, rights_of, values_of
from tests.integration.workloads import prepare_controller, start_controller
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.objects import Object

PODS: Final = f"/api/v1/namespaces/{SYSTEM}/pods"
APPS: Final = "/apis/apps/v1/namespaces"
NODE: Final = "node1"
EVERY_ADDRESS: Final = ""
"""The address that a program listens on: the API server reaches it by one that is no loopback address."""
_SIOCGIFADDR: Final = 0x8915


class CompleteInstallation:
    """Everything that the roles install, with one replica of each program."""

    def __init__(self, folder: Path) -> None:
        """Return when scheduler and controller lead and the monitor has written its Lease."""
        self.folder = folder
        self._programs: list[Command] = []
        self.certified = Certified(folder, BIND_ADDRESS=EVERY_ADDRESS)
        self.plane, self.kube = self.certified.plane, self.certified.kube
        try:
            for collection, body in rights_of("scheduler"):
                self.kube.create(collection, body)
            prepare_controller(self.plane)
            monitored_node.allow(self.plane)
            self.certified.install()
            self._install_workloads()
            self._start()
        except BaseException:
            self.stop()
            raise

    def _install_workloads(self) -> None:
        for role in ("scheduler", "controller", "webhook"):
            for body in rendered(role, "deployment", {**values_of(role), f"{role}_replicas": 1}):
                if body["kind"] == "Deployment":
                    name = body["metadata"]["name"]
                    body["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "ansible"}
                    _label(body, role)
                    self.kube.create(f"{APPS}/{SYSTEM}/deployments", body)
                    self.set_available(name, 1)
        self.add_daemon_set("monitor", 1, _monitor_simulated=True)
        for body in rendered("certificates", "renewer", {**values_of("certificates"), "_certificates_pod_labels": {}}):
            self.kube.create(f"/apis/batch/v1/namespaces/{SYSTEM}/cronjobs", body)

    def add_daemon_set(self, role: str, available: int, **values: object) -> str:
        """Create the DaemonSet of a role for one node, in its namespace of the same name. Return its path."""
        (body,) = rendered(role, "daemonset", {**values_of(role), **values})
        _label(body, role)
        name = body["metadata"]["name"]
        path = f"{APPS}/{name}/daemonsets"
        self.kube.create(path, body)
        status = {
            "desiredNumberScheduled": 1,
            "currentNumberScheduled": 1,
            "numberMisscheduled": 0,
            "numberReady": available,
            "numberAvailable": available,
        }
        self.kube.patch(f"{path}/{name}/status", {"status": status})
        return f"{path}/{name}"

    def _start(self) -> None:
        self.kube.create("/api/v1/nodes", objects.node(NODE))
        self.monitor = self.start_monitor()
        self.scheduler = self.start_scheduler()
        self.controller = start_controller(
            self.plane, self.folder, "gpu-scheduler-controller-0", BIND_ADDRESS=EVERY_ADDRESS
        )
        self._programs.append(self.controller)
        self.add_pod("controller", self.controller)
        assert self.certified.webhook is not None
        self.add_pod("webhook", self.certified.webhook)
        for program in (self.scheduler, self.controller):
            program.wait_ready()
            eventually(f"{program.process.name} leads", program.leads, seconds=20)
        eventually("the monitor renews its Lease", lambda: self.kube.get(f"{monitored_node.LEASES}/{NODE}"), seconds=20)

    def start_scheduler(self) -> Command:
        """Start the scheduler, and create its pod. The Lease of the one before is deleted."""
        command = start_alone(self.plane, self.folder, "gpu-scheduler-0", BIND_ADDRESS=EVERY_ADDRESS)
        self._programs.append(command)
        self.add_pod("scheduler", command)
        return command

    def start_monitor(self) -> Command:
        """Start the monitor of the node. Its Lease lasts 30 s."""
        folder = self.folder / f"monitor-{len(self._programs)}"
        folder.mkdir()
        self.kube.delete(f"/api/v1/namespaces/{MONITOR}/pods/monitor-{NODE}?gracePeriodSeconds=0")
        command = monitored_node.MonitoredNode(self.plane, folder, NODE).start(MONITOR_INTERVAL="10s")
        self._programs.append(command)
        return command

    def add_pod(self, component: str, command: Command) -> None:
        """Create the pod in which this program seems to run: the API server reaches the program by its address."""
        name = command.process.name
        self.remove_pod(name)
        body = objects.pod(name, scheduler="none", nodeName=NODE)
        body["metadata"]["labels"] = _labels(component)
        body["spec"]["containers"][0]["ports"] = [{"name": "http", "containerPort": command.port}]
        self.kube.create(PODS, body)
        address = own_address()
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        self.kube.patch(f"{PODS}/{name}/status", {"status": status})

    def remove_pod(self, name: str) -> None:
        """Delete a pod of ours, if it exists. Its program runs on."""
        self.kube.delete(f"{PODS}/{name}?gracePeriodSeconds=0")

    def set_available(self, deployment: str, replicas: int) -> None:
        """Write how many replicas of a Deployment are available."""
        status = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": replicas, "availableReplicas": replicas}
        self.kube.patch(f"{APPS}/{SYSTEM}/deployments/{deployment}/status", {"status": status})

    def assert_running(self) -> None:
        """Raise AssertionError with the end of its log if a program ended: no kubelet starts it again."""
        for program in self._programs:
            assert program.process.alive(), f"{program.process.name} ended: {program.process.output()[-3000:]}"

    def stop(self) -> None:
        """Stop all programs and the control plane."""
        for program in reversed(self._programs):
            program.process.stop()
        self.certified.stop()


def own_address() -> str:
    """Return an address of this host. The API server refuses to reach a pod at a loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()))
                address = socket.inet_ntoa(answer[20:24])
                if not address.startswith(("127.", "169.254.")):
                    return address
    raise OSError("cannot find an address of this host beside those of its loopback: give it a network")


def _labels(component: str) -> Object:
    return {"app.kubernetes.io/name": "gpu-scheduler", "app.kubernetes.io/component": component}


def _label(body: Object, component: str) -> None:
    """Give a workload the selector that only Ansible composes."""
    body["spec"]["selector"] = {"matchLabels": _labels(component)}
    body["spec"]["template"]["metadata"]["labels"] = _labels(component)
