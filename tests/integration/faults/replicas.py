"""Runs replicas of the scheduler that compete for one Lease, each behind its own link and proxy.

A link can be cut. The proxy behind it injects faults into requests and logs them.
"""

from __future__ import annotations

import itertools
import signal
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests import objects
from tests.auditor.auditor import auditing
from tests.integration.command import LEASE, Command
from tests.integration.faults.proxied_replica import BINDING
from tests.integration.faults.proxied_replica import LEASE as LEASE_CALL
from tests.integration.faults.proxy import FaultProxy
from tests.integration.faults.proxy_faults import Fault, Hang
from tests.integration.link import Link
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace
    from tests.kube_client import KubeClient
    from tests.objects import Object

RENEWALS: Final = 3
"""Renewals after which a standby has had its occasion to take a Lease wrongly."""
DEVICES: Final = 8
"""GPUs of each node here."""


@dataclass(frozen=True, slots=True)
class Times:
    """Times of leader election in seconds: lease duration, renew deadline, retry period."""

    lease: float
    window: float
    retry: float


SHIPPED: Final = Times(15, 10, 2)
"""Shorter ones would make tests that fail on a busy machine: a leader that pauses too long loses its Lease."""


@dataclass(frozen=True, slots=True)
class Replica:
    """A process of the scheduler, its link and its proxy."""

    command: Command
    proxy: FaultProxy
    link: Link

    @property
    def name(self) -> str:
        """The name of the process, by which its identity in the Lease begins."""
        return self.command.process.name

    def binds(self, since: float = 0.0) -> list[float]:
        """Return when the replica sent binds, in seconds of the monotonic clock."""
        return [at for at in self.proxy.times("POST", BINDING) if at >= since]

    def wait_calls(self, verb: str, more: int) -> None:
        """Wait until the replica has sent so many more calls of this verb about the Lease."""
        enough = self.proxy.count(verb, LEASE_CALL) + more
        eventually(f"{self.name}: {verb} Lease", lambda: self.proxy.count(verb, LEASE_CALL) >= enough, seconds=30)

    def requests(self, since: float, until: float) -> int:
        """Return the number of its requests between these two times of the monotonic clock."""
        return sum(since <= each.at < until for each in tuple(self.proxy.seen))

    def sleep(self) -> float:
        """Stop the process with SIGSTOP; return the time of the monotonic clock."""
        self.command.process.send(signal.SIGSTOP)
        return time.monotonic()

    def resume(self) -> float:
        """Continue the process with SIGCONT; return the time of the monotonic clock."""
        resumed = time.monotonic()
        self.command.process.send(signal.SIGCONT)
        return resumed

    def end(self) -> None:
        """End the process by SIGTERM. Send SIGCONT first, because a stopped process handles no signal."""
        self.command.process.send(signal.SIGCONT)
        self.command.process.stop()
        self.link.close()
        self.proxy.close()


class Replicas:
    """The replicas of one scheduler in the order of their start; `broken` are the invariants that a test violates."""

    def __init__(self, plane: ControlPlane, folder: Path, env: dict[str, str]) -> None:
        """Start no replica: `join` does."""
        self._plane = plane
        self._folder = folder
        self._numbers = itertools.count()
        self._settings = {"KUBERNETES_NAMESPACE": SYSTEM_NAMESPACE, **env}
        # One token for all replicas: a replica that starts while the API server is down cannot get one of its own.
        self._token = plane.service_account_token(SYSTEM_NAMESPACE, "gpu-scheduler")
        self.members: list[Replica] = []
        self.broken: set[str] = set()

    def join(self, module: str = "gpu_scheduler", **env: str) -> Replica:
        """Start one more replica; `module` may replace the program's own module."""
        name = f"replica-{next(self._numbers)}"
        folder = self._folder / name
        folder.mkdir()
        proxy = FaultProxy(self._plane, folder)
        link = Link(proxy.port)
        kubeconfig = self._plane.kubeconfig(folder / "kubeconfig", self._token, link.port)
        arguments = ["run", "--kubeconfig", str(kubeconfig)]
        command = Command(folder, name, arguments, {**self._settings, **env}, module)
        replica = Replica(command, proxy, link)
        self.members.append(replica)
        return replica

    def holder(self) -> str:
        """Return the name of the replica that holds the Lease in the API server; empty if the Lease has no holder."""
        return holder_of(self._plane.kube.get(LEASE) or {}).partition("_")[0]

    def wait_for(self, replica: Replica) -> float:
        """Wait until the replica holds the Lease; return the time of the monotonic clock."""
        eventually(f"{replica.name} holds the lease", lambda: self.holder() == replica.name, 60, pause=0.02)
        return time.monotonic()

    def wait_watched(self, leader: Replica, standby: Replica) -> None:
        """Wait until the leader has renewed its Lease some times, and the standby has read it after each.

        A standby that would take it wrongly had its occasion then.
        """
        for _ in range(RENEWALS):
            leader.wait_calls("PUT", 1)
            # The first of two may be on its way already.
            standby.wait_calls("GET", 2)

    def leader(self, but: Replica | None = None) -> Replica | None:
        """Return the running replica that holds the Lease; None if there is none or if it is `but`."""
        holder = self.holder()
        return next((each for each in self.members if each.name == holder and each is not but), None)

    def replace_the_dead(self) -> None:
        """Start a new replica for each one that has ended."""
        for replica in [each for each in self.members if not each.command.process.alive()]:
            self.members.remove(replica)
            replica.end()
            self.join()

    def end(self) -> None:
        """End all replicas, the leader last. Delete the Lease, so that the next test need not wait for its end."""
        holder = self.holder()
        for replica in sorted(self.members, key=lambda each: each.name == holder):
            replica.end()
        self._plane.kube.delete(LEASE)


@contextmanager
def run_replicas(
    plane: ControlPlane,
    folder: Path,
    *,
    first: str = "gpu_scheduler",
    envs: tuple[dict[str, str], dict[str, str]] = ({}, {}),
    **env: str,
) -> Iterator[Replicas]:
    """Run a leader, `members[0]`, and a standby, `members[1]`, both ready, with an auditor beside them.

    `first` is the module that the leader runs. `envs` are the environment variables of each, `env` those of both.
    AssertionError at the end if the auditor found other violations than `Replicas.broken`.
    """
    replicas = Replicas(plane, folder, env)
    try:
        leader = replicas.join(first, **envs[0])
        leader.command.wait_ready()
        replicas.wait_for(leader)
        replicas.join(**envs[1]).command.wait_ready()
        with auditing(plane) as auditor:
            yield replicas
            found = auditor.report()
            assert {each.invariant for each in found} == replicas.broken, found
    finally:
        replicas.end()


def holder_of(lease: Object) -> str:
    """Return the identity of the Lease's holder; empty if it has none."""
    return str(lease.get("spec", {}).get("holderIdentity") or "")


def create_nodes(namespace: Namespace, *names: str) -> None:
    """Create nodes with eight devices each."""
    for name in names:
        namespace.node(name, annotations=objects.inventory(*(objects.device(index) for index in range(DEVICES))))


@contextmanager
def unrenewed(leader: Replica, standby: Replica) -> Iterator[float]:
    """Lose the renewals of a leader that binds, until it has ended and the standby binds. Yield when they began."""
    eventually("it binds", leader.binds)
    with leader.proxy.breaking(Fault("PUT", LEASE, Hang(delivered=False), times=None)) as fault:
        eventually("a renewal is lost", lambda: fault.struck)
        began = time.monotonic()
        assert leader.command.process.wait(60) == 1
        eventually("the other one binds", standby.binds, 60)
        yield began


def create_pod_for_device(namespace: Namespace, name: str, node: str, device: int) -> None:
    """Create a pod that asks for this device and shares it with no pod: the second line makes its map unique."""
    namespace.pod(name, f"0={node}:{device}\n1={name}:0\n", str(device))


def bind_pod(namespace: Namespace, name: str, node: str, device: int, seconds: float = 10.0) -> None:
    """Create such a pod, and wait until it is bound."""
    create_pod_for_device(namespace, name, node, device)
    namespace.wait_bound(name, node, seconds)


def create_pod_for_any(namespace: Namespace, name: str, **annotations: str) -> None:
    """Create a pod that asks for any one device; an underscore in an annotation's name stands for a hyphen."""
    asked = {f"agentaflow.gpu/{key.replace('_', '-')}": text for key, text in {"count": "1", **annotations}.items()}
    namespace.make(objects.pod(name, None, objects.reading(), annotations=asked))


@dataclass(frozen=True, slots=True)
class Held:
    """A bound pod of a list: its devices and node, the replica that bound it, and the time of the bind."""

    pod: str
    node: str
    devices: tuple[str, ...]
    by: str
    at: str


def held(kube: KubeClient) -> list[Held]:
    """Return the bound, unfinished pods by the time of their bind. This shares no code with the scheduler."""
    status, answer = kube.call("GET", "/api/v1/pods")
    assert status == 200, answer
    return sorted((_held(pod) for pod in answer["items"] if _lives(pod)), key=lambda each: each.at)


def held_twice(kube: KubeClient) -> list[tuple[str, str]]:
    """Return the (node, device) pairs that several pods hold."""
    given = [(each.node, device) for each in held(kube) for device in each.devices]
    return [one for one in sorted(set(given)) if given.count(one) > 1]


def binders_in_order(kube: KubeClient) -> list[str]:
    """Return the replicas that bound pods, in order of the binds, neighbouring duplicates merged.

    A replica that occurs twice has bound before and after another one.
    """
    binders = [each.by for each in held(kube)]
    return [by for number, by in enumerate(binders) if number == 0 or binders[number - 1] != by]


def _lives(pod: Any) -> bool:
    return bool(pod["spec"].get("nodeName")) and pod["status"].get("phase") not in {"Succeeded", "Failed"}


def _held(pod: Any) -> Held:
    given = pod["metadata"]["annotations"]
    devices = tuple(device for device in given["agentaflow.gpu/assigned-devices"].split(",") if device)
    by, at = given["agentaflow.gpu/assigned-by"], given["agentaflow.gpu/assigned-at"]
    return Held(pod["metadata"]["name"], pod["spec"]["nodeName"], devices, by, at)


def note(figure: str) -> None:
    """Print a figure: the test run shows it (`pytest -rP`)."""
    print(figure)  # noqa: T201 - see above
