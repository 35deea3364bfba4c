"""The engine dies, or one of the nodes: the run starts what stopped and sets the pod network again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.healing import runs, world

if TYPE_CHECKING:
    from tests.cluster.clusters import Cluster

pytestmark = pytest.mark.timeout(runs.LONGEST)


def test_engine_killed(cluster: Cluster, healthy: None) -> None:
    """An engine that was killed with all its processes is started, and the cluster in it stands again.

    The nodes' addresses may be others then, and the routes between their pods are gone.
    """
    del healthy
    world.crash()
    assert not world.engine_answers()
    assert cluster.kubectl("version", "--request-timeout=5s", check=False).returncode != 0

    changed = runs.changed(runs.up())

    assert {"container_engine", "kind_cluster"} == changed
    runs.prove(cluster)


def test_node_stopped(cluster: Cluster, healthy: None) -> None:
    """A node whose container was stopped is started, and its pods are reached again."""
    del healthy
    stopped = f"{world.NAME}-worker4"
    world.docker("stop", "--time", "5", stopped)
    assert stopped not in world.containers()

    changed = runs.changed(runs.up())

    assert {"kind_cluster"} == changed
    runs.prove(cluster)
