"""The scheduler on this host, as docs/sources.md has it: with a kubeconfig, and none in the cluster."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests import source_page
from tests.cluster.clusters import SYSTEM, Cluster
from tests.cluster.usage.reader import Reader, end
from tests.cluster.verify import system
from tests.cluster.verify.pods import ASSIGNED, bound
from tests.waiting import eventually

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

HERE: Final = "tests/cluster/usage/test_outside.py"
COMMANDS: Final = sorted({row.script for rows in source_page.read().values() for row in rows if row.elsewhere == HERE})
"""What the rows that name this file type: one for each level of the log."""


@pytest.fixture
def kubeconfig(cluster: Cluster, tmp_path: Path) -> Path:
    """Return a kubeconfig with the rights of the scheduler's service account."""
    token = cluster.kubectl("create", "token", "gpu-scheduler", "-n", SYSTEM).stdout.strip()
    outside = tmp_path / "outside.config"
    outside.write_text(cluster.kubectl("config", "view", "--minify", "--raw").stdout)
    Cluster(outside).kubectl("config", "set-credentials", "gpu-scheduler", f"--token={token}")
    Cluster(outside).kubectl("config", "set-context", "--current", "--user=gpu-scheduler")
    return outside


@pytest.fixture(scope="module")
def none_inside(cluster: Cluster) -> Iterator[None]:
    """Stop the replicas in the cluster; start them again after the last test."""
    system.wait_healthy(cluster)
    try:
        cluster.kubectl("scale", "deployment", "-n", SYSTEM, "gpu-scheduler", "--replicas=0")
        eventually("no scheduler to be left", lambda: not system.replicas(cluster, system.SCHEDULER), 60, 0.5)
        yield
    finally:
        cluster.kubectl("scale", "deployment", "-n", SYSTEM, "gpu-scheduler", "--replicas=2")
        system.wait_healthy(cluster)


@pytest.fixture(params=COMMANDS)
def outside(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path, kubeconfig: Path, none_inside: None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command of the page on this host, on a port of its own."""
    reader = Reader(cluster, tmp_path)
    script = request.param.replace("FILE", str(kubeconfig))
    process = reader.start(script, tmp_path / "log", HTTP_PORT="0", BIND_ADDRESS="127.0.0.1")
    try:
        yield process
    finally:
        end(process)


@pytest.mark.promise("map-1", "lead-1")
def test_scheduler_outside_the_cluster(
    cluster: Cluster, make_pod: Callable[..., dict[str, Any]], outside: subprocess.Popen[bytes]
) -> None:
    """It places a pod from this host and signs its Binding. Ctrl-C ends it with status 0."""
    cluster.create(make_pod("from-outside-0", "0=node2:9"))
    pod = eventually("the pod to be bound", partial(bound, cluster, "from-outside-0"), 30, 0.2)

    assert pod["spec"]["nodeName"] == "node2"
    signed = pod["metadata"]["annotations"][f"{ASSIGNED}by"]
    assert signed.rpartition("_")[0] == os.uname().nodename.lower()
    assert end(outside) == 0
