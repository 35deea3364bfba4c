"""Fixtures of suite isolation: the product installed with isolation dra, and pods of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster import plays
from tests.cluster.clusters import CHECK, ROOT

if TYPE_CHECKING:
    from tests.cluster.clusters import Cluster

DRA: Final = (*plays.SITE, "-e", f"@{ROOT}/tests/cluster/isolation/vars.yml")


@pytest.fixture(scope="session", autouse=True)
def installed(cluster: Cluster) -> None:
    """Install the product, unless the file before this one did."""
    if cluster.kubectl("get", "statefulset", "-n", "default", CHECK, check=False).returncode:
        plays.run(*DRA).succeeded()
        assert dict(plays.run(*DRA).succeeded().changed) == {}
