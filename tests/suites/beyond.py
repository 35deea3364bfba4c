"""The suites that `make test-all` runs beyond `make test`; .ci/run runs one of them with each commit.

Each suite must run alone, within 30 minutes on two cores. A promise that it tests must also have a test of the gate.
"""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Final

from tests.suites.gate import AUDITOR, BENCHMARK, BUGS, FAULTS, INTEGRATION, false_clocks, scenario
from tests.suites.steps import ROOT, Step, Suite, by_file, git_files, programs, pytest

if TYPE_CHECKING:
    from collections.abc import Callable

# The full sizes. `make test` takes a sample of each.
WHOLE: Final = {
    "SWEEP_POINTS": "50",
    "SWEEP_STEP": "1",
    "CROWD": "10000",
    "REMEDIES": "all",
    "OPERATIONS": "10000",
    "PLANS": "300",
    "SIMULATED_STEPS": "100000",
}
RANDOM_OPERATIONS: Final = f"{FAULTS}/test_auditor_costs.py::test_a_correct_scheduler_causes_no_violation"
# The longest files first: at the end one worker would wait for them.
SWEEPS: Final = (
    f"{FAULTS}/test_split_brain.py",
    RANDOM_OPERATIONS,
    f"{FAULTS}/test_traces.py",
    f"{INTEGRATION}/test_plan_oracle.py",
    "simulator/tests/test_soak.py",
    f"{FAULTS}/test_kills.py",
    f"{INTEGRATION}/test_requeues.py",
    f"{INTEGRATION}/test_remedies_of_nodes.py",
    f"{INTEGRATION}/test_remedies_of_gpus.py",
    f"{INTEGRATION}/test_remedies_of_pods.py",
)
# A test or a play uses one core, and the API server beside it a part of one.
WORKERS: Final = 2
SOAK_STEPS: Final = 400_000
"""Steps of the simulator in virtual time: about 7 minutes of two cores."""


def _sweeps() -> Suite:
    return Suite((programs(), by_file(WORKERS, "--no-loadscope-reorder", *SWEEPS, **WHOLE)))


def _long() -> Suite:
    """Run hostile objects alone, because they measure memory. Then run churn of ten minutes beside waits for leases."""
    long = ("-rP", "-m", "long")
    return Suite((programs(), *false_clocks(), pytest(*long, "tests/attacks"), by_file(3, *long, INTEGRATION)))


def _benchmark() -> Suite:
    return Suite((programs(), pytest(*BENCHMARK)))


def _mutants() -> Suite:
    """Show that a bug would be noticed: by the tests for each kept mutant, by the simulator, and by the auditor."""
    mutants = Step("mutants", (sys.executable, "-m", "tests.mutants.run"))
    return Suite((programs(), mutants, pytest(BUGS), pytest(*AUDITOR)))


def _plays() -> Suite:
    """Run each file that has tests marked `plays`, whole: some of its tests begin where an earlier one ended."""
    files = (name for name in git_files("tests/**/test_*.py") if "pytest.mark.plays" in (ROOT / name).read_text())
    return Suite((programs(), by_file(WORKERS, "-m", "not long", *files)))


def _soak() -> Suite:
    """Run random tests with a new seed. The names of the steps contain the seed, which repeats the run."""
    seed = str(random.SystemRandom().randrange(1, 10**6))
    words = ("-m", "simulator", "--seed", seed, "--steps", str(SOAK_STEPS), "--jobs", "2")
    search = pytest("scheduler/unit_tests/core", f"--hypothesis-seed={seed}", HYPOTHESIS_PROFILE="search")
    return Suite(
        (
            Step(f"python {' '.join(words)}", (sys.executable, *words)),
            search,
            programs(),
            pytest(RANDOM_OPERATIONS, SEED=seed, OPERATIONS=WHOLE["OPERATIONS"]),
        )
    )


BEYOND: Final[dict[str, Callable[[], Suite]]] = {
    "usage": lambda: scenario("usage"),
    "redeploy": lambda: scenario("redeploy"),
    "healing": lambda: scenario("healing"),
    "existing": lambda: scenario("existing"),
    "charts": lambda: scenario("charts"),
    "isolation": lambda: scenario("isolation"),
    "sweeps": _sweeps,
    "long": _long,
    "soak": _soak,
    "benchmark": _benchmark,
    "mutants": _mutants,
    "plays": _plays,
}
