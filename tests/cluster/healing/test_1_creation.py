"""Creation, interrupted twice, with a damaged cache; the last run completes it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster.healing import own_engine, runs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.clusters import Cluster

pytestmark = pytest.mark.timeout(runs.LONGEST)

PYTHON_IMAGE: Final = "gpu-scheduler/python-base:3.13-trixie"
CONTROL_PLANE: Final = f"{own_engine.NAME}-control-plane"


def _path_exists(path: Path) -> bool:
    return path.exists()


def _control_plane_is_being_set_up() -> bool:
    return bool(
        own_engine.docker(
            "exec", CONTROL_PLANE, "sh", "-c", "test -s /etc/kubernetes/admin.conf && echo yes", check=False
        )
    )


def _joined() -> int:
    """Count the nodes in the cluster, with the control plane's own kubeconfig."""
    command = ("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "nodes", "--output=name")
    return len(own_engine.docker("exec", CONTROL_PLANE, *command, check=False).split())


@pytest.mark.promise("up-1", "up-2")
def test_truncated_cache_a_build_and_a_creation_interrupted(cluster: Cluster, tmp_path: Path) -> None:
    """Truncated cache entries are created again, even if the build of one is interrupted; so is a partial cluster.

    Damage: the archive of the Python base image and the program kind are truncated to their half; the engine has no
    image, and no cluster exists. The first SIGINT comes while role node_image builds the archive's root file system.
    The next run completes the build; it gets SIGINT while kind sets up the control plane, in role kind_cluster.
    """
    # A cache keeps what earlier versions of the project built beside what this one needs: all of it is damaged.
    archives = list(own_engine.CACHE.glob("images/python-*.tar"))
    kinds = list(own_engine.CACHE.glob("bin/kind-*/kind"))
    for entry in (*archives, *kinds):
        own_engine.damage(entry)
    assert own_engine.docker("images", "--quiet", PYTHON_IMAGE) == ""
    assert own_engine.containers() == []

    installing = partial(
        _path_exists, own_engine.CACHE / "roots" / "python" / "var" / "lib" / "dpkg" / "info" / "bash.list"
    )
    runs.interrupt("TASK [node_image : Wait for Debian", installing, tmp_path / "build.log")
    (recipe,) = {path.name.rpartition("-")[0] for path in archives if not path.exists()}
    assert own_engine.docker("images", "--quiet", PYTHON_IMAGE) == ""

    creating = "TASK [kind_cluster : Create a cluster of"
    runs.interrupt(creating, _control_plane_is_being_set_up, tmp_path / "creation.log")
    (archive,) = own_engine.CACHE.glob(f"images/{recipe}-*.tar")
    assert own_engine.entries.is_whole(archive)
    assert sum(map(own_engine.entries.is_whole, kinds)) == 1
    assert _joined() < 5

    last = runs.up()
    changed = runs.changed(last)

    assert "cannot be healed, so it is made anew: " in last.output
    assert {"kind_cluster", "images", "certificates", "crds", "scheduler", "webhook", "controller", "check"} <= changed
    assert not changed & {"container_engine", "node_image"}
    runs.prove(cluster)
