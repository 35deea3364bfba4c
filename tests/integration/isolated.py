"""A cluster with `isolation: dra`: webhook, scheduler and kube-scheduler share the devices that slices publish.

There is no kubelet: what a driver publishes is written here, and a pod ends when it is deleted without grace.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, Final

from tests import objects
from tests.integration.command import Command, start_alone
from tests.integration.control_plane import ADMIN_TOKEN
from tests.integration.controller_manager import OF_CLAIMS, start_controller_manager
from tests.integration.namespace import Namespace
from tests.integration.policies import guard
from tests.integration.programs import Process, program
from tests.integration.role_manifests import control_plane
from tests.integration.webhook_process import Webhook
from tests.ports import free_port
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.kube_client import KubeClient
    from tests.objects import Object

RESOURCES: Final = "/apis/resource.k8s.io/v1"
DRIVER: Final = "gpu.nvidia.com"
CONFIG: Final = {"opaque": {"driver": DRIVER, "parameters": {"sharing": {"strategy": "TimeSlicing"}}}}
"""What the class of the devices tells their driver."""
EXTENDED: Final = "nvidia.com/gpu"
"""The resource by which the class lets a pod without a claim ask for devices; kube-scheduler makes its claim."""
GPUS: Final = 4
"""GPUs of each node."""
NODES: Final = ("node1", "node2", "node3", "node4")
MODELS: Final = {"node4": "NVIDIA H100"}
"""The model of a node's GPUs, if it is not an A100."""

_numbers = itertools.count(1)


def uuid(node: str, index: int) -> str:
    """Return the UUID of a GPU."""
    return objects.gpu(int(node.removeprefix("node")) * 16 + index)


class IsolatedCluster:
    """The control plane and the programs. Stop it at the end."""

    def __init__(self, folder: Path) -> None:
        """Start everything but the scheduler."""
        self.folder = folder
        self.plane = control_plane(folder, isolation="dra")
        self.kube = self.plane.kube
        self._programs: list[Process] = []
        try:
            guard(self.plane, isolation="dra")
            self._register(Webhook(folder, ["webhook"], {}))
            # The policies name the accounts of the controllers that free claims.
            self._programs.append(start_controller_manager(self.plane, folder, *OF_CLAIMS, own_accounts=True))
            self._programs.append(self._start_kube_scheduler())
            for node in NODES:
                self.kube.create("/api/v1/nodes", objects.node(node))
            publish(self.kube, NODES)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all processes."""
        for each in reversed(self._programs):
            each.stop()
        self.plane.stop()

    def start_scheduler(
        self, folder: Path, module: str = "gpu_scheduler", *, proxy: int | None = None, **env: str
    ) -> Command:
        """Start our scheduler, which leads at once, with the port of its proxy if it has one. The caller stops it."""
        name, settings = f"scheduler-{next(_numbers)}", {"ISOLATION": "dra", "LOG_LEVEL": "DEBUG", **env}
        return start_alone(self.plane, folder, name, proxy, module, **settings)

    def namespace(self) -> Namespace:
        """Create a namespace."""
        return Namespace(self.kube, f"isolated-{next(_numbers)}")

    def claims(self, namespace: str) -> dict[str, Object]:
        """Return the ResourceClaims of a namespace by name."""
        found: Any = self.kube.get(f"{RESOURCES}/namespaces/{namespace}/resourceclaims")
        return {each["metadata"]["name"]: each for each in found["items"]}

    def holders(self) -> dict[str, list[str]]:
        """Return by device which claims are allocated it, the first one first."""
        found: Any = self.kube.get(f"{RESOURCES}/resourceclaims")
        holders: dict[str, list[str]] = {}
        # A claim is not written again after its allocation, so its version says when that was.
        for claim in sorted(found["items"], key=lambda each: int(each["metadata"]["resourceVersion"])):
            for device in devices_of(claim):
                name = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
                holders.setdefault(device, []).append(name)
        return holders

    def allocated(self) -> dict[str, str]:
        """Return by device which claim is allocated it. A device of two claims fails the test."""
        holders = self.holders()
        for device, names in holders.items():
            assert len(names) == 1, f"{device} is allocated to {' and to '.join(names)}"
        return {device: name for device, (name,) in holders.items()}

    def clear(self, namespace: Namespace) -> None:
        """Delete controllers, pods and claims of a namespace, and wait until no device is allocated."""
        for path in (f"/apis/apps/v1/namespaces/{namespace.name}/statefulsets", namespace.pods):
            self.kube.call("DELETE", path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
        namespace.wait_empty()
        self.kube.call("DELETE", f"{RESOURCES}/namespaces/{namespace.name}/resourceclaims")
        eventually("its claims are gone", lambda: not self.claims(namespace.name), seconds=20)

    def scale(self, namespace: Namespace, count: int, name: str = "train") -> None:
        """Scale a StatefulSet, and end the pods that it deletes, as a kubelet does."""
        sets = f"/apis/apps/v1/namespaces/{namespace.name}/statefulsets"
        self.kube.patch(f"{sets}/{name}", {"spec": {"replicas": count}})

        def ended() -> bool:
            found: Any = self.kube.get(namespace.pods)
            pods = [each["metadata"] for each in found["items"] if each["metadata"]["name"].startswith(f"{name}-")]
            for each in pods:
                if "deletionTimestamp" in each:
                    namespace.delete(each["name"])
            return len(pods) <= count

        eventually(f"{count} pods of {name} are left", ended, seconds=20)

    def _register(self, webhook: Webhook) -> None:
        self._programs.append(webhook.command.process)
        for collection, body in webhook.registrations(webhook_isolation="dra"):
            self.kube.create(collection, body)
        probe = "/api/v1/namespaces/default/pods?dryRun=All"
        asked = lambda: self.kube.call("POST", probe, objects.pod("probe", "nonsense"))[0] == 400  # noqa: E731
        eventually("the API server calls the webhook", asked)

    def _start_kube_scheduler(self) -> Process:
        kubeconfig = self.plane.kubeconfig(self.folder / "kube-scheduler.kubeconfig", ADMIN_TOKEN)
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 1000, "burst": 1000},
        }
        path = self.folder / "kube-scheduler.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        command = [
            str(program("kube-scheduler")),
            f"--config={path}",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
            f"--cert-dir={self.folder / 'kube-scheduler'}",
        ]
        return Process("kube-scheduler", command, self.folder / "kube-scheduler.log")


def publish(kube: KubeClient, nodes: Iterable[str]) -> None:
    """Create the class of NVIDIA's driver, and the slices that it publishes for these nodes."""
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    spec = {"selectors": [selector], "config": [CONFIG], "extendedResourceName": EXTENDED}
    kube.create(f"{RESOURCES}/deviceclasses", {"metadata": {"name": DRIVER}, "spec": spec})
    for node in nodes:
        kube.create(f"{RESOURCES}/resourceslices", slice_of(node))


def slice_of(node: str, *, gpus: int = GPUS, generation: int = 1) -> Object:
    """Return the slice that NVIDIA's driver publishes for a node: without an index, in order of the bus."""
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "uuid": {"string": uuid(node, index)},
                "productName": {"string": MODELS.get(node, "NVIDIA A100")},
                "resource.kubernetes.io/pciBusID": {"string": f"0000:{index + 1:02x}:00.0"},
            },
            "capacity": {"memory": {"value": "40960Mi"}},
        }
        for index in range(gpus)
    ]
    pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
    return {
        "metadata": {"name": f"{node}-{DRIVER}-{generation}"},
        "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices},
    }


def devices_of(claim: Object) -> list[str]:
    """Return the devices that a claim is allocated, as POOL/DEVICE."""
    results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    return [f"{each['pool']}/{each['device']}" for each in results]


def replicas(text: str, count: int, name: str = "train") -> Object:
    """Return a StatefulSet whose pods have this map."""
    template = objects.pod("", text)
    template["metadata"] = {"labels": {"app": name}, "annotations": template["metadata"]["annotations"]}
    return {
        "metadata": {"name": name},
        "spec": {
            "serviceName": name,
            "replicas": count,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": name}},
            "template": template,
        },
    }


def others_claim(name: str, gpus: int = 1, *expressions: str) -> Object:
    """Return a claim that a user writes, by default for a pod of kube-scheduler."""
    exactly: Object = {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": gpus}
    if expressions:
        exactly["selectors"] = [{"cel": {"expression": each}} for each in expressions]
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}}


def create_others(namespace: Namespace, name: str, *, extended: bool = False) -> None:
    """Create a pod of kube-scheduler for one GPU: with a claim of its own name, or with the extended resource."""
    if extended:
        container = {"name": "main", "image": objects.IMAGE, "resources": {"limits": {EXTENDED: "1"}}}
        body = objects.pod(name, None, scheduler="default-scheduler", containers=[container])
    else:
        namespace.kube.create(f"{RESOURCES}/namespaces/{namespace.name}/resourceclaims", others_claim(name))
        body = with_claim(name, {"resourceClaimName": name}, scheduler="default-scheduler")
    namespace.kube.create(namespace.pods, body)


def with_claim(name: str, source: Object, **more: Any) -> Object:
    """Return a pod with a claim of its author: the first of its two containers uses it."""
    containers = [
        {"name": "main", "image": objects.IMAGE, "resources": {"claims": [{"name": "gpus"}]}},
        {"name": "helper", "image": objects.IMAGE},
    ]
    claims = [{"name": "gpus", **source}]
    return objects.pod(name, None, containers=containers, resourceClaims=claims, **more)


def running(folder: Path) -> Iterator[IsolatedCluster]:
    """Yield a cluster, and stop it."""
    cluster = IsolatedCluster(folder)
    yield cluster
    cluster.stop()
