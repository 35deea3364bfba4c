"""Fixtures of scenario existing: the cluster, made by the scenario, or by the first file where that runs alone."""

from __future__ import annotations

import pytest

from tests.cluster.clusters import CHECK, Cluster
from tests.cluster.existing import scenario
from tests.cluster.existing.own_cluster import CLUSTER
from tests.cluster.existing.page import INSTALL


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """Return the cluster, as its administrator sees it."""
    if not scenario.READER.kubeconfig.exists():
        scenario.make()
    return CLUSTER


@pytest.fixture(scope="session")
def image(cluster: Cluster) -> str:
    """Return the check image's reference: a registry has it for every node."""
    return scenario.images()["CHECK_IMAGE"]


@pytest.fixture
def installed(cluster: Cluster) -> None:
    """Install the present version if the file runs alone."""
    if cluster.kubectl("get", "statefulset", "-n", "default", CHECK, check=False).returncode:
        scenario.read(scenario.page().blocks(INSTALL)[0]).succeeded()
