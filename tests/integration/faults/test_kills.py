"""SIGKILL before and after each kind of call of a cycle: the next process continues without manual help (F1).

The kinds of calls are recorded from one cycle without faults, so that none can be missing here.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest

from tests.auditor.auditor import Auditor, auditing
from tests.integration.command import LEASE, Command, give_up_lease, start_scheduler
from tests.integration.faults.proxy_faults import WATCH, Call, Fault
from tests.integration.namespace import Namespace
from tests.objects import literal, pod
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.faults.proxy import FaultProxy, Seen

Kind = tuple[str, str]
STEP: Final = int(os.environ.get("SWEEP_STEP", "5"))
"""Take every fifth call of a start, and every other write in each test; suite sweeps takes every call."""
BINDS: Final = "/binding"
MAKES_LEASE: Final[Kind] = ("POST", rf"^{LEASE.rpartition('/')[0]}(\?|$)")
_numbers = itertools.count(1)


class Recording:
    """Two pods that ask for the same GPU, and one whose volume must be provisioned first."""

    def __init__(self, plane: ControlPlane, name: str) -> None:
        """Create the namespace `name` with its pods, the claim and node1."""
        self.namespace = namespace = Namespace(plane.kube, name)
        namespace.node("node1")
        namespace.storage("WaitForFirstConsumer")
        namespace.claim("data")
        namespace.pod("placed-0", "0=node1:0\n", "0")
        namespace.pod("waits-0", "0=node1:0\n1=node1:1\n", "0")
        namespace.make(pod("stores-0", "0=node1:5\n", literal("5"), claims=("data",)))

    def settles(self) -> None:
        """Provision the volume on the selected node. Wait until two pods are bound and the third reports GpuHeld."""
        namespace = self.namespace
        eventually("a node was selected", self._selected, seconds=20)
        namespace.provision_selected("data")
        namespace.wait_bound("stores-0", "node1", seconds=20)
        eventually("one of two is bound", lambda: namespace.count_bound() == 2, seconds=20)
        eventually("the other reports GpuHeld", lambda: namespace.count_waiting("GpuHeld") == 1, seconds=20)
        assert namespace.count_bound() == 2

    def _selected(self) -> bool:
        claim = self.namespace.kube.get(f"{self.namespace.claims}/data") or {}
        return "volume.kubernetes.io/selected-node" in claim["metadata"].get("annotations", {})


@pytest.fixture(scope="module")
def calls(plane: ControlPlane, proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory) -> Counter[Kind]:
    """Every kind of call of one cycle without faults, and its count."""
    plane.kube.delete(LEASE)
    populated = Recording(plane, "undisturbed")
    command = start_scheduler(plane, tmp_path_factory.mktemp("undisturbed"), "undisturbed-0", proxy.port)
    try:
        populated.settles()
        eventually("its lead was renewed", lambda: proxy.count("PUT", LEASE), seconds=20)
    finally:
        command.process.stop()
        populated.namespace.clear()
    return Counter(_kinds_of(proxy.seen))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_scheduler_killed_at_any_write_leaves_nothing_half_done(
    sweep: Sweep, calls: Counter[Kind], subtests: pytest.Subtests, *, after: bool
) -> None:
    """The scheduler is killed before the API server gets the call, or after it has answered. The next one finishes.

    Each write is there in one of the two tests, the bind in both; in suite sweeps each is in both.
    """
    for number, kind in enumerate(each for each in calls if not _begins_with(each)):
        if STEP == 1 or number % 2 == after or BINDS in kind[1]:
            with subtests.test("killed", call=kind):
                sweep.kill_at_work(kind, after=after)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_scheduler_killed_during_its_start_leaves_nothing_half_done(
    sweep: Sweep, calls: Counter[Kind], *, after: bool
) -> None:
    """Schedulers are killed during their start, each at a later call. The last one is not killed and finishes."""
    beginning = [kind for kind in calls if _begins_with(kind)]
    sweep.kill_at_start(*beginning[::STEP], after=after)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_scheduler_killed_at_any_call_leaves_nothing_half_done(
    sweep: Sweep, calls: Counter[Kind], subtests: pytest.Subtests, *, after: bool
) -> None:
    """Kill at each call alone. Kill at a read twice: at the start, and when a new leader reads again."""
    for kind, times in calls.items():
        for skip in range(min(times, 2 if _begins_with(kind) else 1)):
            with subtests.test("killed", call=kind, skip=skip):
                sweep.kill_at_start(kind, after=after, skip=skip)


def test_the_sweep_has_every_call_of_a_scheduler(calls: Counter[Kind]) -> None:
    """The recorded cycle contains all necessary calls. Otherwise the sweep would kill at none of them."""
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
    """Kills schedulers one after the other and checks that the next one finishes their work."""

    def __init__(self, plane: ControlPlane, proxy: FaultProxy, folder: Path, auditor: Auditor) -> None:
        """Start no scheduler yet."""
        self._auditor = auditor
        self._plane = plane
        self._proxy = proxy
        self._folder = folder
        self._number = 0
        self._lives: Command | None = None

    def kill_at_work(self, kind: Kind, *, after: bool) -> None:
        """Kill the running scheduler at this call, for a new namespace of pods; the next scheduler finishes."""
        lives = self._lives or self._start()
        with self._proxy.breaking(Fault(*kind, Call(lives.kill, after))) as fault:
            populated = self._record_cluster()
            eventually("it was killed", lambda: fault.struck and not lives.process.alive(), seconds=40)
        self._settle(populated)

    def kill_at_start(self, *kinds: Kind, after: bool, skip: int = 0) -> None:
        """Start and kill a scheduler for each kind of call, then start one that finishes."""
        populated = self._record_cluster()
        try:
            for kind in kinds:
                # Without a Lease, the scheduler must create one.
                self._plane.kube.delete(LEASE)
                self._die(kind, after=after, skip=skip)
        except BaseException:
            # Clean up for the next sweep.
            self.stop()
            populated.namespace.clear()
            raise
        self._settle(populated)
        self.stop()

    def stop(self) -> None:
        """End the running scheduler."""
        if self._lives is not None:
            self._lives.process.stop()
        self._lives = None

    def _settle(self, populated: Recording) -> None:
        self._auditor.follow(self._start())
        try:
            populated.settles()
            assert self._auditor.report() == []
        finally:
            populated.namespace.clear()

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
        name = f"killed-{self._number}"
        if self._plane.kube.get(LEASE) is not None:
            give_up_lease(self._plane.kube)
        self._lives = start_scheduler(self._plane, self._folder, name, self._proxy.port, DEBUG_ENDPOINTS="true")
        return self._lives

    def _record_cluster(self) -> Recording:
        return Recording(self._plane, f"sweep-{next(_numbers)}")


@pytest.fixture
def sweep(plane: ControlPlane, proxy: FaultProxy, tmp_path: Path) -> Iterator[Sweep]:
    """A sweep with an auditor; its last scheduler is stopped at the end."""
    with auditing(plane, proxy=proxy) as auditor:
        sweep = Sweep(plane, proxy, tmp_path, auditor)
        yield sweep
        sweep.stop()


def _begins_with(kind: Kind) -> bool:
    """Return whether a scheduler makes this call during its start.

    It is a read, a question about its rights, or the creation of its Lease.
    """
    return kind[0] in {"GET", WATCH} or "reviews" in kind[1] or kind == MAKES_LEASE


def _kinds_of(seen: Iterable[Seen]) -> Iterable[Kind]:
    """Yield the verb and a path expression of each request, which match any namespace and object name."""
    for each in seen:
        path, _, query = each.path.partition("?")
        selector = re.search(r"fieldSelector=[^&]*", query)
        exact = re.sub(r"(?<=/namespaces/)undisturbed/(pods|persistentvolumeclaims)/[^/]+", r"[^/]+/\1/[^/]+", path)
        exact = exact.replace("/namespaces/undisturbed/", "/namespaces/[^/]+/")
        yield each.verb, f"^{exact}" + (rf"\?(.*&)?{re.escape(selector[0])}(&|$)" if selector else r"(\?|$)")
