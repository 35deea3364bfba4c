"""The control plane lives as long as the ring; schedulers, namespaces and nodes as long as who asked for them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests import objects
from tests.integration import limits
from tests.integration.bench import Bench
from tests.integration.command import Command, start_alone
from tests.integration.control_plane import ADMIN_TOKEN, ControlPlane
from tests.integration.installed import Installed, busy
from tests.integration.manifests import guard
from tests.integration.served import Served
from tests.integration.shipped import control_plane
from tests.integration.workshop import Orders, start_controller, workshop
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The processes etcd and kube-apiserver, with the service account and the rights that the role gives it."""
    plane = control_plane(tmp_path_factory.mktemp("plane"))
    yield plane
    plane.stop()


@pytest.fixture
def bench(plane: ControlPlane) -> Iterator[Bench]:
    """A namespace of the test's own; its pods and all nodes are gone afterwards."""
    bench = Bench(plane.kube, f"test-{next(_numbers)}")
    yield bench
    plane.kube.call("DELETE", f"{bench.pods}?gracePeriodSeconds=0")
    plane.kube.call("DELETE", "/api/v1/nodes")


@pytest.fixture(scope="module")
def scheduler(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """One replica that leads, shared by a module's tests."""
    command = start_alone(plane, tmp_path_factory.mktemp("scheduler"), "scheduler-0")
    try:
        command.wait_ready()
        eventually("it leads", command.leads)
        yield command
    finally:
        command.process.stop()


@pytest.fixture(scope="module")
def served(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A registered webhook, shared by a module's tests."""
    served = Served(plane, tmp_path_factory.mktemp("webhook"))
    yield served
    served.unregister()
    served.command.process.stop()


@pytest.fixture
def calling(bench: Bench, served: Served) -> Bench:
    """A namespace, once the API server has taken notice of the registrations."""

    def noticed() -> bool:
        status, _ = bench.kube.call("POST", bench.pods, objects.pod("probe", "nonsense"))
        if status == 201:
            bench.delete("probe")
        return status == 400

    eventually("the API server calls the webhook", noticed)
    return bench


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with a namespace, a node, and all guards in force; no program of ours runs there."""
    plane = ControlPlane(tmp_path_factory.mktemp("guarded"))
    try:
        plane.kube.create("/api/v1/namespaces", {"metadata": {"name": "guarded"}})
        plane.kube.create("/api/v1/nodes", {"metadata": {"name": "node1"}})
        guard(plane)
        yield plane
    finally:
        plane.stop()


@pytest.fixture(scope="session")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that knows GPUWorkload and GPUNode, with all guards in force."""
    plane = workshop(tmp_path_factory.mktemp("kinds"))
    yield plane
    plane.stop()


@pytest.fixture
def orders(kinds: ControlPlane) -> Iterator[Orders]:
    """A namespace of the test's own for GPUWorkloads; what is in it, and all nodes, are gone afterwards."""
    orders = Orders(kinds, Bench(kinds.kube, f"orders-{next(_numbers)}"))
    yield orders
    kinds.kube.call("DELETE", orders.path)
    kinds.kube.call("DELETE", f"{orders.bench.pods}?gracePeriodSeconds=0")
    kinds.kube.call("DELETE", "/api/v1/nodes")


@pytest.fixture(scope="module")
def controller(kinds: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """One controller that leads, shared by a module's tests."""
    command = start_controller(kinds, tmp_path_factory.mktemp("controller"), "controller-0")
    try:
        command.wait_ready()
        eventually("it leads", command.leads, seconds=15)
        yield command
    finally:
        command.process.stop()


@pytest.fixture(scope="module")
def running(kinds: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """A scheduler that leads and a controller, where the kinds are known, for a module's tests; gives the scheduler."""
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
def town(orders: Orders, running: Command) -> Bench:
    """A namespace of a busy cluster."""
    return busy(orders.bench)


@pytest.fixture
def cli(kinds: ControlPlane, town: Bench, tmp_path: Path) -> Installed:
    """The command line, for somebody who may do everything there."""
    return Installed(tmp_path, kinds, ADMIN_TOKEN, town.namespace)


@pytest.fixture
def limited(bench: Bench) -> Iterator[Bench]:
    """Two nodes of four cards; the limits are gone afterwards."""
    for name in ("node1", "node2"):
        bench.node(name, annotations=objects.inventory(*map(objects.card, range(4))))
    yield bench
    bench.kube.delete(limits.LIMITS)
