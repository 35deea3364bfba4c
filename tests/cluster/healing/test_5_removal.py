"""`make down` removes what `make up` created and nothing else, however often it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.healing import own_engine, runs

if TYPE_CHECKING:
    from tests.cluster.clusters import Cluster

pytestmark = pytest.mark.timeout(runs.LONGEST)


def _foreign_objects() -> tuple[str, str]:
    """Return the identities of the network and of the foreign container in it."""
    return (
        own_engine.docker("network", "inspect", "kind", "--format", "{{.Id}}"),
        own_engine.docker("inspect", own_engine.STRANGER, "--format", "{{.Id}} {{.State.Status}}"),
    )


@pytest.mark.promise("down-1")
def test_down_removes_what_was_made_and_nothing_else(cluster: Cluster, healthy: None) -> None:
    """The cluster, its kubeconfig and our engine are removed; a foreign container and its network do not change.

    Before, the cluster loses two workers, and check mode reports that a run would create it again. A second `make down`
    changes nothing.
    """
    del healthy
    before = _foreign_objects()
    volumes = own_engine.docker("volume", "ls", "--quiet")
    assert volumes
    own_engine.docker("rm", "--force", "--volumes", f"{own_engine.NAME}-worker2", f"{own_engine.NAME}-worker3")
    reported = runs.up("--check")
    assert {"kind_cluster"} == runs.changed(reported)
    assert "is incomplete: the container of node2, node3 is gone. A run would make it anew" in reported.output

    first = runs.down()
    assert {"kind_cluster", "container_engine"} == runs.changed(first)
    assert not own_engine.engine_answers()
    assert not cluster.kubeconfig.exists()

    assert set() == runs.changed(runs.down())

    own_engine.start_engine()
    assert before == _foreign_objects()
    assert (
        own_engine.docker("ps", "--all", "--quiet", "--filter", f"label=io.x-k8s.kind.cluster={own_engine.NAME}") == ""
    )
    assert own_engine.docker("volume", "ls", "--quiet") == ""
