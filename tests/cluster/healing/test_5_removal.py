"""`make down` takes back what was made and nothing else, as often as it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.healing import runs, world

if TYPE_CHECKING:
    from tests.cluster.clusters import Cluster

pytestmark = pytest.mark.timeout(runs.LONGEST)


def _strangers() -> tuple[str, str]:
    """Return the identities of the network and of the container in it that are nobody's of ours."""
    return (
        world.docker("network", "inspect", "kind", "--format", "{{.Id}}"),
        world.docker("inspect", world.STRANGER, "--format", "{{.Id}} {{.State.Status}}"),
    )


@pytest.mark.promise("down-1")
def test_down_removes_what_was_made_and_nothing_else(cluster: Cluster, healthy: None) -> None:
    """The cluster, its kubeconfig and the engine that we started are gone; a stranger and his network are as they were.

    The cluster has lost two workers just before, and check mode has told that a run would make it anew. A second
    `make down` finds nothing to do.
    """
    del healthy
    before = _strangers()
    volumes = world.docker("volume", "ls", "--quiet")
    assert volumes
    world.docker("rm", "--force", "--volumes", f"{world.NAME}-worker2", f"{world.NAME}-worker3")
    told = runs.up("--check")
    assert {"kind_cluster"} == runs.changed(told)
    assert "is incomplete: the container of node2, node3 is gone. A run would make it anew" in told.output

    first = runs.down()
    assert {"kind_cluster", "container_engine"} == runs.changed(first)
    assert not world.engine_answers()
    assert not cluster.kubeconfig.exists()

    assert set() == runs.changed(runs.down())

    world.start_engine()
    assert before == _strangers()
    assert world.docker("ps", "--all", "--quiet", "--filter", f"label=io.x-k8s.kind.cluster={world.NAME}") == ""
    assert world.docker("volume", "ls", "--quiet") == ""
