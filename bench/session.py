"""One run of the benchmark: which cells, in which order, on which machine."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from bench import arrivals, backlog
from bench.contenders.blasting import Limit
from bench.contenders.kube_scheduler import KubeScheduler
from bench.contenders.naive import Naive
from bench.contenders.ours import Ours
from bench.figures import event_rate
from bench.prompted import ROOT
from bench.results import Cell, Machine, Measured, Session
from bench.targets import cells, chosen
from tests.integration.programs import program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.contenders.contender import Contender

NODES: Final = 500
PODS: Final = 5000
FEW: Final = 200
"""Pods for contenders that would take minutes for all."""
CROWD: Final = 10_000
"""Pods that fit nowhere."""


@dataclass(frozen=True, slots=True)
class Job:
    """One cell and how it is measured, given which repetition it is and who hears how far it is."""

    cell: Cell
    measure: Callable[[int, Callable[[str], None]], Measured]


@dataclass(frozen=True, slots=True)
class Plan:
    """Cells that are measured side by side, `repetitions` times each; `then` makes those that need what was found."""

    jobs: tuple[Job, ...]
    repetitions: int
    then: Callable[[Session], Plan] | None = None

    def __iter__(self) -> Iterator[tuple[Job, int]]:
        """In mirrored order: whoever comes first now comes last the next time, so that drift strikes all alike."""
        for repetition in range(1, self.repetitions + 1):
            for job in self.jobs if repetition % 2 else reversed(self.jobs):
                yield job, repetition

    def __len__(self) -> int:
        """How many measurements there will be."""
        return len(self.jobs) * self.repetitions


def quick() -> Plan:
    """W1 with one client of the limit, twice."""
    return Plan((_limit("curl", 32, events=True), _ours(), _limit("curl", 32, events=False), _kube_scheduler()), 2)


def standard() -> Plan:
    """W1 with several of the limit's variants, then arrivals at half of what that limit was."""
    limits = [
        _limit(client, in_flight, events=events)
        for events in (True, False)
        for client, in_flight in (("curl", 32), ("curl", 64), ("go", 32))
    ]
    slow = (_backlog("K50", lambda: KubeScheduler(throttled=True), pods=FEW), _backlog("N", Naive, pods=FEW))
    return Plan((*limits[:3], _ours(), *limits[3:], _kube_scheduler(), *slow), 3, _at_half_of_the_limit)


def _at_half_of_the_limit(found: Session) -> Plan:
    """W2 and W4; none where the limit is not known, as when every measurement of it went wrong."""
    best = chosen(cells(found.measured, "W1", "L"), event_rate, most=True)
    if not best:
        return Plan((), 0)
    rate = round(median(each.events / (each.to_last_event or 1) for each in best) / 2)
    return Plan((_arrivals("W2", rate), _arrivals("W4", rate, CROWD)), 3)


def _backlog(name: str, make: Callable[[], Contender], variant: str = "", pods: int = PODS) -> Job:
    cell = Cell("W1", name, variant, NODES, pods)
    return Job(cell, lambda repetition, tell: backlog.measure(cell, make(), repetition, tell))


def _limit(client: str, in_flight: int, *, events: bool) -> Job:
    name = "L" if events else "L0"
    return _backlog(name, lambda: Limit(client, in_flight, events=events), f"{client}/{in_flight}")


def _ours() -> Job:
    return _backlog("O", Ours)


def _kube_scheduler() -> Job:
    return _backlog("K", lambda: KubeScheduler(throttled=False))


def _arrivals(workload: str, rate: float, crowd: int = 0) -> Job:
    cell = Cell(workload, "O", f"{rate:.0f}/s", NODES, PODS)
    return Job(cell, lambda repetition, tell: arrivals.measure(cell, repetition, tell, rate=rate, crowd=crowd))


def begun(name: str) -> Session:
    """An empty session of here and now."""
    return Session(
        name=name,
        began=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=_commit(),
        versions=_versions(),
        machine=_machine(),
        measured=[],
    )


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(("git", *words), cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()

    dirty = git("status", "--porcelain", "--untracked-files=no")
    return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if dirty else "")


def _versions() -> dict[str, str]:
    programs = ("etcd", "kube-apiserver", "kube-scheduler")
    built = {name: program(name).parent.name.removeprefix(f"{name}-") for name in programs}
    libraries = {name: version(name) for name in ("aiohttp", "kubernetes", "msgspec", "pycurl", "uvloop")}
    return {"Python": platform.python_version(), **built, **libraries}


def _machine() -> Machine:
    processor = next(
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith(("model name", "CPU implementer"))
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return Machine(processor, os.cpu_count() or 1, memory, platform.release())
