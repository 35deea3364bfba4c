"""O: our scheduler as its role runs it, with the role's own arguments and environment, plus address and credentials.

It is a synced standby while another holds the Lease; the clock starts when that one gives it up. F is its floor: the
same loop, with nothing left to decide, or after a cold start hardly anything to read.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any, Final

from bench.contenders import in_pod, minimal_lists, sampler
from bench.contenders.predecided import foreseen
from bench.costs import Meter
from gpu_scheduler.kube.leader_election import GIVEN_UP
from tests.integration.bench import SYSTEM_NAMESPACE
from tests.integration.command import LEASE, Command
from tests.integration.shipped import rendered, values_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from bench.cluster import ClusterUnderTest
    from bench.cluster_objects import ClusterObjects, MappedPods
    from bench.results import Cost

_HOLDER: Final = "benchmark"
_LEADER: Final = "gpu-scheduler-0"
_STANDBY: Final = "gpu-scheduler-1"


def as_shipped(role: str = "scheduler", name: str = _LEADER) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment of a pod of a role's Deployment, with the role's defaults."""
    (body,) = rendered(role, "deployment", values_of(role))
    (container,) = body["spec"]["template"]["spec"]["containers"]
    # What the pod itself is asked for is the same for every installation: where it runs, and its name.
    told = {"metadata.namespace": SYSTEM_NAMESPACE, "metadata.name": name}
    env = {
        each["name"]: each["value"] if "value" in each else told[each["valueFrom"]["fieldRef"]["fieldPath"]]
        for each in container["env"]
    }
    return container["args"], env


class Ours:
    """One replica."""

    name = "O"
    scheduler = "gpu-scheduler"
    pinned = False
    events = True
    devices = True

    def __init__(self, module: str = "gpu_scheduler", **env: str) -> None:
        """`module` may stand in for the program's own, and `env` goes before the role's: for what a cell looks at."""
        self._module = module
        self._env = env
        self._started: list[Command] = []

    def prepare(self, cluster: ClusterUnderTest, objects: ClusterObjects) -> None:
        """See Contender."""
        del objects
        self._reach(cluster)
        self._kube.create(LEASE.rpartition("/")[0], _lease())
        self.command = self._start(_LEADER)
        self.command.wait_ready()

    def go(self) -> None:
        """See Contender."""
        self._meter = Meter(self.command.process.pid)
        # As who gives it up writes it; anything else is waited out.
        self._kube.patch(LEASE, {"spec": {"holderIdentity": "", "leaseDurationSeconds": GIVEN_UP}})

    def lead(self, cluster: ClusterUnderTest, objects: ClusterObjects) -> None:
        """Prepare it, and return when it leads."""
        self.prepare(cluster, objects)
        self.go()
        eventually("it leads", self.command.leads, seconds=30)

    def cost(self) -> Cost:
        """See Contender."""
        return self._meter.read()

    def stop(self) -> None:
        """See Contender."""
        for command in self._started:
            command.process.stop()

    def _reach(self, cluster: ClusterUnderTest) -> None:
        """Make what it gets to the API server with: what a kubelet gives a pod."""
        plane, account = cluster.plane, cluster.folder / "account"
        self._kube, self._folder = plane.kube, cluster.folder
        account.mkdir(exist_ok=True)
        (account / "token").write_text(plane.service_account_token(SYSTEM_NAMESPACE, "gpu-scheduler"), encoding="utf-8")
        (account / "ca.crt").write_bytes(plane.ca.read_bytes())
        self._house = {
            in_pod.ACCOUNT: str(account),
            in_pod.PROGRAM: self._module,
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(plane.port),
        }

    def _start(self, name: str) -> Command:
        arguments, env = as_shipped(name=name)
        env = {**env, **self._house, **self._env}
        self.began = time.monotonic()
        self._started.append(Command(self._folder, name, arguments, env, in_pod.MODULE))
        return self._started[-1]


class Floor(Ours):
    """F: what the loop costs where decisions cost nothing."""

    name = "F"

    def __init__(self) -> None:
        """See foresight."""
        super().__init__("bench.contenders.predecided")

    def prepare(self, cluster: ClusterUnderTest, objects: ClusterObjects) -> None:
        """See Contender."""
        super().prepare(cluster, objects)
        said = foreseen(objects.pods)
        eventually(f"it says: {said}", lambda: self.command.said(said), seconds=60)


class Sampled(Ours):
    """One that writes into a file where its processor time goes, from the start of the clock on."""

    def __init__(self, path: Path) -> None:
        """See sampled."""
        super().__init__(sampler.MODULE, **{sampler.PATH: str(path)})

    def go(self) -> None:
        """See Contender."""
        self.command.process.send(signal.SIGUSR1)
        super().go()


class Cold(Ours):
    """One that is not there before the clock starts, and finds the Lease free."""

    def prepare(self, cluster: ClusterUnderTest, objects: ClusterObjects) -> None:
        """See Contender."""
        del objects
        self._reach(cluster)

    def go(self) -> None:
        """See Contender; `began` tells when the process was started."""
        self.command = self._start(_LEADER)
        self._meter = Meter(self.command.process.pid)


class ColdFloor(Cold):
    """F of a cold start: what it costs where nothing is read that need not be."""

    name = "F"

    def __init__(self, objects: MappedPods) -> None:
        """The last of the cluster's pods is the one that waits."""
        *_, last = objects.members()
        super().__init__(minimal_lists.MODULE, **{minimal_lists.NODE: objects.place(last)[0]})


class Pair(Ours):
    """A leader that is ended by a signal, and a standby that follows it, whose costs are those that count."""

    def __init__(self, end: signal.Signals, **env: str) -> None:
        """A leader that gets no time to end takes along what it has not told: its last events are nobody's fault."""
        super().__init__(**env)
        self._end = end
        self.events = end is not signal.SIGKILL

    def lead(self, cluster: ClusterUnderTest, objects: ClusterObjects) -> None:
        """Return when the first leads and the second is ready to follow it."""
        super().lead(cluster, objects)
        self.standby = self._start(_STANDBY)
        self.standby.wait_ready()
        self._meter = Meter(self.standby.process.pid)

    def end_leader(self) -> None:
        """Send the signal."""
        self.command.process.send(self._end)

    def faults(self) -> list[str]:
        """What was not as it must be, a sentence each: how the leader ended, and who has led at the end."""
        wrong, expected = [], -self._end if self._end is signal.SIGKILL else 0
        if self.command.process.alive():
            wrong.append("the leader has not ended")
        elif (code := self.command.process.wait()) != expected:
            wrong.append(f"the leader ended with {code} instead of {expected}")
        if not self.standby.process.alive() or not self.standby.leads():
            wrong.append("the standby does not lead")
        return wrong


def _lease() -> dict[str, Any]:
    """Held by somebody who will not come back, for longer than any preparation takes."""
    spec = {"holderIdentity": _HOLDER, "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z"}
    return {"metadata": {"name": LEASE.rpartition("/")[2], "namespace": SYSTEM_NAMESPACE}, "spec": spec}
