"""K and K50: kube-scheduler. The pods name their node by affinity, because it does not know single GPUs.

K has no client-side throttle. K50 has the default of 50 requests a second, which limits its rate.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from bench.costs import Meter
from tests.integration.control_plane import ADMIN_TOKEN
from tests.integration.programs import Process, free_port, program

if TYPE_CHECKING:
    from bench.cluster import ClusterUnderTest
    from bench.cluster_objects import ClusterObjects
    from bench.results import Cost

_UNTHROTTLED: Final = 10_000


class KubeScheduler:
    """One kube-scheduler without leader election; it syncs and begins when it is started."""

    scheduler = "kube-scheduler"
    pinned = True
    events = True
    devices = False

    def __init__(self, *, throttled: bool) -> None:
        """`throttled` keeps kube-scheduler's default throttle."""
        self.name = "K50" if throttled else "K"
        self._throttled = throttled
        self._process: Process | None = None

    def prepare(self, cluster: ClusterUnderTest, objects: ClusterObjects) -> None:
        """See Contender."""
        del objects
        self._folder = cluster.folder
        connection: dict[str, Any] = {
            "kubeconfig": str(cluster.plane.kubeconfig(cluster.folder / "kube-scheduler.kubeconfig", ADMIN_TOKEN))
        }
        if not self._throttled:
            connection |= {"qps": _UNTHROTTLED, "burst": _UNTHROTTLED}
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": connection,
            "profiles": [{"schedulerName": self.scheduler}],
        }
        self._config = cluster.folder / "kube-scheduler.json"
        self._config.write_text(json.dumps(config), encoding="utf-8")

    def go(self) -> None:
        """See Contender."""
        command = [
            str(program("kube-scheduler")),
            f"--config={self._config}",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
            f"--cert-dir={self._folder / 'kube-scheduler'}",
        ]
        self._process = Process("kube-scheduler", command, self._folder / "kube-scheduler.log")
        self._meter = Meter(self._process.pid)

    def cost(self) -> Cost:
        """See Contender."""
        return self._meter.read()

    def stop(self) -> None:
        """See Contender."""
        if self._process is not None:
            self._process.stop()
