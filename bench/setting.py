"""Where and with what a session is measured."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from bench.prompted import ROOT
from bench.results import Again, Machine, Session, now, read
from tests.integration.programs import program


def begun(name: str) -> Session:
    """An empty session of here and now."""
    return Session(
        name=name,
        began=now(),
        commit=_commit(),
        versions=_versions(),
        machine=_machine(),
        measured=[],
    )


def resumed(path: Path, here: Session) -> Session:
    """The session that the file holds; that of here and now where there is none.

    ValueError where it is of another machine or of other versions: ratios are within one place.
    """
    if not path.exists():
        return here
    found = read(path)
    if (found.machine, found.versions) != (here.machine, here.versions):
        raise ValueError(
            f"cannot add to {path}: machine or versions were others; measure all of it (example: make bench-full)"
        )
    return found


def renew(found: Session, part: str, here: Session) -> None:
    """Drop what the session has of a part, and tell of when that part is now, where it is of another time."""
    found.measured[:] = [each for each in found.measured if each.part != part]
    if found is not here:
        others = (each for each in found.again if each.part != part)
        found.again[:] = [*others, Again(part, here.began, here.commit)]


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(("git", *words), cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()

    # What was measured before is no part of what is measured.
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
