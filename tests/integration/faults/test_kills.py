"""kill -9 before and after every kind of call of a cycle: who comes next finds everything, without a hand (F1).

Which kinds there are is not written here: one undisturbed cycle shows them, so that none can be forgotten.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest

from tests.auditor.auditor import Auditor, auditing
from tests.integration.bench import Bench
from tests.integration.command import LEASE, Command, start_scheduler
from tests.integration.faults.acts import WATCH, Call, Fault
from tests.objects import literal, pod
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.faults.proxy import FaultProxy, Seen

QUICK: Final = {"DEBUG_ENDPOINTS": "true", "LEASE_DURATION": "3s", "RENEW_DEADLINE": "2500ms", "RETRY_PERIOD": "400ms"}
Kind = tuple[str, str]
STEP: Final = int(os.environ.get("SWEEP_STEP", "3"))
"""Of the calls of a beginning every third; suite sweeps takes each."""
MAKES_LEASE: Final[Kind] = ("POST", rf"^{LEASE.rpartition('/')[0]}(\?|$)")
_numbers = itertools.count(1)


class Town:
    """One pod that can be placed, one that wants the same GPU, and one whose volume has to be made first."""

    def __init__(self, plane: ControlPlane, name: str) -> None:
        """Whoever leads sees it at once."""
        self.bench = bench = Bench(plane.kube, name)
        bench.node("node1")
        bench.storage("WaitForFirstConsumer")
        bench.claim("data")
        bench.pod("placed-0", "0=node1:0\n", "0")
        bench.pod("waits-0", "0=node1:0\n1=node1:1\n", "0")
        bench.make(pod("stores-0", "0=node1:5\n", literal("5"), claims=("data",)))

    def settles(self) -> None:
        """Wait until everybody has what is theirs: the volume is made where the scheduler said, by a provisioner."""
        bench = self.bench
        eventually("a node was selected", self._selected, seconds=20)
        bench.provision_selected("data")
        bench.wait_bound("stores-0", "node1", seconds=20)
        eventually("one of two is bound", lambda: bench.count_bound() == 2, seconds=20)
        eventually("the other is told", lambda: bench.count_told("GpuHeld") == 1, seconds=20)
        assert bench.count_bound() == 2

    def _selected(self) -> bool:
        claim = self.bench.kube.get(f"{self.bench.claims}/data") or {}
        return "volume.kubernetes.io/selected-node" in claim["metadata"].get("annotations", {})


@pytest.fixture(scope="module")
def calls(plane: ControlPlane, proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory) -> Counter[Kind]:
    """Every kind of call that one undisturbed cycle is made of, and how often."""
    plane.kube.delete(LEASE)
    town = Town(plane, "undisturbed")
    command = start_scheduler(plane, tmp_path_factory.mktemp("undisturbed"), "undisturbed-0", proxy.port, **QUICK)
    try:
        town.settles()
        eventually("its lead was renewed", lambda: proxy.count("PUT", LEASE), seconds=20)
    finally:
        command.process.stop()
        town.bench.clear()
    return Counter(_kinds_of(proxy.seen))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_scheduler_killed_at_any_write_leaves_nothing_half_done(
    sweep: Sweep, calls: Counter[Kind], subtests: pytest.Subtests, *, after: bool
) -> None:
    """Killed before the API server hears of it, or when it has answered: whoever comes next settles it all."""
    for kind in calls:
        if not _begins_with(kind):
            with subtests.test("killed", call=kind):
                sweep.kill_at_work(kind, after=after)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_scheduler_that_dies_at_its_beginning_leaves_nothing_half_done(
    sweep: Sweep, calls: Counter[Kind], *, after: bool
) -> None:
    """It begins and dies, each time a call further; at last one lives, and settles it all."""
    beginning = [kind for kind in calls if _begins_with(kind)]
    sweep.kill_at_start(*beginning[::STEP], after=after)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_scheduler_killed_at_any_call_leaves_nothing_half_done(
    sweep: Sweep, calls: Counter[Kind], subtests: pytest.Subtests, *, after: bool
) -> None:
    """Each call by itself, at the beginning and, where it is a read that a new leader makes again, then too."""
    for kind, times in calls.items():
        for skip in range(min(times, 2 if _begins_with(kind) else 1)):
            with subtests.test("killed", call=kind, skip=skip):
                sweep.kill_at_start(kind, after=after, skip=skip)


def test_the_sweep_has_all_that_a_scheduler_does(calls: Counter[Kind]) -> None:
    """What a cycle cannot do without is in it: were the cycle idle, the sweep would be empty."""
    for verb, path in (
        *((verb, f"/{resource}") for verb in ("GET", WATCH) for resource in WATCHED),
        ("GET", "/leases/gpu-scheduler"),
        ("PUT", "/leases/gpu-scheduler"),
        ("POST", "/binding"),
        ("POST", "/events"),
        ("PATCH", "/status"),
        ("PATCH", "/persistentvolumeclaims/"),
    ):
        assert any(verb == kind[0] and path in kind[1] for kind in calls), (verb, path, calls)
    assert MAKES_LEASE in calls


WATCHED: Final = ("pods", "nodes", "persistentvolumeclaims", "persistentvolumes", "storageclasses", "configmaps")


class Sweep:
    """Kills schedulers one after the other, and lets the next one live."""

    def __init__(self, plane: ControlPlane, proxy: FaultProxy, folder: Path, auditor: Auditor) -> None:
        """Nobody has been killed."""
        self._auditor = auditor
        self._plane = plane
        self._proxy = proxy
        self._folder = folder
        self._number = 0
        self._lives: Command | None = None

    def kill_at_work(self, kind: Kind, *, after: bool) -> None:
        """Let the scheduler that lives die at such a call over a town that is new; the next settles it."""
        lives = self._lives or self._start()
        with self._proxy.breaking(Fault(*kind, Call(lives.kill, after))) as fault:
            town = self._town()
            eventually("it was killed", lambda: fault.struck and not lives.process.alive(), seconds=40)
        self._settle(town)

    def kill_at_start(self, *kinds: Kind, after: bool, skip: int = 0) -> None:
        """Start a scheduler for each kind, which dies at such a call, then one that settles what they left."""
        town = self._town()
        try:
            for kind in kinds:
                # Without it a Lease has to be made.
                self._plane.kube.delete(LEASE)
                self._die(kind, after=after, skip=skip)
        except BaseException:
            # Whatever comes next begins with nothing.
            self.stop()
            town.bench.clear()
            raise
        self._settle(town)
        self.stop()

    def stop(self) -> None:
        """End the one that lives."""
        if self._lives is not None:
            self._lives.process.stop()
        self._lives = None

    def _settle(self, town: Town) -> None:
        self._auditor.follow(self._start())
        try:
            town.settles()
            assert self._auditor.report() == []
        finally:
            town.bench.clear()

    def _die(self, kind: Kind, *, after: bool, skip: int) -> None:
        dies: list[Command] = []

        def kill() -> None:
            dies[0].kill()

        with self._proxy.breaking(Fault(*kind, Call(kill, after), skip=skip)) as fault:
            dies.append(self._start())
            eventually("it was killed", lambda: fault.struck and not dies[0].process.alive(), seconds=40)

    def _start(self) -> Command:
        self.stop()
        self._number += 1
        self._lives = start_scheduler(self._plane, self._folder, f"killed-{self._number}", self._proxy.port, **QUICK)
        return self._lives

    def _town(self) -> Town:
        return Town(self._plane, f"town-{next(_numbers)}")


@pytest.fixture
def sweep(plane: ControlPlane, proxy: FaultProxy, tmp_path: Path) -> Iterator[Sweep]:
    """A sweep's beginning."""
    with auditing(plane, proxy=proxy) as auditor:
        sweep = Sweep(plane, proxy, tmp_path, auditor)
        yield sweep
        sweep.stop()


def _begins_with(kind: Kind) -> bool:
    """Whether it belongs to a scheduler's beginning: its reads, and a Lease where there was none."""
    return kind[0] in {"GET", WATCH} or kind == MAKES_LEASE


def _kinds_of(seen: Iterable[Seen]) -> Iterable[Kind]:
    """Verb and expression of each request, whatever namespace and object it was about."""
    for each in seen:
        path, _, query = each.path.partition("?")
        selector = re.search(r"fieldSelector=[^&]*", query)
        exact = re.sub(r"(?<=/namespaces/)undisturbed/(pods|persistentvolumeclaims)/[^/]+", r"[^/]+/\1/[^/]+", path)
        exact = exact.replace("/namespaces/undisturbed/", "/namespaces/[^/]+/")
        yield each.verb, f"^{exact}" + (rf"\?(.*&)?{re.escape(selector[0])}(&|$)" if selector else r"(\?|$)")
