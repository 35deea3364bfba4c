"""Fixtures of the suite attacks: one installed cluster for the session, one tenant for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.attacks.installed_cluster import InstalledCluster, Tenant
from tests.integration.webhook_process import UNREVIEWED

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledCluster]:
    """A real API server with everything that the roles install, and our running programs."""
    cluster = InstalledCluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


@pytest.fixture
def tenant(cluster: InstalledCluster) -> Iterator[Tenant]:
    """A user with ClusterRole `admin` in a namespace of its own."""
    tenant = Tenant(cluster)
    yield tenant
    tenant.leave()


@pytest.fixture
def unreviewed(cluster: InstalledCluster) -> Iterator[Tenant]:
    """A tenant in a namespace whose pods the webhook does not review: only policies and the bind gate check them."""
    tenant = Tenant(cluster, **{UNREVIEWED.replace("/", "_"): ""})
    yield tenant
    tenant.leave()
