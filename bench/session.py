"""Describes the machine, the versions and the commit of a session."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.gated_process import ROOT
from bench.results import Again, Machine, Session, now, read
from tests.integration.programs import program

if TYPE_CHECKING:
    from collections.abc import Collection

COMPARED: Final = frozenset({"W1-limit", "W1", "W2-sustained", "W2"})
"""Parts that share ratios with each other. Each other part is compared only within itself."""


def begun(name: str) -> Session:
    """Return an empty session that begins now, on this machine."""
    return Session(
        name=name,
        began=now(),
        commit=_commit(),
        versions=_versions(),
        machine=_machine(),
        measured=[],
    )


def resumed(path: Path, here: Session, parts: Collection[str]) -> Session:
    """Return the raw session in the file, to which `parts` are to be added.

    ValueError if the file does not exist, if its versions are others, or if another machine measured parts that remain
    and are compared with the new ones: the two figures of a ratio must be from one machine.
    """
    if not path.exists():
        raise ValueError(
            f"cannot measure {', '.join(parts)} alone: {path} is not there, and the raw runs of all other parts must "
            f"be on this machine for the report; measure all of it (example: python -m bench {here.name})"
        )
    found = read(path)
    if found.versions != here.versions:
        raise ValueError(f"cannot add to {path}: versions were others; measure all of it (example: make bench-full)")
    measured = {each.part for each in found.measured}
    left = [each for each in _elsewhere(found, here.machine) if each in measured and each not in parts]
    if left and not COMPARED.isdisjoint(parts):
        together = ",".join(sorted(COMPARED & {*parts, *measured}))
        raise ValueError(
            f"cannot add {', '.join(parts)} to {path}: another machine measured {', '.join(left)}, which it is "
            f"compared with; measure them together (example: {found.name} --only {together})"
        )
    return found


def renew(found: Session, part: str, here: Session) -> None:
    """Remove the part's results from the session, and record when the part was measured again, if it was.

    Results of another machine with which the part would be compared are removed too.
    """
    gone = {part, *(_elsewhere(found, here.machine) if part in COMPARED else ())}
    found.measured[:] = [each for each in found.measured if each.part not in gone]
    if found is not here:
        machine = here.machine if here.machine != found.machine else None
        others = (each for each in found.again if each.part not in gone)
        found.again[:] = [*others, Again(part, here.began, here.commit, machine)]


def _elsewhere(found: Session, machine: Machine) -> list[str]:
    """Return the parts of COMPARED that another machine measured."""
    moved = {each.part: each.machine or found.machine for each in found.again}
    return [part for part in sorted(COMPARED) if moved.get(part, found.machine) != machine]


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(("git", *words), cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()

    # Earlier results do not change what is measured.
    dirty = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/results")
    return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if dirty else "")


def _versions() -> dict[str, str]:
    programs = ("etcd", "kube-apiserver", "kube-scheduler")
    built = {name: program(name).parent.name.removeprefix(f"{name}-") for name in programs}
    libraries = {name: version(name) for name in ("aiohttp", "httptools", "kubernetes", "msgspec", "pycurl", "uvloop")}
    return {"Python": platform.python_version(), **built, **libraries}


def _machine() -> Machine:
    processor = next(
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith(("model name", "CPU implementer"))
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return Machine(processor, os.cpu_count() or 1, memory, platform.release())
