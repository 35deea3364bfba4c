"""Fixtures of the installations without the play."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.charts.installing import Images, images_of
from tests.cluster.clusters import run_playbook

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that `make manifests` writes."""
    folder = tmp_path_factory.mktemp("manifests")
    done = run_playbook("playbooks/manifests.yml", "-e", f"manifests_dir={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="session")
def images(manifests: Path) -> Images:
    """Return the images that the nodes have."""
    return images_of(manifests)
