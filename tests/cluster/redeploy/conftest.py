"""Fixtures of suite redeploy: scenario default has installed the product, and its tests left it complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster import plays
from tests.cluster.clusters import CHECK

if TYPE_CHECKING:
    from tests.cluster.clusters import Cluster


@pytest.fixture(scope="session", autouse=True)
def installed(cluster: Cluster) -> None:
    """Install the product if this scenario runs alone."""
    if cluster.kubectl("get", "statefulset", "-n", "default", CHECK, check=False).returncode:
        plays.run(*plays.SITE).succeeded()
