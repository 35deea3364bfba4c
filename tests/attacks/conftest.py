"""Fixtures of the suite attacks: one installed cluster for the session, one tenant for a module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpu_scheduler.names import CA_SECRET, SERVING_SECRET
from tests.attacks.installed_cluster import InstalledCluster, Tenant
from tests.attacks.serving_secrets import OTHER, SECRETS
from tests.integration.programs import pytest_runtest_makereport  # noqa: F401 - pytest calls it

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledCluster]:
    """A real API server with everything that the roles install, and our running programs."""
    cluster = InstalledCluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def lasting_tenant(cluster: InstalledCluster) -> Tenant:
    """A user with ClusterRole `admin` in a namespace, for all tests of a module."""
    return Tenant(cluster)


@pytest.fixture
def tenant(lasting_tenant: Tenant) -> Iterator[Tenant]:
    """The module's tenant. Its pods and GPUWorkloads are deleted after each test."""
    yield lasting_tenant
    lasting_tenant.leave()


@pytest.fixture(scope="module")
def secrets(cluster: InstalledCluster) -> Iterator[None]:
    """The webhook's two Secrets, and one of somebody else."""
    names = (CA_SECRET, SERVING_SECRET, OTHER)
    for name in names:
        cluster.kube.create(SECRETS, {"metadata": {"name": name}, "data": {"tls.key": "a2V5"}})
    yield
    for name in names:
        cluster.kube.delete(f"{SECRETS}/{name}")


@pytest.fixture
def new_tenant(cluster: InstalledCluster) -> Iterator[Tenant]:
    """A tenant of this test alone, which changes more than pods: rights, limits, GPUWorkloads, its namespace."""
    tenant = Tenant(cluster)
    yield tenant
    tenant.leave()
