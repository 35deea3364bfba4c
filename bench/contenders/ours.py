"""O: our scheduler as its role runs it, with the role's own arguments and environment, plus address and credentials.

Before the clock starts it is a synced standby, because another identity holds the Lease. The clock starts when that
holder releases the Lease. F is a lower bound for O: the same loop, without work for decisions, or after a cold start
almost without objects to parse.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any, Final

from bench.contenders import in_pod, minimal_lists, sampler
from bench.contenders.predecided import predecided_pods
from bench.costs import Meter
from gpu_scheduler.kube.leader_election import RELEASED_DURATION
from tests.integration.command import LEASE, Command
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.integration.role_manifests import rendered, values_of
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
    """Return arguments and environment of a pod of the role's Deployment, with the role's defaults.

    The ports are left out: on this host each process listens on ports of its own.
    """
    container = _container(role)
    # Values that a pod reads from its own fields: its namespace and its name.
    reported = {"metadata.namespace": SYSTEM_NAMESPACE, "metadata.name": name}
    env = {
        each["name"]: each["value"] if "value" in each else reported[each["valueFrom"]["fieldRef"]["fieldPath"]]
        for each in container["env"]
        if not each["name"].endswith("_PORT")
    }
    return container["args"], env


def memory_limit() -> float:
    """Return the memory limit of our scheduler, in MiB, with its role's defaults."""
    return float(_container("scheduler")["resources"]["limits"]["memory"].removesuffix("Mi"))


def _container(role: str) -> Any:
    (body,) = (each for each in rendered(role, "deployment", values_of(role)) if each["kind"] == "Deployment")
    (container,) = body["spec"]["template"]["spec"]["containers"]
    return container


class GpuScheduler:
    """One replica."""

    name = "O"
    scheduler = "gpu-scheduler"
    pinned = False
    events = True
    devices = True

    def __init__(self, module: str = "gpu_scheduler", **env: str) -> None:
        """`module` replaces the program's module; `env` overrides the role's environment."""
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
        self._measure(self.command)
        # As a leader that releases the Lease writes it. A standby would wait until any other Lease expires.
        self._kube.patch(LEASE, {"spec": {"holderIdentity": "", "leaseDurationSeconds": RELEASED_DURATION}})

    def lead(self, cluster: ClusterUnderTest, objects: ClusterObjects) -> None:
        """Prepare it, start it, and return when it decides: a new leader lists once more, which takes its time."""
        self.prepare(cluster, objects)
        self.go()
        eventually("it decides", lambda: self.command.logged("Deciding"), seconds=30)

    def cost(self) -> Cost:
        """See Contender."""
        assert self._measured.alive(), f"it has ended: {self._measured.output()[-2000:]}"
        return self._meter.read()

    def stop(self) -> None:
        """See Contender."""
        for command in self._started:
            command.process.stop()

    def _measure(self, command: Command) -> None:
        self._measured, self._meter = command.process, Meter(command.process.pid)

    def _reach(self, cluster: ClusterUnderTest) -> None:
        """Write what a kubelet gives a pod to reach the API server: the service account and the address."""
        plane, account = cluster.plane, cluster.folder / "account"
        self._kube, self._folder = plane.kube, cluster.folder
        account.mkdir(exist_ok=True)
        (account / "token").write_text(plane.service_account_token(SYSTEM_NAMESPACE, "gpu-scheduler"), encoding="utf-8")
        (account / "ca.crt").write_bytes(plane.ca.read_bytes())
        self._pod_env = {
            in_pod.ACCOUNT: str(account),
            in_pod.PROGRAM: self._module,
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(plane.port),
        }

    def _start(self, name: str) -> Command:
        arguments, env = as_shipped(name=name)
        env = {**env, **self._pod_env, **self._env}
        self.began = time.monotonic()
        self._started.append(Command(self._folder, name, arguments, env, in_pod.MODULE))
        return self._started[-1]


class Predecided(GpuScheduler):
    """F: the costs of the loop without those of decisions."""

    name = "F"

    def __init__(self) -> None:
        """Run the module `predecided`."""
        super().__init__("bench.contenders.predecided")

    def prepare(self, cluster: ClusterUnderTest, objects: ClusterObjects) -> None:
        """See Contender."""
        super().prepare(cluster, objects)
        output = predecided_pods(objects.pods)
        eventually(f"it says: {output}", lambda: self.command.logged(output), seconds=60)


class Sampled(GpuScheduler):
    """Our scheduler, which writes a CPU profile to a file, from the start of the clock on."""

    def __init__(self, path: Path, **env: str) -> None:
        """`path` is the file of the profile."""
        super().__init__(sampler.MODULE, **{sampler.PATH: str(path)}, **env)

    def go(self) -> None:
        """See Contender."""
        self.command.process.send(signal.SIGUSR1)
        super().go()


class ColdStart(GpuScheduler):
    """Our scheduler, started when the clock starts; the Lease is free."""

    def prepare(self, cluster: ClusterUnderTest, objects: ClusterObjects) -> None:
        """See Contender."""
        del objects
        self._reach(cluster)

    def go(self) -> None:
        """See Contender; `began` is when the process was started."""
        self.command = self._start(_LEADER)
        self._measure(self.command)


class MinimalColdStart(ColdStart):
    """F of a cold start: the costs when only the necessary objects are parsed."""

    name = "F"

    def __init__(self, objects: MappedPods) -> None:
        """The last pod of `objects` is the one that waits."""
        *_, last = objects.members()
        super().__init__(minimal_lists.MODULE, **{minimal_lists.NODE: objects.place(last)[0]})


class Pair(GpuScheduler):
    """A leader that a signal ends, and the standby that succeeds it. Costs are those of the standby."""

    def __init__(self, end: signal.Signals, **env: str) -> None:
        """A leader that gets SIGKILL loses its unsent events, so events are not expected then."""
        super().__init__(**env)
        self._end = end
        self.events = end is not signal.SIGKILL

    def lead(self, cluster: ClusterUnderTest, objects: ClusterObjects) -> None:
        """Return when the first leads and the second is a ready standby."""
        super().lead(cluster, objects)
        self.standby = self._start(_STANDBY)
        self.standby.wait_ready()
        self._measure(self.standby)

    def end_leader(self) -> None:
        """Send the signal to the leader."""
        self.command.process.send(self._end)

    def faults(self) -> list[str]:
        """Return the faults, one sentence each: how the leader ended, and which replica leads at the end."""
        wrong, expected = [], -self._end if self._end is signal.SIGKILL else 0
        if self.command.process.alive():
            wrong.append("the leader has not ended")
        elif (code := self.command.process.wait()) != expected:
            wrong.append(f"the leader ended with {code} instead of {expected}")
        if not self.standby.process.alive() or not self.standby.leads():
            wrong.append("the standby does not lead")
        return wrong


def _lease() -> dict[str, Any]:
    """Return a Lease whose holder does not exist. It expires later than any preparation ends."""
    spec = {"holderIdentity": _HOLDER, "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z"}
    return {"metadata": {"name": LEASE.rpartition("/")[2], "namespace": SYSTEM_NAMESPACE}, "spec": spec}
