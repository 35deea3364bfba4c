"""Installation and proof by a user without rights on this host, with images that a registry has."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from tests.cluster.existing import scenario
from tests.cluster.existing.listing import versions
from tests.cluster.existing.own_cluster import ALIAS, GPU_NODES
from tests.cluster.existing.page import DRY_RUN, INSTALL
from tests.waiting import limit

if TYPE_CHECKING:
    from tests.cluster.clusters import Cluster

pytestmark = pytest.mark.timeout(600)

INSTALLED_WITHIN: Final = 75
"""Seconds, on an idle machine of two cores."""


def test_the_page_installs_and_proves_in_time(cluster: Cluster) -> None:
    """The run ends with the proof: every check pod runs where the map says and sees its GPUs."""
    (commands,) = scenario.page().blocks(INSTALL)
    began = time.monotonic()
    scenario.read(commands).succeeded()
    took = time.monotonic() - began
    scenario.measured(f"installed and proved in {took:.0f} s; {INSTALLED_WITHIN} s are allowed on an idle machine")
    assert took <= limit(INSTALLED_WITHIN)


def test_a_second_run_changes_nothing(cluster: Cluster, installed: None) -> None:
    """Neither does a dry run."""
    again = scenario.read(scenario.page().blocks(INSTALL)[0]).succeeded()
    assert sum(again.changed.values()) == 0, again.changed

    before = versions(cluster)
    dry = scenario.read(scenario.page().blocks(DRY_RUN)[0]).succeeded()
    assert sum(dry.changed.values()) == 0, dry.changed
    assert versions(cluster) == before


def test_a_map_is_made_from_the_nodes_that_exist(cluster: Cluster, installed: None) -> None:
    """`make fix-nodes` replaces a map that cannot be fulfilled by one of the GPU nodes, and only reads the cluster."""
    before = versions(cluster)
    scenario.read("make fix-nodes ARGS='-e gpu_scheduling_map=0=nobody:0'").succeeded()

    written = scenario.VALUES.with_name("map.yml")
    made = yaml.safe_load(written.read_text(encoding="utf-8"))["gpu_scheduling_map"]
    written.unlink()
    named = {line.partition("=")[2].partition(":")[0] for line in made.splitlines()}
    assert named
    assert named <= {*GPU_NODES, *ALIAS.values()}
    assert versions(cluster) == before
