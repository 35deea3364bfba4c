"""The engine or a node crashes: the next run starts it again and restores the pod network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.healing import own_engine, runs

if TYPE_CHECKING:
    from tests.cluster.clusters import Cluster

pytestmark = pytest.mark.timeout(runs.LONGEST)


def test_engine_killed(cluster: Cluster, healthy: None) -> None:
    """An engine that was killed with all its processes is started, and the cluster in it works again.

    The nodes may get other addresses, and the routes between their pods are lost.
    """
    del healthy
    own_engine.crash()
    assert not own_engine.engine_answers()
    assert cluster.kubectl("version", "--request-timeout=5s", check=False).returncode != 0

    changed = runs.changed(runs.up())

    assert {"container_engine", "kind_cluster"} == changed
    runs.prove(cluster)


def test_node_stopped(cluster: Cluster, healthy: None) -> None:
    """A node whose container was stopped is started, and its pods are reachable again."""
    del healthy
    stopped = f"{own_engine.NAME}-worker4"
    own_engine.docker("stop", "--time", "5", stopped)
    assert stopped not in own_engine.containers()

    changed = runs.changed(runs.up())

    assert {"kind_cluster"} == changed
    runs.prove(cluster)
