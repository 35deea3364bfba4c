"""A dry run on a cluster in use shows what would be installed, and writes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.existing import scenario
from tests.cluster.existing.listing import versions
from tests.cluster.existing.page import DRY_RUN

if TYPE_CHECKING:
    from tests.cluster.clusters import Cluster

pytestmark = pytest.mark.timeout(300)


def test_a_dry_run_on_a_cluster_without_us_changes_nothing(cluster: Cluster) -> None:
    """It names the roles that would change something, and every object of the cluster is as before."""
    before = versions(cluster)
    (commands,) = scenario.page().blocks(DRY_RUN)
    run = scenario.read(commands).succeeded()

    installed = {"crds", "scheduler", "policies", "network_policies", "webhook", "controller", "check"}
    assert installed <= set(run.changed), run.changed
    assert versions(cluster) == before
