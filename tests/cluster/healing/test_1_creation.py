"""Creation: cut short in two places, on top of a cache that is not whole; the last run completes it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster.healing import runs, world

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.clusters import Cluster

pytestmark = pytest.mark.timeout(runs.LONGEST)

PYTHON_IMAGE: Final = "gpu-scheduler/python-base:3.13-trixie"
CONTROL_PLANE: Final = f"{world.NAME}-control-plane"


def _path_exists(path: Path) -> bool:
    return path.exists()


def _control_plane_is_being_set_up() -> bool:
    return bool(
        world.docker("exec", CONTROL_PLANE, "sh", "-c", "test -s /etc/kubernetes/admin.conf && echo yes", check=False)
    )


def _joined() -> int:
    """Count the nodes that the control plane knows, read where no kubeconfig is needed."""
    command = ("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "nodes", "--output=name")
    return len(world.docker("exec", CONTROL_PLANE, *command, check=False).split())


@pytest.mark.promise("up-1", "up-2")
def test_truncated_cache_a_build_and_a_creation_interrupted(cluster: Cluster, tmp_path: Path) -> None:
    """Truncated cache entries are made anew, even where the build of one is interrupted; so is a half-made cluster.

    Damage: the archive of the Python base image and the program kind are cut in half; no image is in the engine, and
    no cluster stands. SIGINT comes while role node_image makes the archive's root file system, and in the next run,
    which completes that, while kind sets up the control plane, in role kind_cluster.
    """
    (archive,) = world.CACHE.glob("images/python-*.tar")
    (kind,) = world.CACHE.glob("bin/kind-*/kind")
    world.damage(archive)
    world.damage(kind)
    assert world.docker("images", "--quiet", PYTHON_IMAGE) == ""
    assert world.containers() == []

    installing = partial(_path_exists, world.CACHE / "roots" / "python" / "var" / "lib" / "dpkg" / "info" / "bash.list")
    runs.interrupt("TASK [node_image : Install Debian by debootstrap", installing, tmp_path / "build.log")
    assert not archive.exists()
    assert world.docker("images", "--quiet", PYTHON_IMAGE) == ""

    creating = "TASK [kind_cluster : Create a cluster of"
    runs.interrupt(creating, _control_plane_is_being_set_up, tmp_path / "creation.log")
    assert world.entries.is_whole(archive)
    assert world.entries.is_whole(kind)
    assert _joined() < 5

    last = runs.up()
    changed = runs.changed(last)

    assert "cannot be healed, so it is made anew: " in last.output
    assert {"kind_cluster", "images", "certificates", "crds", "scheduler", "webhook", "controller", "check"} <= changed
    assert not changed & {"container_engine", "node_image"}
    runs.prove(cluster)
