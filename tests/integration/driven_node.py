"""A node whose kubelet is a stand-in: it calls the driver's sockets as a kubelet does."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

import grpc

from gpu_scheduler.driver import kubelet_api as api
from tests import objects
from tests.integration import policies
from tests.integration.accounts import collections
from tests.integration.command import Command
from tests.integration.role_manifests import rendered, values_of
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.objects import Object

API: Final = "/apis/resource.k8s.io/v1"
POOLS: Final = f"{API}/resourceslices"
DRIVER: Final = "gpu.agentaflow.io"
NAMESPACE: Final = "gpu-scheduler-driver"
ACCOUNT: Final = NAMESPACE
COLLECTIONS: Final = {
    **collections(NAMESPACE),
    "DeviceClass": f"{API}/deviceclasses",
    **{kind: f"{policies.REGISTRATION}/{plural}" for kind, plural in policies.COLLECTIONS.items()},
}


def allow(plane: ControlPlane, *templates: str) -> None:
    """Create the drivers' namespace with the rights of role driver and these other templates, unless it exists."""
    if plane.kube.get(f"/api/v1/namespaces/{NAMESPACE}") is not None:
        return
    plane.kube.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for template in ("rbac", *templates):
        for body in rendered("driver", template, values_of("driver")):
            plane.kube.create(COLLECTIONS[body["kind"]], body)


class PluginClient:
    """Calls the driver's two sockets below a kubelet's directory."""

    def __init__(self, kubelet_dir: Path) -> None:
        """Call nothing yet."""
        self._registration = kubelet_dir / "plugins_registry" / f"{DRIVER}-reg.sock"
        self._plugin = kubelet_dir / "plugins" / DRIVER / "dra.sock"

    def register(self) -> Any:
        """Ask who serves, and accept the driver, as the kubelet does when it finds the socket. Return the answer."""
        eventually("the driver serves", self._registration.is_socket)
        with _method(self._registration, f"{api.REGISTRATION}/GetInfo", api.InfoRequest, api.PluginInfo) as ask:
            info = ask(api.InfoRequest())
        self.notify(plugin_registered=True)
        return info

    def notify(self, **status: Any) -> None:
        """Report whether the driver is registered."""
        name, answer = f"{api.REGISTRATION}/NotifyRegistrationStatus", api.RegistrationStatusResponse
        with _method(self._registration, name, api.RegistrationStatus, answer) as ask:
            ask(api.RegistrationStatus(**status))

    def prepare(self, *claims: Object) -> dict[str, Any]:
        """Prepare claims; return the answers by uid."""
        name = f"{api.PLUGIN}/NodePrepareResources"
        with _method(self._plugin, name, api.PrepareRequest, api.PrepareResponse) as ask:
            return dict(ask(api.PrepareRequest(claims=list(map(_named, claims)))).claims)

    def unprepare(self, *claims: Object) -> dict[str, Any]:
        """Unprepare claims; return the answers by uid."""
        name = f"{api.PLUGIN}/NodeUnprepareResources"
        with _method(self._plugin, name, api.UnprepareRequest, api.UnprepareResponse) as ask:
            return dict(ask(api.UnprepareRequest(claims=list(map(_named, claims)))).claims)


@contextmanager
def _method(socket: Path, name: str, request: Any, response: Any) -> Iterator[Callable[[Any], Any]]:
    """Open a channel; yield a function that calls the method."""
    with closing(grpc.insecure_channel(f"unix:{socket}")) as channel:
        call = channel.unary_unary(
            f"/{name}", request_serializer=request.SerializeToString, response_deserializer=response.FromString
        )
        yield lambda asked: call(asked, timeout=limit(10), wait_for_ready=True)


def _named(claim: Object) -> Object:
    return {key: claim["metadata"][key] for key in ("namespace", "name", "uid")}


class DrivenNode:
    """A node, the directories of its kubelet and container runtime, and its driver."""

    def __init__(self, plane: ControlPlane, folder: Path, node: str) -> None:
        """`folder` must have a short name: a socket's path has at most 107 characters. The driver is not started."""
        self.plane = plane
        self._folder = folder
        self.node = node
        self.kubelet_dir = folder / "kubelet"
        self.cdi_dir = folder / "cdi"
        self.checkpoint = self.kubelet_dir / "plugins" / DRIVER / "prepared.json"
        (self.kubelet_dir / "plugins_registry").mkdir(parents=True)
        self.client = PluginClient(self.kubelet_dir)

    def command(self, module: str = "gpu_scheduler") -> Command:
        """Start the driver with simulated devices."""
        token = self.plane.service_account_token(NAMESPACE, ACCOUNT)
        kubeconfig = self.plane.kubeconfig(self._folder / "kubeconfig", token)
        settings = {
            "NODE_NAME": self.node,
            "DRIVER_SOURCE": "simulated",
            "KUBELET_DIR": str(self.kubelet_dir),
            "CDI_DIR": str(self.cdi_dir),
        }
        return Command(self._folder, "driver", ["driver", "--kubeconfig", str(kubeconfig)], settings, module)

    def start(self, module: str = "gpu_scheduler") -> Command:
        """Start the driver, and register it."""
        command = self.command(module)
        try:
            self.client.register()
        except BaseException as error:
            error.add_note(command.process.output()[-3000:])
            command.process.stop()
            raise
        return command

    def list_devices(self, *devices: Object) -> None:
        """Write the devices on the node, as its monitor does."""
        self.plane.kube.patch(f"/api/v1/nodes/{self.node}", objects.annotated(objects.inventory(*devices)))

    def pools(self, driver: str = DRIVER) -> list[Object]:
        """Return the specs of the node's ResourceSlices of a driver, in order of name."""
        return [each["spec"] for each in self.stored(driver)]

    def stored(self, driver: str = DRIVER) -> list[Object]:
        """Return the node's ResourceSlices of a driver, in order of name."""
        selector = f"?fieldSelector=spec.nodeName={self.node},spec.driver={driver}"
        items: list[Object] = self.plane.kube.call("GET", POOLS + selector)[1]["items"]
        return sorted(items, key=lambda each: str(each["metadata"]["name"]))

    def delete_pools(self) -> None:
        """Delete all ResourceSlices of the node, as a kubelet does when it starts."""
        status, answer = self.plane.kube.call("DELETE", f"{POOLS}?fieldSelector=spec.nodeName={self.node}")
        assert status == 200, answer
