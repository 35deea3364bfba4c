"""Upgrade from v0.1.0, rollback by its own play, and upgrade again, while pods are created all the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.clusters import SYSTEM
from tests.cluster.existing import old_version, scenario
from tests.cluster.existing.listing import left_of_ours
from tests.cluster.existing.load import Load
from tests.cluster.existing.page import REMOVE, ROLL_BACK, UPGRADE

if TYPE_CHECKING:
    from tests.cluster.clusters import Cluster

# Plays on a busy machine, and a load that must come to rest.
pytestmark = pytest.mark.timeout(900)


def running(cluster: Cluster) -> str:
    """Return the image of the scheduler."""
    deployment = cluster.get("deployment", "-n", SYSTEM, "gpu-scheduler")
    found: str = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    return found


def upgrade(cluster: Cluster, image: str, name: str) -> None:
    """Run the page's upgrade under load."""
    with Load(cluster, image, name) as load:
        for commands in scenario.page().blocks(UPGRADE):
            scenario.read(commands).succeeded()
    scenario.measured(f"{name}: {load.prove()}")
    assert running(cluster) == scenario.images()["SCHEDULER_IMAGE"]


def test_an_upgrade_from_v0_1_0_loses_no_pod_and_no_gpu(cluster: Cluster, image: str) -> None:
    """Every pod is bound where its map says, none after longer than a Lease, and no GPU has two holders."""
    for commands in scenario.page().blocks(REMOVE):
        scenario.read(commands).succeeded()
    assert left_of_ours(cluster) == []
    old_version.deploy()
    assert "/v0.1.0/" in running(cluster)

    upgrade(cluster, image, "upgrade")


def test_a_rollback_to_v0_1_0_loses_no_pod_and_no_gpu(cluster: Cluster, image: str) -> None:
    """Our play makes way, and then v0.1.0's own play replaces what is there."""
    with Load(cluster, image, "rollback") as load:
        for commands in scenario.page().blocks(ROLL_BACK):
            scenario.read(commands).succeeded()
        old_version.deploy()
    scenario.measured(f"rollback: {load.prove()}")
    assert "/v0.1.0/" in running(cluster)


def test_an_upgrade_after_a_rollback_loses_no_pod_and_no_gpu(cluster: Cluster, image: str) -> None:
    """What the rollback left hinders no later upgrade."""
    upgrade(cluster, image, "again")
