"""The control plane lives as long as the ring; schedulers, namespaces and nodes as long as who asked for them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.integration import shapes
from tests.integration.bench import Bench
from tests.integration.command import Command, start_scheduler
from tests.integration.served import Served
from tests.integration.shipped import control_plane
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.plant import ControlPlane

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
    command = start_scheduler(plane, tmp_path_factory.mktemp("scheduler"), "scheduler-0")
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
        status, _ = bench.kube.call("POST", bench.pods, shapes.pod("probe", "nonsense"))
        if status == 201:
            bench.delete("probe")
        return status == 400

    eventually("the API server calls the webhook", noticed)
    return bench
