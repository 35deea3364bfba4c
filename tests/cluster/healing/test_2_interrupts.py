"""Runs interrupted while they build images and while they put the check service in place."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster.clusters import CHECK, SYSTEM
from tests.cluster.healing import runs, world

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.clusters import Cluster

pytestmark = pytest.mark.timeout(runs.LONGEST)

# A build takes longer, and the request for it is there sooner.
BUILDING: Final = runs.after(4)
LACKING: Final = (f"{world.NAME}-worker", f"{world.NAME}-worker4")


def _stored(node: str) -> list[str]:
    """Return our images that the node holds."""
    names = world.docker("exec", node, "ctr", "--namespace=k8s.io", "images", "list", "--quiet").split()
    return [name for name in names if "/gpu-scheduler" in name]


def test_images_lost_and_a_build_interrupted(cluster: Cluster, healthy: None, tmp_path: Path) -> None:
    """Images that two nodes and the engine have lost are there again, even where their build is interrupted.

    SIGINT comes while the engine builds the scheduler's image, in role images. Workloads that run stay as they are.
    """
    del healthy
    image = cluster.get("deployment", "-n", SYSTEM, "gpu-scheduler")["spec"]["template"]["spec"]["containers"][0][
        "image"
    ]
    for node in LACKING:
        world.docker("exec", node, "ctr", "--namespace=k8s.io", "images", "remove", *_stored(node))
        assert _stored(node) == []
    world.docker("rmi", "--force", image)
    world.docker("image", "prune", "--force")
    assert world.docker("images", "--quiet", image) == ""

    runs.interrupt("TASK [images : Build image 1 of 1", BUILDING, tmp_path / "up.log")
    assert world.docker("images", "--quiet", image) == ""
    assert [_stored(node) for node in LACKING] == [[], []]

    changed = runs.changed(runs.up())

    assert {"images"} == changed
    assert [len(_stored(node)) for node in LACKING] == [2, 2]
    runs.prove(cluster)


def _applied_and_not_ready(cluster: Cluster) -> bool:
    found = cluster.kubectl(
        "get", "statefulset", CHECK, "-o", "jsonpath={.spec.replicas} {.status.readyReplicas}", check=False
    )
    return found.returncode == 0 and found.stdout.split() != ["5", "5"]


def test_check_interrupted(cluster: Cluster, healthy: None, tmp_path: Path) -> None:
    """A run that is interrupted right after the check service was applied is completed by the next one."""
    del healthy
    cluster.kubectl("delete", "statefulset", CHECK, "--cascade=foreground", "--wait")
    assert cluster.kubectl("get", "statefulset", CHECK, check=False).returncode != 0

    task = "TASK [check : Apply rights, StatefulSet and bare pods"
    runs.interrupt(task, partial(_applied_and_not_ready, cluster), tmp_path / "up.log")

    changed = runs.changed(runs.up())

    assert changed <= {"check"}
    runs.prove(cluster)
