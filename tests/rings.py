"""Runs rings of tests in the order given and prints each ring's seconds.

A ring is a list of steps; a ring passes when every step exits with 0. All rings run, even after one failed, so
that one run tells everything; a ring that cannot run counts as failed. What failed is told once more at the end,
where it is found without a search through thousands of lines. Usage: rings.py RING[+RING…]…, where those after a plus
run beside the first: a cluster waits half of its time, and what needs no cluster gives way to it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parent.parent
TEST_CLUSTER: Final = ("-e", "@tests/cluster/vars.yml")
CORE_COVERED: Final = 100
PACKAGE_COVERED: Final = 95
"""Percent of lines and branches that the unit ring must reach."""
MOST_TOLD: Final = 12
"""Failures told at the end: where more tests fail, the first ones name the cause."""


Parts = tuple[tuple[str, ...], ...]
# Parts of the ring integration with control planes of their own; what stands in none of them runs beside. Four at once,
# because many a test waits for a program or for a back-off. The two shortest give way to the others.
PARTS: Final = (("oracle",),)
SHORT_PARTS: Final = (
    ("wakes", "leadership", "audit"),
    ("cli", "cli_changes", "workload_crashes", "workloads", "monitor", "budget"),
)
GIVE_WAY: Final = ("nice", "-n", "5")
INNER: Final = os.environ.get("RINGS_FAILURES")
"""Where failures are written when these rings run beside others, which then tell of them."""
Result = tuple[str, bool, float]  # a ring, whether it passed, and its seconds

FAULTS: Final = "tests/integration/faults"
# Likewise of the ring faults, one more at once: most of their time is that of leases and of silence. All but the first
# give way, because the shortest leases are there.
FAULT_PARTS: Final = (("split_brain", "starts", "full_disk"),)
PATIENT_FAULT_PARTS: Final = (
    ("leaders", "spoilt_leases", "clocks"),
    ("kills", "stops", "stops_of_others"),
    ("watches", "traces"),
)

# Beside the rest of the ring unit: they take as long as it does, in processes that coverage does not measure.
SIMULATED: Final = ("scheduler/tests/simulation/test_soak.py", "scheduler/tests/simulation/test_bugs.py")


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a ring; those `beside` it run at the same time, and their outputs come after."""

    name: str
    command: tuple[str, ...]
    beside: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Ring:
    """Steps that stop at the first failure, and what is undone afterwards in any case."""

    steps: tuple[Step, ...]
    cleanup: tuple[Step, ...] = ()


def _pytest(*folders: str) -> Step:
    return Step(f"pytest {' '.join(folders)}", (sys.executable, "-m", "pytest", *folders))


def _tracked(*patterns: str) -> tuple[str, ...]:
    """Files of the checkout, new ones included, that match one of git's patterns."""
    command = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns)
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return tuple(name for name in listed.splitlines() if (ROOT / name).exists())


def _check() -> Ring:
    shell_scripts = tuple(
        name
        for name in _tracked("*.sh", ".ci/run", "requirements/compile")
        if (ROOT / name).read_bytes().startswith(b"#!")
    )
    return Ring(
        (
            Step("ruff format", ("ruff", "format", "--check", ".")),
            Step("ruff", ("ruff", "check", ".")),
            Step("mypy", ("mypy", "scheduler/gpu_scheduler", "check", "scheduler/tests", "tests", "bench")),
            Step("import-linter", ("lint-imports", "--no-cache")),
            Step("vulture", ("vulture",)),
            Step("promises", (sys.executable, "tests/promises.py")),
            Step("yamllint", ("yamllint", "--strict", ".")),
            Step("ansible-lint", ("ansible-lint", "--offline")),
            Step("shellcheck", ("shellcheck", *shell_scripts)),
            Step("hadolint", ("hadolint", *_tracked("Dockerfile*", "**/Dockerfile*"))),
        )
    )


def _scenarios(*names: str) -> Step:
    chosen = [word for name in names for word in ("--scenario-name", name)]
    keep = ("--destroy", "never") if os.environ.get("KEEP") else ()
    # Borders would break the play's lines, and what a person would search for with them.
    return Step(f"molecule {' '.join(names)}", ("molecule", "test", "--no-command-borders", *keep, *chosen))


def _molecule() -> Ring:
    # molecule destroys what it made, but not after Ctrl-C, and a run that was killed leaves even more to the next one:
    # its pods would be taken for ours. Where there is nothing left these take seconds.
    unmake = Step("unmake healing's engine", (sys.executable, "-m", "tests.cluster.healing.world", "unmake"))
    destroy = Step("destroy", ("ansible-playbook", "playbooks/destroy.yml", *TEST_CLUSTER))
    # What molecule noted of a run that was interrupted would make it skip steps. Scenarios that share their state share
    # its folder too, and one reset removes it for both.
    forget = (Step(f"molecule reset {name}", ("molecule", "reset", "-s", name)) for name in ("default", "healing"))
    return Ring(
        (unmake, destroy, *forget, _scenarios("default", "redeploy"), _scenarios("healing")),
        cleanup=() if os.environ.get("KEEP") else (unmake, destroy),
    )


def _compiler() -> tuple[Step, ...]:
    """What the unit ring needs beside Python: the monitor's tests compile a stand-in of NVIDIA's library."""
    if shutil.which("cc") or shutil.which("gcc"):
        return ()
    return (_package("a C compiler", "gcc libc6-dev"),)


def _false_clocks() -> tuple[Step, ...]:
    """What the ring faults needs beside its programs: replicas whose clocks are set or run wrong."""
    if any(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")):
        return ()
    return (_package("libfaketime", "libfaketime"),)


def _package(what: str, names: str) -> Step:
    install = f"apt-get update --quiet && apt-get install --yes --no-install-recommends {names}"
    return Step(f"install {what}", ("sh", "-c", install))


def _unit() -> Ring:
    tests = ("run", "-m", "pytest", "scheduler/tests", "check/tests", *(f"--ignore={path}" for path in SIMULATED))
    simulated = (sys.executable, "-m", "pytest", *SIMULATED)
    core = ("report", "--include=*/core/*", f"--fail-under={CORE_COVERED}")
    return Ring(
        (
            *_compiler(),
            Step("coverage erase", ("coverage", "erase")),
            Step("pytest scheduler/tests check/tests", ("coverage", *tests), (simulated,)),
            Step("coverage combine", ("coverage", "combine", "--quiet")),
            Step("coverage of core/", ("coverage", *core)),
            Step("coverage of the package", ("coverage", "report", f"--fail-under={PACKAGE_COVERED}")),
        )
    )


def _integration() -> Ring:
    return Ring((_programs(), _beside("tests/integration", PARTS, SHORT_PARTS, leave_out=(FAULTS,))))


def _faults() -> Ring:
    return Ring((_programs(), *_false_clocks(), _beside(FAULTS, FAULT_PARTS, PATIENT_FAULT_PARTS)))


def _programs() -> Step:
    return Step("programs", ("ansible-playbook", "playbooks/programs.yml", *TEST_CLUSTER))


def _beside(folder: str, parts: Parts, short: Parts = (), *, leave_out: tuple[str, ...] = ()) -> Step:
    """All tests of the folder at once, each part and what stands in none of them as a run of its own."""
    named = [[f"{folder}/test_{name}.py" for name in part] for part in (*parts, *short)]
    others = _pytest(folder, *(f"--ignore={path}" for path in (*leave_out, *(file for part in named for file in part))))
    commands = [_pytest(*part).command for part in named]
    giving_way = ((*GIVE_WAY, *command) for command in commands[len(parts) :])
    return Step(f"pytest {folder}", others.command, (*commands[: len(parts)], *giving_way))


RINGS: Final = {
    "check": _check,
    "unit": _unit,
    "contracts": lambda: Ring((_pytest("tests/contracts", "tests/bench"),)),
    "integration": _integration,
    "faults": _faults,
    "molecule": _molecule,
}


def _tell(output: IO[bytes]) -> None:
    output.seek(0)
    print(output.read().decode(errors="replace"), flush=True)


def _run(step: Step) -> bool:
    print(f"\n--- {step.name}", flush=True)
    try:
        with ExitStack() as stack:
            started = [stack.enter_context(_started(step.command))]
            outputs = [stack.enter_context(tempfile.TemporaryFile()) for _ in step.beside]
            for command, output in zip(step.beside, outputs, strict=True):
                started.append(stack.enter_context(_started(command, output)))
            codes = [each.wait() for each in started]
            for output in outputs:
                _tell(output)
    except OSError as error:
        print(f"cannot run {step.command[0]}: {error}")
        return False
    if any(codes):
        print(f"--- {step.name} failed with exit status {max(codes)}")
    return not any(codes)


@contextmanager
def _failures() -> Iterator[Path]:
    """Yield the file to which every pytest that a ring starts, however indirectly, writes what failed in it."""
    if INNER:
        yield Path(INNER)
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "failures"
        file.touch()
        os.environ["RINGS_FAILURES"] = str(file)
        yield file


@contextmanager
def _started(command: tuple[str, ...], output: IO[bytes] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A command that does not outlive what is done with it: after Ctrl-C it is given time to clean up."""
    # import-linter looks for the payload as a package on the path.
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "scheduler")}
    process: subprocess.Popen[bytes] = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
    )
    try:
        yield process
    except BaseException:
        process.send_signal(signal.SIGINT)
        process.wait()
        raise


def _run_ring(ring: Ring) -> bool:
    try:
        passed = all(_run(step) for step in ring.steps)
    finally:
        # Also after Ctrl-C: what a ring started never outlives it.
        cleaned = [_run(step) for step in ring.cleanup]
    return passed and all(cleaned)


@contextmanager
def _run_beside(names: list[str], results: list[Result]) -> Iterator[None]:
    """Run these rings in a process that gives way, and tell all that it said when it has ended."""
    started = time.monotonic()
    with tempfile.TemporaryFile() as output:
        with _started((*GIVE_WAY, sys.executable, __file__, *names), output) as beside:
            yield
            passed = beside.wait() == 0
        _tell(output)
    results.append((" ".join(names), passed, time.monotonic() - started))


def main(asked: list[str]) -> int:
    """Run the rings that are asked for; return 0 when all passed."""
    together = [names.split("+") for names in asked]
    unknown = [name for names in together for name in names if name not in RINGS]
    if unknown or not asked:
        print(f"cannot run ring {' '.join(unknown) or '(none)'}: known rings are {' '.join(RINGS)}")
        return 2
    results: list[Result] = []
    with _failures() as told:
        for name, *others in together:
            print(f"\n=== ring {name}", flush=True)
            with _run_beside(others, results) if others else nullcontext():
                started = time.monotonic()
                passed = _run_ring(RINGS[name]())
                results.append((name, passed, time.monotonic() - started))
        failures = told.read_text(encoding="utf-8").splitlines()
    if failures and not INNER:
        print("\nwhat failed:", *failures[:MOST_TOLD], sep="\n  ")
    print("\nring           result   seconds")
    for name, passed, seconds in results:
        print(f"{name:<14} {'passed' if passed else 'FAILED':<8} {seconds:7.1f}")
    good = sum(passed for _, passed, _ in results)
    print(f"rings: {good} passed, {len(results) - good} failed")
    return 0 if good == len(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
