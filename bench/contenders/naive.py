"""N: a plain Python scheduler, started and stopped."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bench.contenders import naive_scheduler
from bench.costs import Meter
from tests.integration.control_plane import ADMIN_TOKEN
from tests.integration.programs import Process

if TYPE_CHECKING:
    from bench.cluster import ClusterUnderTest
    from bench.cluster_objects import ClusterObjects
    from bench.results import Cost


class Naive:
    """A plain Python scheduler; it begins when it is started."""

    name = "N"
    scheduler = "naive-scheduler"
    pinned = False
    events = False
    devices = False

    def __init__(self) -> None:
        """Start nothing yet."""
        self._process: Process | None = None

    def prepare(self, cluster: ClusterUnderTest, objects: ClusterObjects) -> None:
        """See Contender."""
        del objects
        self._log = cluster.folder / "naive.log"
        self._kubeconfig = cluster.plane.kubeconfig(cluster.folder / "naive.kubeconfig", ADMIN_TOKEN)

    def go(self) -> None:
        """See Contender."""
        command = [sys.executable, str(naive_scheduler.__file__), str(self._kubeconfig), self.scheduler]
        self._process = Process("naive", command, self._log)
        self._meter = Meter(self._process.pid)

    def cost(self) -> Cost:
        """See Contender."""
        return self._meter.read()

    def stop(self) -> None:
        """See Contender."""
        if self._process is not None:
            self._process.stop()
