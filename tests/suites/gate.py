"""The suites that `make test` runs: one of their tests covers each promise of docs/contract.md."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml

from tests.suites.steps import (
    ROOT,
    SHORT,
    TEST_CLUSTER,
    Step,
    Suite,
    by_file,
    git_files,
    package,
    programs,
    pytest,
)

if TYPE_CHECKING:
    from collections.abc import Callable

CORE_COVERED: Final = 100
PURE: Final = (
    "core/*",
    "webhook/review.py",
    "webhook/job_review.py",
    "webhook/template_review.py",
    "controller/work_queue.py",
    "controller/workload_status.py",
    "controller/gpu_workload.py",
    "controller/gpu_node_status.py",
    "monitor/readings.py",
    "driver/devices.py",
    "driver/resource_slice.py",
    "cli/doctor/examine.py",
    "cli/doctor/remedies.py",
    "cli/doctor/checks/certificate.py",
    "cli/doctor/checks/drivers.py",
    "cli/doctor/checks/gpus.py",
    "cli/doctor/checks/installation.py",
    "cli/doctor/checks/policies.py",
    "cli/doctor/checks/replicas.py",
    "cli/doctor/checks/webhook.py",
    "cli/verification.py",
)
"""Modules that import only the standard library; the configuration of import-linter lists the same ones."""
PACKAGE_COVERED: Final = 95
"""Percent of lines and branches that suite unit must reach."""
BUGS: Final = "simulator/tests/test_bugs.py"
"""Belongs to suite mutants: it shows that the simulator would notice a bug."""
INTEGRATION: Final = "tests/integration"
BENCHMARK: Final = (f"{INTEGRATION}/test_benchmark.py",)
"""Belongs to suite benchmark: it measures speed and covers no promise."""
FAULTS: Final = f"{INTEGRATION}/faults"
AUDITOR: Final = tuple(f"{FAULTS}/test_auditor{part}.py" for part in ("", "_costs", "_journal"))
"""Belong to suite mutants: they show that the auditor of suite faults would notice each broken invariant."""
PAGES: Final = f"{INTEGRATION}/pages"
# More workers than cores, because many tests wait for a program, a back-off or a lease.
WORKERS: Final = 4
FAULT_WORKERS: Final = 6
# Each has a cluster with everything installed.
ATTACK_WORKERS: Final = 2
# Most tests run plays, which use the processor; each worker renders all roles once.
CONTRACT_WORKERS: Final = 2
OF_THEIR_OWN: Final = {
    "healing": "tests.cluster.healing.own_engine",
    "existing": "tests.cluster.existing.scenario",
}
"""Scenarios with a cluster of their own, and the module whose `unmake` removes it."""


def _check() -> Suite:
    shell_scripts = tuple(
        name
        for name in git_files("*.sh", ".ci/run", "requirements/compile", "bin/gpu-scheduler")
        if (ROOT / name).read_bytes().startswith(b"#!")
    )
    typed = (
        "scheduler/gpu_scheduler",
        "check",
        "simulator",
        "scheduler/unit_tests",
        "tests",
        "bench",
        "charts",
        "boards",
        "requirements",
    )
    # Of a folder ansible-lint checks the syntax of each role by itself, and again in the play that has them all.
    excluded = tuple(yaml.safe_load((ROOT / ".ansible-lint").read_text(encoding="utf-8"))["exclude_paths"])
    linted = (name for name in git_files() if not name.startswith(excluded))
    commands = {
        "ruff format": ("ruff", "format", "--check", "."),
        "ruff": ("ruff", "check", "."),
        "mypy": ("mypy", *typed),
        "import-linter": ("lint-imports", "--no-cache"),
        "vulture": ("vulture",),
        "promises": (sys.executable, "-m", "tests.promises"),
        "yamllint": ("yamllint", "--strict", "."),
        "ansible-lint": ("ansible-lint", "--offline", *linted),
        "shellcheck": ("shellcheck", *shell_scripts),
        "hadolint": ("hadolint", *git_files("Dockerfile*", "**/Dockerfile*")),
    }
    return Suite(tuple(Step(name, command, limit=SHORT) for name, command in commands.items()))


def _unit() -> Suite:
    folder = "scheduler/unit_tests"
    # Coverage doubles what a test costs. Tables reach every line that it must, so random examples run without it.
    covered = ("coverage", "run", "-m", "pytest", folder, "-m", "not hypothesis and not long and not plays")
    beside = (
        pytest(folder, "-m", "hypothesis and not long and not plays"),
        pytest("check/check_tests", "simulator/tests", f"--ignore={BUGS}"),
    )
    pure = ",".join(f"*/gpu_scheduler/{path}" for path in PURE)
    core = ("report", f"--include={pure}", f"--fail-under={CORE_COVERED}")
    return Suite(
        (
            *_compiler(),
            Step("coverage erase", ("coverage", "erase"), needed=True, limit=SHORT),
            # A test that failed did not reach all that it covers.
            Step(f"pytest {folder}", covered, tuple(step.command for step in beside), needed=True),
            Step("coverage combine", ("coverage", "combine", "--quiet"), needed=True, limit=SHORT),
            Step("coverage of what is pure", ("coverage", *core), limit=SHORT),
            Step("coverage of the package", ("coverage", "report", f"--fail-under={PACKAGE_COVERED}"), limit=SHORT),
        )
    )


def _compiler() -> tuple[Step, ...]:
    """Install a C compiler if there is none: the monitor's tests compile a stand-in of NVIDIA's library."""
    if shutil.which("cc") or shutil.which("gcc"):
        return ()
    return (package("a C compiler", "gcc libc6-dev"),)


def _contracts() -> Suite:
    return Suite((by_file(CONTRACT_WORKERS, "tests/contracts", "tests/bench"),))


def _integration() -> Suite:
    ignored = (f"--ignore={path}" for path in (FAULTS, PAGES, *BENCHMARK))
    # xdist would begin with the files of most tests. Those of the longest tests come first: see its conftest.py.
    return Suite((programs(), by_file(WORKERS, "--no-loadscope-reorder", INTEGRATION, *ignored)), leases=True)


def _attacks() -> Suite:
    return Suite((programs(), by_file(ATTACK_WORKERS, "tests/attacks")), leases=True)


def _faults() -> Suite:
    ignored = (f"--ignore={path}" for path in AUDITOR)
    return Suite((programs(), *false_clocks(), by_file(FAULT_WORKERS, FAULTS, *ignored)), leases=True)


def false_clocks() -> tuple[Step, ...]:
    """Install libfaketime if it is missing: suite faults gives replicas wrong clocks."""
    if any(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")):
        return ()
    return (package("libfaketime", "libfaketime"),)


def scenario(name: str) -> Suite:
    """Run a molecule scenario on the test cluster. If KEEP is set in the environment, keep the cluster."""
    keep = bool(os.environ.get("KEEP"))
    # molecule does not destroy its cluster after Ctrl-C or a kill, and the next run would take its pods for its own.
    # Without leftovers these steps take seconds.
    module = OF_THEIR_OWN.get(name)
    leftovers = (
        Step(f"unmake {name}", (sys.executable, "-m", module, "unmake"), needed=True, limit=SHORT)
        if module
        else Step("destroy", ("ansible-playbook", "playbooks/destroy.yml", *TEST_CLUSTER), needed=True, limit=SHORT)
    )
    # The state of an interrupted run would make molecule skip steps. Scenarios with shared state have one folder, so
    # one reset removes it for both.
    forget = Step(f"molecule reset {name}", ("molecule", "reset", "-s", name), needed=True, limit=SHORT)
    # Borders would break the lines of the output, so that a search in it fails.
    words = ("molecule", "test", "--no-command-borders", *(("--destroy", "never") if keep else ()))
    return Suite(
        (leftovers, forget, Step(f"molecule {name}", (*words, "--scenario-name", name))),
        cleanup=() if keep else (leftovers,),
        cluster=True,
    )


GATE: Final[dict[str, Callable[[], Suite]]] = {
    "check": _check,
    "unit": _unit,
    "contracts": _contracts,
    "integration": _integration,
    "pages": lambda: Suite((programs(), pytest(PAGES)), leases=True),
    "attacks": _attacks,
    "faults": _faults,
    "default": lambda: scenario("default"),
}
