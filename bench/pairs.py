"""`python -m bench.pairs COMMIT [W1,W3,claims]`: our scheduler of now and of a commit, in alternating pairs.

Both run with this tree's manifests, policies and benchmark, so that only the program differs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from bench import results, session
from bench.comparison import OURS, SEED
from bench.contenders.ours import GpuScheduler
from bench.figures import cpu_a_pod, plane_cpu_a_pod, ratio
from bench.gated_process import ROOT
from bench.jobs import FILLS, claiming, filling, placing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench.figures import Figure
    from bench.jobs import Job
    from bench.results import Measured, Session

    Make = Callable[[], GpuScheduler]

REPORT: Final = results.FOLDER / "pairs.md"
PAIRS: Final = 8
"""With fewer the interval is wider than what it is to show."""
WORKLOADS: Final[Mapping[str, Callable[[Make], Job]]] = {
    "W1": placing,
    "W3": partial(filling, max(FILLS)),
    "claims": claiming,
}
_FIGURES: Final[Mapping[str, Figure]] = {
    "seconds to the last bind": lambda measured: measured.to_last_bind,
    "seconds to the last event": lambda measured: measured.to_last_event,
    "ms of CPU a pod": cpu_a_pod,
    "ms of CPU a pod of API server and etcd": plane_cpu_a_pod,
    "MiB of memory": lambda measured: measured.costs[OURS].rss,
}


def main() -> int:
    """Measure the pairs of each workload, and write the report after each."""
    try:
        commit, workloads = _asked(sys.argv[1:])
    except ValueError as error:
        print(error)
        return 2
    here = session.begun("pairs")
    found: dict[str, list[tuple[Measured, Measured]]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        before = package(commit, Path(folder))
        for workload in workloads:
            found[workload] = list(_pairs(workload, before))
            report = "\n".join(markdown(here, commit, found)) + "\n"
            REPORT.write_text(report, encoding="utf-8")
    print(report)
    return 1 if any(measured.wrong for pairs in found.values() for pair in pairs for measured in pair) else 0


def _asked(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the commit's short name and the workloads. ValueError for other arguments."""
    match words:
        case [commit]:
            asked = list(WORKLOADS)
        case [commit, names]:
            asked = names.split(",")
        case _:
            raise ValueError(
                f"cannot measure pairs of {' '.join(words)!r}: name a commit, and workloads or none "
                "(example: HEAD~20 W1,W3)"
            )
    for name in asked:
        if name not in WORKLOADS:
            raise ValueError(
                f"cannot measure pairs of {name!r}: it must be one of {', '.join(WORKLOADS)} (example: HEAD~20 W1,W3)"
            )
    known = _git("rev-parse", "--short=12", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}")
    if known.returncode:
        raise ValueError(f"cannot measure {commit!r}: it must be a commit of this repository (example: HEAD~20)")
    return known.stdout.decode().strip(), asked


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(("git", *words), cwd=ROOT, capture_output=True, check=False)


def package(commit: str, folder: Path) -> Path:
    """Write the package of the commit below `folder`, and return what PYTHONPATH must name to find it."""
    archive = _git("archive", commit, "scheduler")
    archive.check_returncode()
    subprocess.run(("tar", "--extract", f"--directory={folder}"), input=archive.stdout, check=True)
    return folder / "scheduler"


def _pairs(workload: str, before: Path) -> Iterator[tuple[Measured, Measured]]:
    """Measure the workload by turns, and yield for each pair what was measured of now and of before."""
    env = {"ISOLATION": "dra"} if workload == "claims" else {}
    now, then = (
        WORKLOADS[workload](partial(GpuScheduler, **env, **more)) for more in ({}, {"PYTHONPATH": str(before)})
    )
    for number in range(1, PAIRS + 1):
        measured = {}
        # Every second pair is reversed: so drift of the machine affects both alike.
        for job in (now, then) if number % 2 else (then, now):
            each = measured[job] = job.measure(number, lambda _: None)
            said = "; ".join(each.wrong) or f"{each.bound} pods in {each.to_last_bind:.1f} s"
            print(f"[{workload} {number}/{PAIRS}] {'now' if job is now else 'before'}: {said}", flush=True)
        yield measured[now], measured[then]


def markdown(here: Session, commit: str, found: Mapping[str, Sequence[tuple[Measured, Measured]]]) -> Iterator[str]:
    """Yield the lines of the report: the medians of now and before, and of their ratios with the 95 % interval."""
    yield "# Our scheduler of two commits, in alternating pairs"
    yield ""
    yield f"- began: {here.began}, now: commit `{here.commit}`, before: commit `{commit}`"
    yield f"- {here.machine.processor}, {here.machine.cores} cores"
    yield "- a ratio above 1: now takes more than before"
    yield ""
    yield "| workload | what | now | before | ratio | 95 % interval | pairs |"
    yield "|---|---|---|---|---|---|---|"
    for workload, pairs in found.items():
        right = [pair for pair in pairs if not any(measured.wrong for measured in pair)]
        for name, figure in _FIGURES.items():
            now, before = (
                {pair[side].repetition: value for pair in right if (value := figure(pair[side]))} for side in (0, 1)
            )
            compared = ratio(now, before, SEED)
            if compared is None:
                yield f"| {workload} | {name} | — | — | — | — | 0 |"
                continue
            ends = "—" if compared.low is None else f"{compared.low:.3f} to {compared.high:.3f}"
            values = f"{median(now.values()):.3g} | {median(before.values()):.3g} | {compared.value:.3f}"
            yield f"| {workload} | {name} | {values} | {ends} | {compared.pairs} |"


if __name__ == "__main__":
    sys.exit(main())
