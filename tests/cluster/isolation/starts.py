"""Starts pods, and tells whether their containers are still those that were started."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.cluster.clusters import TESTS
from tests.cluster.verify.pods import runs
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.cluster.clusters import Cluster, Json


def run(cluster: Cluster, pod: Json) -> str:
    """Create the pod, and wait until it runs. Return its name."""
    name: str = pod["metadata"]["name"]
    cluster.create(pod)
    wait_running(cluster, name)
    return name


def wait_running(cluster: Cluster, name: str) -> None:
    """Wait until the pod runs."""
    eventually(f"{name} to run", partial(is_running, cluster, name), 60)


def is_running(cluster: Cluster, name: str) -> bool:
    """Whether every container of the pod is ready."""
    return runs(cluster.get("pod", "-n", TESTS, name))


def started(cluster: Cluster, name: str) -> list[tuple[str, str]]:
    """Return the container's id and the time of its start, for each container of the pod."""
    statuses = cluster.get("pod", "-n", TESTS, name)["status"]["containerStatuses"]
    return [(each["containerID"], each["state"]["running"]["startedAt"]) for each in statuses]
