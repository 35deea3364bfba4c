"""The control plane lives as long as the ring; schedulers, namespaces and nodes as long as who asked for them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
import pytest
import yaml

from tests.integration.bench import SYSTEM_NAMESPACE, Bench, Command, start_scheduler
from tests.integration.plant import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.plant import Object

RBAC = Path(__file__).resolve().parents[2] / "roles" / "scheduler" / "templates" / "rbac.yaml.j2"
COLLECTIONS = {
    "ServiceAccount": f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/roles",
    "RoleBinding": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/rolebindings",
}

_numbers = itertools.count(1)


def shipped_rights() -> list[Object]:
    """What the role applies: with a right too few, no test here passes."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)  # noqa: S701 - YAML, no HTML
    environment.filters["to_json"] = json.dumps
    template = environment.from_string(RBAC.read_text(encoding="utf-8"))
    rendered = template.render(scheduler_namespace=SYSTEM_NAMESPACE, _scheduler_labels={})
    return [body for body in yaml.safe_load_all(rendered) if body]


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The processes etcd and kube-apiserver, with the service account and the rights that the role gives it."""
    plane = ControlPlane(tmp_path_factory.mktemp("plane"))
    try:
        kube = plane.kube
        kube.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM_NAMESPACE}})
        for body in shipped_rights():
            kube.create(COLLECTIONS[body["kind"]], body)
        yield plane
    finally:
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
        yield command
    finally:
        command.process.stop()
