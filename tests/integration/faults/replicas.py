"""Replicas of the scheduler that compete for one lease, each with its own way to the API server, and what a list tells.

A way is a link that can be cut, and behind it a proxy that breaks requests and keeps a log of them.
"""

from __future__ import annotations

import itertools
import signal
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests import objects
from tests.auditor.auditor import auditing
from tests.integration.bench import SYSTEM_NAMESPACE
from tests.integration.command import LEASE, Command
from tests.integration.faults.afar import BINDING
from tests.integration.faults.proxy import FaultProxy
from tests.integration.link import Link
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.bench import Bench
    from tests.integration.control_plane import ControlPlane
    from tests.kube_client import KubeClient
    from tests.objects import Object

CARDS: Final = 8
"""GPUs of each node here."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds: how long the lease lasts, its holder's window for binds, and how often everybody looks."""

    lease: float
    window: float
    retry: float

    def __str__(self) -> str:
        """As people say it."""
        return f"{self.lease:g}/{self.window:g}/{self.retry:g} s"

    @property
    def env(self) -> dict[str, str]:
        """The variables that say so."""
        return {
            "LEASE_DURATION": f"{self.lease:g}s",
            "RENEW_DEADLINE": f"{self.window:g}s",
            "RETRY_PERIOD": f"{self.retry:g}s",
        }


QUICK: Final = Times(6, 4, 0.8)
"""Quick enough to be waited out, and slow enough that a busy machine takes the lead from nobody."""
SHIPPED: Final = Times(15, 10, 2)
QUICK_AND_SHIPPED: Final = [
    pytest.param(QUICK, id="quick"),
    pytest.param(SHIPPED, id="shipped", marks=pytest.mark.long),
]


@dataclass(frozen=True, slots=True)
class Replica:
    """One process with its way."""

    command: Command
    proxy: FaultProxy
    link: Link

    @property
    def name(self) -> str:
        """What its pod would be called."""
        return self.command.process.name

    def binds(self, since: float = 0.0) -> list[float]:
        """When it sent a bind, on the monotonic clock."""
        return [at for at in self.proxy.times("POST", BINDING) if at >= since]

    def requests(self, since: float, until: float) -> int:
        """How much it asked for in that time."""
        return sum(since <= each.at < until for each in tuple(self.proxy.seen))

    def sleep(self) -> float:
        """Stop it where it is, and say when."""
        self.command.process.send(signal.SIGSTOP)
        return time.monotonic()

    def wake(self) -> float:
        """Let it go on, and say when."""
        woken = time.monotonic()
        self.command.process.send(signal.SIGCONT)
        return woken

    def end(self) -> None:
        """Stop it in good order; what sleeps is woken, as it would not hear."""
        self.command.process.send(signal.SIGCONT)
        self.command.process.stop()
        self.link.close()
        self.proxy.close()


class Crew:
    """The replicas of one scheduler, in the order in which they came; `broken` are the invariants that cannot hold."""

    def __init__(self, plane: ControlPlane, folder: Path, times: Times, env: dict[str, str]) -> None:
        """Nobody is there before `join`."""
        self._plane = plane
        self._folder = folder
        self._numbers = itertools.count()
        self._settings = {"KUBERNETES_NAMESPACE": SYSTEM_NAMESPACE, **times.env, **env}
        # One for all: who joins while the API server is away can't ask for his own.
        self._token = plane.service_account_token(SYSTEM_NAMESPACE, "gpu-scheduler")
        self.members: list[Replica] = []
        self.broken: set[str] = set()

    def join(self, module: str = "gpu_scheduler", **env: str) -> Replica:
        """Start one more; `module` may stand in for the program's own."""
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
        """The name of who holds the lease, as the API server has it; empty when nobody does."""
        return holder_of(self._plane.kube.get(LEASE) or {}).partition("_")[0]

    def wait_for(self, replica: Replica, seconds: float) -> float:
        """Wait until it holds the lease, and say when that was seen."""
        eventually(f"{replica.name} holds the lease", lambda: self.holder() == replica.name, seconds, pause=0.02)
        return time.monotonic()

    def leader(self, but: Replica | None = None) -> Replica | None:
        """Who runs and holds the lease, unless it is that one."""
        holder = self.holder()
        return next((each for each in self.members if each.name == holder and each is not but), None)

    def replace_the_dead(self) -> None:
        """Start one anew for each that has ended."""
        for replica in [each for each in self.members if not each.command.process.alive()]:
            self.members.remove(replica)
            replica.end()
            self.join()

    def end(self) -> None:
        """End all, who leads last; and leave no lease that the next test would have to wait out."""
        holder = self.holder()
        for replica in sorted(self.members, key=lambda each: each.name == holder):
            replica.end()
        self._plane.kube.delete(LEASE)


@contextmanager
def crew(
    plane: ControlPlane,
    folder: Path,
    times: Times = QUICK,
    *,
    first: str = "gpu_scheduler",
    envs: tuple[dict[str, str], dict[str, str]] = ({}, {}),
    **env: str,
) -> Iterator[Crew]:
    """A leader, `members[0]`, and a standby, `members[1]`, both ready; an auditor watches what they do to pods.

    `first` is the module that the leader runs; `envs` are variables of each, and `env` those of both.
    """
    crew = Crew(plane, folder, times, env)
    try:
        leader = crew.join(first, **envs[0])
        leader.command.wait_ready()
        crew.wait_for(leader, 10)
        crew.join(**envs[1]).command.wait_ready()
        with auditing(plane) as auditor:
            yield crew
            found = auditor.report()
            assert {each.invariant for each in found} == crew.broken, found
    finally:
        crew.end()


def holder_of(lease: Object) -> str:
    """The lease holder's identity; empty when there is none."""
    return str(lease.get("spec", {}).get("holderIdentity") or "")


def racks(bench: Bench, *names: str) -> None:
    """Make nodes with eight cards each."""
    for name in names:
        bench.node(name, annotations=objects.inventory(*(objects.card(index) for index in range(CARDS))))


def wants_a_card(bench: Bench, name: str, node: str, card: int) -> None:
    """Make a pod that wants this card and shares it with nobody: the second line makes its map its own."""
    bench.pod(name, f"0={node}:{card}\n1={name}:0\n", str(card))


def wants_any(bench: Bench, name: str, **annotations: str) -> None:
    """Make a pod that wants one card, whichever; an underscore in an annotation's name is a hyphen."""
    asked = {f"agentaflow.gpu/{key.replace('_', '-')}": text for key, text in {"count": "1", **annotations}.items()}
    bench.make(objects.pod(name, None, objects.reading(), annotations=asked))


@dataclass(frozen=True, slots=True)
class Held:
    """A bound pod, as a list shows it: which cards of which node it was given, by whom, and when."""

    pod: str
    node: str
    cards: tuple[str, ...]
    by: str
    at: str


def held(kube: KubeClient) -> list[Held]:
    """All living pods that somebody bound, by the time of their binding; none of the scheduler's code reads this."""
    status, answer = kube.call("GET", "/api/v1/pods")
    assert status == 200, answer
    return sorted((_held(pod) for pod in answer["items"] if _lives(pod)), key=lambda each: each.at)


def held_twice(kube: KubeClient) -> list[tuple[str, str]]:
    """The cards that two living pods have."""
    given = [(each.node, card) for each in held(kube) for card in each.cards]
    return [one for one in sorted(set(given)) if given.count(one) > 1]


def reigns(kube: KubeClient) -> list[str]:
    """Who bound, in the order of the bindings, each reign once: a name that stands twice led beside another."""
    binders = [each.by for each in held(kube)]
    return [by for number, by in enumerate(binders) if number == 0 or binders[number - 1] != by]


def _lives(pod: Any) -> bool:
    return bool(pod["spec"].get("nodeName")) and pod["status"].get("phase") not in {"Succeeded", "Failed"}


def _held(pod: Any) -> Held:
    given = pod["metadata"]["annotations"]
    cards = tuple(card for card in given["agentaflow.gpu/assigned-devices"].split(",") if card)
    by, at = given["agentaflow.gpu/assigned-by"], given["agentaflow.gpu/assigned-at"]
    return Held(pod["metadata"]["name"], pod["spec"]["nodeName"], cards, by, at)


def note(figure: str) -> None:
    """Print a figure that is wanted."""
    print(figure)  # noqa: T201 - see above
