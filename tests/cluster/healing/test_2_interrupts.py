"""Runs interrupted while they build images and while they apply the check service."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster.clusters import CHECK, SYSTEM
from tests.cluster.healing import own_engine, runs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.clusters import Cluster

pytestmark = pytest.mark.timeout(runs.LONGEST)

# Seconds. A build takes longer than this, and its request to the engine takes less.
BUILDING: Final = runs.after(4)
REMOVED_NODES: Final = (f"{own_engine.NAME}-worker", f"{own_engine.NAME}-worker4")


def _stored(node: str) -> list[str]:
    """Return the node's images that are ours."""
    names = own_engine.docker("exec", node, "ctr", "--namespace=k8s.io", "images", "list", "--quiet").split()
    return [name for name in names if "/gpu-scheduler" in name]


def test_images_lost_and_a_build_interrupted(cluster: Cluster, healthy: None, tmp_path: Path) -> None:
    """Images that two nodes and the engine have lost are restored, even if their build is interrupted.

    SIGINT comes while the engine builds the scheduler's image, in role images. Running workloads do not change.
    """
    del healthy
    image = cluster.get("deployment", "-n", SYSTEM, "gpu-scheduler")["spec"]["template"]["spec"]["containers"][0][
        "image"
    ]
    for node in REMOVED_NODES:
        own_engine.docker("exec", node, "ctr", "--namespace=k8s.io", "images", "remove", *_stored(node))
        assert _stored(node) == []
    own_engine.docker("rmi", "--force", image)
    own_engine.docker("image", "prune", "--force")
    assert own_engine.docker("images", "--quiet", image) == ""

    runs.interrupt("TASK [images : Build image 1 of 1", BUILDING, tmp_path / "up.log")
    assert own_engine.docker("images", "--quiet", image) == ""
    assert [_stored(node) for node in REMOVED_NODES] == [[], []]

    changed = runs.changed(runs.up())

    assert {"images"} == changed
    assert [len(_stored(node)) for node in REMOVED_NODES] == [2, 2]
    runs.prove(cluster)


def _applied_and_not_ready(cluster: Cluster) -> bool:
    found = cluster.kubectl(
        "get", "statefulset", CHECK, "-o", "jsonpath={.spec.replicas} {.status.readyReplicas}", check=False
    )
    return found.returncode == 0 and found.stdout.split() != ["5", "5"]


def test_check_interrupted(cluster: Cluster, healthy: None, tmp_path: Path) -> None:
    """A run that is interrupted right after it applied the check service is completed by the next one."""
    del healthy
    cluster.kubectl("delete", "statefulset", CHECK, "--cascade=foreground", "--wait")
    assert cluster.kubectl("get", "statefulset", CHECK, check=False).returncode != 0

    task = "TASK [check : Apply rights, StatefulSet and bare pods"
    runs.interrupt(task, partial(_applied_and_not_ready, cluster), tmp_path / "up.log")

    changed = runs.changed(runs.up())

    assert changed <= {"check"}
    runs.prove(cluster)
