"""Fixtures of suite integration: control planes live for the session, programs for a module, the rest for a test."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import pytest

from tests import objects
from tests.integration import limits
from tests.integration.command import Command, start_alone
from tests.integration.control_plane import ADMIN_TOKEN, ControlPlane
from tests.integration.controller_manager import start_controller_manager
from tests.integration.installed import Installed, busy
from tests.integration.namespace import Namespace
from tests.integration.pod_controllers import delete_controllers
from tests.integration.programs import pytest_runtest_makereport  # noqa: F401 - pytest calls it
from tests.integration.role_manifests import control_plane
from tests.integration.webhook_process import RegisteredWebhook
from tests.integration.workloads import Workloads, controller_plane, start_controller
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kube_client import KubeClient

_numbers = itertools.count(1)
_FIRST: Final = ("removal", "observability", "play", "preflight", "charts")
"""Files with plays, the longest first: few tests, of many seconds each. At the end most workers would wait for them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the files of _FIRST first, in its order."""
    places = {name: place for place, name in enumerate(_FIRST)}
    items.sort(key=lambda item: places.get(item.path.stem.removeprefix("test_"), len(places)))


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane (etcd and kube-apiserver) with the service account and the RBAC of role scheduler."""
    plane = control_plane(tmp_path_factory.mktemp("plane"))
    yield plane
    plane.stop()


@pytest.fixture
def namespace(plane: ControlPlane) -> Iterator[Namespace]:
    """A new namespace for each test. Its pods and all nodes are deleted afterwards."""
    namespace = Namespace(plane.kube, f"test-{next(_numbers)}")
    yield namespace
    namespace.empty()
    plane.kube.call("DELETE", "/api/v1/nodes")


@pytest.fixture(scope="module")
def scheduler(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """One leading replica of the scheduler, shared by the tests of a module."""
    with start_alone(plane, tmp_path_factory.mktemp("scheduler"), "scheduler-0").serving(leads=True) as command:
        yield command


@pytest.fixture(scope="module")
def operator(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The command line, for a user with all rights who has not chosen the test's namespace."""
    return Installed(tmp_path_factory.mktemp("operator"), plane, ADMIN_TOKEN, "default")


@pytest.fixture(scope="module")
def registered(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegisteredWebhook]:
    """A registered webhook, shared by the tests of a module."""
    registered = RegisteredWebhook(plane, tmp_path_factory.mktemp("webhook"))
    yield registered
    registered.unregister()
    registered.command.process.stop()


@pytest.fixture
def calling(namespace: Namespace, registered: RegisteredWebhook) -> Namespace:
    """A namespace. It is returned when the API server calls the webhook for pods in it."""

    def noticed() -> bool:
        status, _ = namespace.kube.call("POST", namespace.pods, objects.pod("probe", "nonsense"))
        if status == 201:
            namespace.delete("probe")
        return status == 400

    eventually("the API server calls the webhook", noticed)
    return namespace


@pytest.fixture(scope="session")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with the CRDs GPUWorkload and GPUNode and all guard policies in force."""
    plane = controller_plane(tmp_path_factory.mktemp("kinds"))
    yield plane
    plane.stop()


@pytest.fixture(scope="module")
def guarded(kinds: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with all guard policies in force, a namespace and a node. None of our programs runs there."""
    if kinds.kube.get("/api/v1/namespaces/guarded") is None:
        kinds.kube.create("/api/v1/namespaces", {"metadata": {"name": "guarded"}})
    kinds.kube.create("/api/v1/nodes", {"metadata": {"name": "node1"}})
    yield kinds
    kinds.kube.call("DELETE", "/api/v1/namespaces/guarded/pods?gracePeriodSeconds=0")
    kinds.kube.call("DELETE", "/api/v1/nodes")


@pytest.fixture
def admin(guarded: ControlPlane) -> KubeClient:
    """The client of a user with all RBAC rights."""
    return guarded.client_as("admin")


@pytest.fixture
def workloads(kinds: ControlPlane) -> Iterator[Workloads]:
    """A new namespace for GPUWorkloads. Its GPUWorkloads and pods, and all nodes, are deleted afterwards."""
    workloads = Workloads(kinds, Namespace(kinds.kube, f"orders-{next(_numbers)}"))
    yield workloads
    kinds.kube.call("DELETE", workloads.path)
    kinds.kube.call("DELETE", f"{workloads.namespace.pods}?gracePeriodSeconds=0")
    kinds.kube.call("DELETE", "/api/v1/nodes")


@pytest.fixture(scope="module")
def controller(kinds: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """One leading controller, shared by the tests of a module."""
    with start_controller(kinds, tmp_path_factory.mktemp("controller"), "controller-0").serving(leads=True) as command:
        yield command


@pytest.fixture(scope="module")
def running(kinds: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """The leading scheduler of a control plane with our CRDs. A controller runs beside it; both live for a module."""
    folder = tmp_path_factory.mktemp("running")
    scheduler = start_alone(kinds, folder, "gpu-scheduler-0")
    controller = start_controller(kinds, folder, "gpu-scheduler-controller-0")
    try:
        scheduler.wait_ready()
        eventually("it leads", scheduler.leads)
        yield scheduler
    finally:
        controller.process.stop()
        scheduler.process.stop()


@pytest.fixture
def populated(workloads: Workloads, running: Command) -> Namespace:
    """A namespace with running and waiting pods, as `busy` creates them."""
    return busy(workloads.namespace)


@pytest.fixture
def cli(kinds: ControlPlane, populated: Namespace, tmp_path: Path) -> Installed:
    """The command line, for a user with all rights."""
    return Installed(tmp_path, kinds, ADMIN_TOKEN, populated.name)


@pytest.fixture
def limited(namespace: Namespace) -> Iterator[Namespace]:
    """A namespace with two nodes of four devices each. The limits are deleted afterwards."""
    for name in ("node1", "node2"):
        namespace.node(name, annotations=objects.inventory(*map(objects.device, range(4))))
    yield namespace
    namespace.kube.delete(limits.LIMITS)


@pytest.fixture
def controllers(plane: ControlPlane, calling: Namespace, tmp_path: Path) -> Iterator[Namespace]:
    """A namespace for controllers, and Kubernetes' own programs, which make their pods."""
    delete_controllers(plane.kube)
    kinds = ("statefulset", "deployment", "replicaset", "job", "garbage-collector")
    process = start_controller_manager(plane, tmp_path, *(f"{kind}-controller" for kind in kinds))
    yield calling
    delete_controllers(plane.kube)
    eventually("their pods are gone", lambda: _emptied(calling), seconds=30)
    process.stop()


def _emptied(namespace: Namespace) -> bool:
    """Return whether the namespace has no pods. Delete those that it has: no kubelet ends them."""
    namespace.empty()
    return not namespace.kube.call("GET", namespace.pods)[1]["items"]
