"""K, K50 and KC: kube-scheduler. The pods name their node by affinity, because it does not know single GPUs.

K has no client-side throttle. K50 has the default of 50 requests a second, which limits its rate. KC is K while a
client creates the ResourceClaims of the pods.
"""

from __future__ import annotations

import http.client
import json
import ssl
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bench.contenders.load_generator import LoadGenerator
from bench.contenders.prepared_requests import PreparedPod, Request, write
from bench.costs import Meter
from tests.integration.control_plane import ADMIN_TOKEN
from tests.integration.programs import Process, program
from tests.ports import free_port
from tests.waiting import eventually

if TYPE_CHECKING:
    from bench.claimed_pods import ClaimedPods
    from bench.cluster import ClusterUnderTest
    from bench.cluster_objects import ClusterObjects
    from bench.results import Cost

_UNTHROTTLED: Final = 10_000
_CREATES_AT_ONCE: Final = 32
"""Requests in flight while a client creates claims."""
_GATED: Final = 'scheduler_pending_pods{queue="gated"} '


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
        self._start()

    def cost(self) -> Cost:
        """See Contender."""
        return self._meter.read()

    def stop(self) -> None:
        """See Contender."""
        if self._process is not None:
            self._process.stop()

    def _start(self) -> None:
        self._port = free_port()
        command = [
            str(program("kube-scheduler")),
            f"--config={self._config}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={self._folder / 'kube-scheduler'}",
            "--authorization-always-allow-paths=/metrics",
        ]
        self._process = Process("kube-scheduler", command, self._folder / "kube-scheduler.log")
        self._meter = Meter(self._process.pid)


class KubeSchedulerWithClaims(KubeScheduler):
    """KC: it is synced when the clock starts, and its pods wait for their claims, which a client creates then.

    So wait the pods of a ResourceClaimTemplate, until kube-controller-manager has created their claims.
    """

    def __init__(self, objects: ClaimedPods) -> None:
        """`objects` has the claims."""
        super().__init__(throttled=False)
        self.name = "KC"
        self._objects = objects
        self._creator: LoadGenerator | None = None

    def prepare(self, cluster: ClusterUnderTest, objects: ClusterObjects) -> None:
        """See Contender."""
        super().prepare(cluster, objects)
        path = cluster.folder / "claims.jsonl"
        claims = (
            PreparedPod(Request(path, msgspec.json.encode(body).decode()), None)
            for path, body in self._objects.claim_requests()
        )
        write(path, cluster.header(ADMIN_TOKEN, _CREATES_AT_ONCE), claims)
        self._start()
        eventually("all pods wait for their claims", lambda: self._gated() == objects.pods, seconds=60)
        self._creator = LoadGenerator("curl", path, cluster.folder / "claims.log")
        self._creator.wait_ready()

    def go(self) -> None:
        """See Contender."""
        assert self._creator is not None
        assert self._process is not None
        self._meter = Meter(self._process.pid)
        self._creator.go()

    def stop(self) -> None:
        """See Contender."""
        super().stop()
        if self._creator is not None:
            self._creator.stop()

    def _gated(self) -> int:
        """Return how many pods kube-scheduler does not try, because their claims do not exist."""
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # It has signed its certificate itself.
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        text = ""
        with suppress(OSError), closing(http.client.HTTPSConnection("127.0.0.1", self._port, context=tls)) as metrics:
            metrics.request("GET", "/metrics")
            text = metrics.getresponse().read().decode()
        return next((int(float(line[len(_GATED) :])) for line in text.splitlines() if line.startswith(_GATED)), -1)
