"""Runs the steps of a suite. Each has a time limit, and ends with all that it started, however the run ends."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from tests.integration.programs import CACHE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT: Final = Path(__file__).resolve().parents[2]
TEST_CLUSTER: Final = ("-e", "@tests/cluster/vars.yml")
TEST_CLUSTER_LOCK: Final = CACHE / "test-cluster.lock"
GIVE_WAY: Final = ("nice", "-n", "15")
LIMIT: Final = 60 * 60.0
"""Seconds after which a step is ended: against hangs. At a load of 40 suite contracts took 35 minutes."""
SHORT: Final = 15 * 60.0
"""The limit of a step that takes a minute or two: a linter, a report, or the removal of a cluster."""
GRACE: Final = 30.0
"""Seconds from SIGINT to SIGKILL, in which a step that is ended can clean up."""
PATIENCE: Final = 40 * 60.0
"""Seconds for which a run waits for the test cluster. A `make test` that has nothing cached has it for 36 minutes."""
# Kills the process group $0 when standard input ends, which is when the process at the other end of the pipe has died.
GUARD: Final = 'read -r _; kill -s INT -- "-$0"; sleep 5; kill -s KILL -- "-$0"'


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a suite. Commands `beside` it run at the same time, and their output is printed afterwards."""

    name: str
    command: tuple[str, ...]
    beside: tuple[tuple[str, ...], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    needed: bool = False
    """Whether the steps after it need what it does: they do not run if it fails."""
    limit: float = LIMIT


@dataclass(frozen=True, slots=True)
class Suite:
    """Steps, and the cleanup that always runs afterwards."""

    steps: tuple[Step, ...]
    cleanup: tuple[Step, ...] = ()
    cluster: bool = False
    """Whether it changes the test cluster, which one run at a time may have."""
    leases: bool = False
    """Whether it runs programs that end when they cannot renew their Lease for ten seconds. It gives way to no other:
    beside eight busy processes an API server of lower priority was not ready after five minutes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a step ended; `failure` is empty if it passed."""

    name: str
    failure: str
    seconds: float


class ClusterTakenError(Exception):
    """Another run has the test cluster."""


def pytest(*words: str, **environment: str) -> Step:
    """Return a step that runs pytest with these folders, files, tests and options."""
    prefix = "".join(f"{name}={value} " for name, value in environment.items())
    return Step(f"{prefix}pytest {' '.join(words)}", (sys.executable, "-m", "pytest", *words), environment=environment)


def by_file(workers: int, *words: str, **environment: str) -> Step:
    """Return a step that runs pytest-xdist with this many workers; each file runs on one, which has control planes."""
    return pytest(f"--numprocesses={workers}", "--dist=loadfile", *words, **environment)


def git_files(*patterns: str) -> tuple[str, ...]:
    """Return the existing files of the checkout, untracked ones included, that match one of the git patterns."""
    command = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns)
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return tuple(name for name in listed.splitlines() if (ROOT / name).exists())


def programs() -> Step:
    """Return a step that builds etcd and the Kubernetes programs into the cache, unless they are there."""
    return Step("programs", ("ansible-playbook", "playbooks/programs.yml", *TEST_CLUSTER), needed=True)


def package(what: str, names: str) -> Step:
    """Return a step that installs apt packages `names` on the host; needs root."""
    install = f"apt-get update --quiet && apt-get install --yes --no-install-recommends {names}"
    return Step(f"install {what}", ("sh", "-c", install), limit=SHORT)


@contextmanager
def locked(file: Path, seconds: float = PATIENCE) -> Iterator[None]:
    """Lock the file during the block. Wait for another run that has it; ClusterTakenError after `seconds`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+", encoding="utf-8") as opened:
        began, printed = time.monotonic(), False
        while not _lock(opened):
            opened.seek(0)
            holder = opened.read().strip() or "a process that has not said which"
            if not printed:
                print(f"waiting at most {seconds / 60:g} min for the test cluster, which {holder} has", flush=True)
                printed = True
            if time.monotonic() - began > seconds:
                raise ClusterTakenError(
                    f"cannot run: after {seconds / 60:g} min another run of the tests still has the test cluster, and "
                    f"{file} is locked: wait for the end of {holder}, or end it (example: kill PID)"
                )
            time.sleep(min(1.0, seconds))
        opened.truncate(0)
        opened.write(f"process {os.getpid()} ({' '.join(sys.argv)}) in {Path.cwd()} since {time.strftime('%X')}\n")
        opened.flush()
        yield


def _lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def run_suite(suite: Suite, environment: Mapping[str, str] | None = None) -> list[Outcome]:
    """Run the steps, then the cleanup. After a needed step that failed the other steps are left out."""
    outcomes = list[Outcome]()
    try:
        for step in suite.steps:
            outcomes.append(_run(step, environment or {}))
            if step.needed and outcomes[-1].failure:
                break
    finally:
        # Also after a signal, so that nothing that a suite started keeps running.
        outcomes += [_run(step, environment or {}) for step in suite.cleanup]
    return outcomes


def _run(step: Step, environment: Mapping[str, str]) -> Outcome:
    print(f"\n--- {step.name}", flush=True)
    began = time.monotonic()
    failure = _failure(step, {**environment, **step.environment}, began + step.limit)
    if failure:
        print(f"--- {step.name} failed: {failure}", flush=True)
    return Outcome(step.name, failure, time.monotonic() - began)


def _failure(step: Step, environment: Mapping[str, str], deadline: float) -> str:
    try:
        with ExitStack() as stack:
            outputs = [stack.enter_context(tempfile.TemporaryFile()) for _ in step.beside]
            for output in outputs:
                stack.callback(print_output, output)
            processes = [stack.enter_context(started(step.command, None, environment))]
            for command, output in zip(step.beside, outputs, strict=True):
                processes.append(stack.enter_context(started(command, output, environment)))
            codes = [each.wait(max(0.0, deadline - time.monotonic())) for each in processes]
    except OSError as error:
        return f"cannot run {step.command[0]}: {error}"
    except subprocess.TimeoutExpired as late:
        return f"{' '.join(late.cmd)} was ended after the step's limit of {step.limit:g} s"
    # A process that a signal ended has a negative number.
    return next((f"exit status {code}" for code in codes if code), "")


def print_output(output: IO[bytes]) -> None:
    """Print the output of a command."""
    output.seek(0)
    print(output.read().decode(errors="replace"), flush=True)


@contextmanager
def started(
    command: tuple[str, ...],
    output: IO[bytes] | None = None,
    environment: Mapping[str, str] | None = None,
    grace: float = GRACE,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in the checkout, in a process group of its own, of which nothing is left after the block.

    If the block raises, the group gets SIGINT, as by Ctrl-C, and SIGKILL after `grace` seconds. If this process is
    killed, a guard does that.
    """
    # import-linter imports the package gpu_scheduler from the path.
    prefix = {**os.environ, "PYTHONPATH": str(ROOT / "scheduler"), **(environment or {})}
    # Thousands of processes would each compile all that they import: 1.4 of the 2.1 s in which pytest starts.
    prefix.pop("PYTHONDONTWRITEBYTECODE", None)
    process: subprocess.Popen[bytes] = subprocess.Popen(
        command, cwd=ROOT, env=prefix, stdin=subprocess.DEVNULL, stdout=output, stderr=output, process_group=0
    )
    # PR_SET_PDEATHSIG would end the command alone, and not what molecule and ansible-playbook start.
    guard = subprocess.Popen(
        ("sh", "-c", GUARD, str(process.pid)), stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0
    )
    try:
        yield process
    except BaseException:
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, signal.SIGINT)
            process.wait(grace)
        raise
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        guard.kill()
        guard.communicate()
