"""Fixtures of the healing tests: their own cluster, healthy before each case."""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.cluster.clusters import CHECK, Cluster
from tests.cluster.healing import own_engine, runs

READY: Final = 14
"""Containers of a whole installation: 5 of the check, 3 webhook tests, 2 each of scheduler, webhook and controller."""


@pytest.fixture(scope="session", autouse=True)
def healing_engine() -> None:
    """Run the tests' own engine. Scenario healing removes it after the last file."""
    own_engine.make()
    os.environ["DOCKER_HOST"] = f"unix://{own_engine.ENGINE}/docker.sock"


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """Return the cluster that these tests damage; it may not exist yet."""
    return Cluster(own_engine.KUBE / "config", own_engine.NAME)


@pytest.fixture
def healthy(cluster: Cluster) -> None:
    """Make sure that the cluster is complete, also if this file runs alone or the test before left it damaged."""
    if not (own_engine.engine_answers() and _is_whole(cluster)):
        runs.up()


@pytest.fixture
def image(cluster: Cluster, healthy: None) -> str:
    """Return the check image's reference, read when the cluster is complete."""
    del healthy
    template = cluster.get("statefulset", "-n", "default", CHECK)["spec"]["template"]
    reference: str = template["spec"]["containers"][0]["image"]
    return reference


def _is_whole(cluster: Cluster) -> bool:
    ready = cluster.kubectl(
        "get", "pods", "-A", "-l", "app.kubernetes.io/part-of=gpu-scheduler", "-o", "json", check=False
    )
    return len(own_engine.containers()) == 5 and ready.returncode == 0 and ready.stdout.count('"ready": true') == READY
