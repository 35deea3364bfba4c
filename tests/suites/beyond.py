"""The suites that `make test-all` runs beyond `make test`; .ci/run runs one of them with each commit.

LAW: each can be run alone, within 30 minutes on two cores, and holds no promise that none of the gate's tests holds.
"""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Final

from tests.suites.gate import BENCHMARK, FAULTS, INTEGRATION, false_clocks, scenario
from tests.suites.steps import Step, Suite, by_file, programs, pytest

if TYPE_CHECKING:
    from collections.abc import Callable

# Of these `make test` takes a sample.
WHOLE: Final = {
    "SWEEP_POINTS": "50",
    "SWEEP_STEP": "1",
    "CROWD": "10000",
    "OPERATIONS": "10000",
    "SIMULATED_STEPS": "100000",
}
SWEEPS: Final = (
    f"{FAULTS}/test_split_brain.py",
    f"{FAULTS}/test_kills.py",
    f"{FAULTS}/test_traces.py",
    f"{INTEGRATION}/test_wakes.py",
    f"{INTEGRATION}/test_oracle.py",
    "simulator/tests/test_soak.py",
)
SOAK_STEPS: Final = 400_000
"""Of the simulator, in virtual time: about 7 minutes of two cores."""


def _sweeps() -> Suite:
    return Suite((programs(), *(pytest(file, **WHOLE) for file in SWEEPS)))


def _long() -> Suite:
    """Hostile objects alone, as memory is measured; then what churns for ten minutes beside what waits for leases."""
    long = ("-rP", "-m", "long")
    return Suite((programs(), *false_clocks(), pytest(*long, "tests/attacks"), by_file(3, *long, INTEGRATION)))


def _benchmark() -> Suite:
    return Suite((programs(), pytest(BENCHMARK)))


def _mutants() -> Suite:
    return Suite((programs(), Step("mutants", (sys.executable, "-m", "tests.mutants.run"))))


def _soak() -> Suite:
    """What looks elsewhere each time; the seed stands in the step's name and gives the same run again."""
    seed = str(random.SystemRandom().randrange(1, 10**6))
    words = ("-m", "simulator", "--seed", seed, "--steps", str(SOAK_STEPS), "--jobs", "2")
    search = pytest(
        "scheduler/tests/core",
        "scheduler/tests/test_machine.py",
        f"--hypothesis-seed={seed}",
        HYPOTHESIS_PROFILE="search",
        MACHINE_EXAMPLES="500",
    )
    return Suite(
        (
            Step(f"python {' '.join(words)}", (sys.executable, *words)),
            search,
            programs(),
            pytest(f"{INTEGRATION}/test_oracle.py", SEED=seed, OPERATIONS="10000"),
        )
    )


BEYOND: Final[dict[str, Callable[[], Suite]]] = {
    "redeploy": lambda: scenario("redeploy"),
    "healing": lambda: scenario("healing"),
    "sweeps": _sweeps,
    "long": _long,
    "soak": _soak,
    "benchmark": _benchmark,
    "mutants": _mutants,
}
