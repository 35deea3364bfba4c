"""The suites that `make test` runs: every promise of docs/contract.md is held by one of their tests."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.suites.steps import ROOT, TEST_CLUSTER, Step, Suite, by_file, package, programs, pytest, tracked

if TYPE_CHECKING:
    from collections.abc import Callable

CORE_COVERED: Final = 100
PURE: Final = (
    "core/*",
    "webhook/review.py",
    "webhook/job_review.py",
    "controller/work_queue.py",
    "controller/workload_status.py",
    "controller/gpu_workload.py",
    "controller/gpu_node_status.py",
    "monitor/readings.py",
)
"""What knows the standard library only; import-linter names the same modules."""
PACKAGE_COVERED: Final = 95
"""Percent of lines and branches that suite unit must reach."""
# Beside the rest of suite unit: they take as long as it does, in processes that coverage does not measure.
SIMULATED: Final = ("simulator/tests/test_soak.py", "simulator/tests/test_bugs.py")

INTEGRATION: Final = "tests/integration"
BENCHMARK: Final = f"{INTEGRATION}/test_benchmark.py"
"""Belongs to suite benchmark: it measures, and holds no promise."""
FAULTS: Final = f"{INTEGRATION}/faults"
# More than there are cores, because many a test waits for a program, a back-off or a lease.
WORKERS: Final = 4
FAULT_WORKERS: Final = 6


def _check() -> Suite:
    shell_scripts = tuple(
        name
        for name in tracked("*.sh", ".ci/run", "requirements/compile")
        if (ROOT / name).read_bytes().startswith(b"#!")
    )
    typed = ("scheduler/gpu_scheduler", "check", "simulator", "scheduler/tests", "tests", "bench")
    return Suite(
        (
            Step("ruff format", ("ruff", "format", "--check", ".")),
            Step("ruff", ("ruff", "check", ".")),
            Step("mypy", ("mypy", *typed)),
            Step("import-linter", ("lint-imports", "--no-cache")),
            Step("vulture", ("vulture",)),
            Step("promises", (sys.executable, "tests/promises.py")),
            Step("yamllint", ("yamllint", "--strict", ".")),
            Step("ansible-lint", ("ansible-lint", "--offline")),
            Step("shellcheck", ("shellcheck", *shell_scripts)),
            Step("hadolint", ("hadolint", *tracked("Dockerfile*", "**/Dockerfile*"))),
        )
    )


def _unit() -> Suite:
    folders = ("scheduler/tests", "check/tests", "simulator/tests")
    tests = ("run", "-m", "pytest", *folders, *(f"--ignore={path}" for path in SIMULATED))
    pure = ",".join(f"*/gpu_scheduler/{path}" for path in PURE)
    core = ("report", f"--include={pure}", f"--fail-under={CORE_COVERED}")
    return Suite(
        (
            *_compiler(),
            Step("coverage erase", ("coverage", "erase")),
            Step(f"pytest {' '.join(folders)}", ("coverage", *tests), (pytest(*SIMULATED).command,)),
            Step("coverage combine", ("coverage", "combine", "--quiet")),
            Step("coverage of what is pure", ("coverage", *core)),
            Step("coverage of the package", ("coverage", "report", f"--fail-under={PACKAGE_COVERED}")),
        )
    )


def _compiler() -> tuple[Step, ...]:
    """What suite unit needs beside Python: the monitor's tests compile a stand-in of NVIDIA's library."""
    if shutil.which("cc") or shutil.which("gcc"):
        return ()
    return (package("a C compiler", "gcc libc6-dev"),)


def _integration() -> Suite:
    return Suite((programs(), by_file(WORKERS, INTEGRATION, f"--ignore={FAULTS}", f"--ignore={BENCHMARK}")))


def _attacks() -> Suite:
    return Suite((programs(), pytest("tests/attacks")))


def _faults() -> Suite:
    return Suite((programs(), *false_clocks(), by_file(FAULT_WORKERS, FAULTS)))


def false_clocks() -> tuple[Step, ...]:
    """What suite faults needs beside its programs: replicas whose clocks are set or run wrong."""
    if any(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")):
        return ()
    return (package("libfaketime", "libfaketime"),)


def scenario(name: str) -> Suite:
    """Run one of molecule's scenarios, on a cluster of the tests' own; where KEEP is set it is left standing."""
    keep = bool(os.environ.get("KEEP"))
    # molecule destroys what it made, but not after Ctrl-C, and a run that was killed leaves even more to the next one:
    # its pods would be taken for ours. Where there is nothing left these take seconds.
    unmake = Step("unmake healing's engine", (sys.executable, "-m", "tests.cluster.healing.world", "unmake"))
    destroy = Step("destroy", ("ansible-playbook", "playbooks/destroy.yml", *TEST_CLUSTER))
    leftovers = unmake if name == "healing" else destroy
    # What molecule noted of a run that was interrupted would make it skip steps. Scenarios that share their state share
    # its folder too, and one reset removes it for both.
    forget = Step(f"molecule reset {name}", ("molecule", "reset", "-s", name))
    # Borders would break the play's lines, and what a person would search for with them.
    words = ("molecule", "test", "--no-command-borders", *(("--destroy", "never") if keep else ()))
    return Suite(
        (leftovers, forget, Step(f"molecule {name}", (*words, "--scenario-name", name))),
        cleanup=() if keep else (leftovers,),
    )


GATE: Final[dict[str, Callable[[], Suite]]] = {
    "check": _check,
    "unit": _unit,
    "contracts": lambda: Suite((pytest("tests/contracts", "tests/bench"),)),
    "integration": _integration,
    "attacks": _attacks,
    "faults": _faults,
    "default": lambda: scenario("default"),
}
