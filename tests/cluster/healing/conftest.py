"""Fixtures of the healing tests: their own cluster, healthy before each case."""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.cluster.clusters import CHECK, Cluster
from tests.cluster.healing import runs, world

READY: Final = 14
"""Containers of a whole installation: 5 of the check, 3 webhook tests, 2 each of scheduler, webhook and controller."""


@pytest.fixture(scope="session", autouse=True)
def healing_world() -> None:
    """Make what is missing of the tests' world; scenario healing takes it away, after the last file."""
    world.make()
    os.environ["DOCKER_HOST"] = f"unix://{world.ENGINE}/docker.sock"


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """Return the cluster that these tests break; it need not be there."""
    return Cluster(world.KUBE / "config", world.NAME)


@pytest.fixture
def healthy(cluster: Cluster) -> None:
    """Have the cluster stand, also where this file runs alone or the case before left it broken."""
    if not (world.engine_answers() and _is_whole(cluster)):
        runs.up()


@pytest.fixture
def image(cluster: Cluster, healthy: None) -> str:
    """Return the check image's reference, read when the cluster stands."""
    del healthy
    template = cluster.get("statefulset", "-n", "default", CHECK)["spec"]["template"]
    reference: str = template["spec"]["containers"][0]["image"]
    return reference


def _is_whole(cluster: Cluster) -> bool:
    ready = cluster.kubectl(
        "get", "pods", "-A", "-l", "app.kubernetes.io/part-of=gpu-scheduler", "-o", "json", check=False
    )
    return len(world.containers()) == 5 and ready.returncode == 0 and ready.stdout.count('"ready": true') == READY
