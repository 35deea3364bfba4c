"""Runs the steps of a suite: commands, background commands, and the report of failures."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager, nullcontext
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


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a suite. Commands `beside` it run at the same time, and their output is printed afterwards."""

    name: str
    command: tuple[str, ...]
    beside: tuple[tuple[str, ...], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Suite:
    """Steps that run up to the first failure, and the cleanup that always runs afterwards.

    A suite with a `lock` runs alone on the host: its file is locked from the first step to the last of the cleanup.
    """

    steps: tuple[Step, ...]
    cleanup: tuple[Step, ...] = ()
    lock: Path | None = None


def pytest(*words: str, **environment: str) -> Step:
    """Return a step that runs pytest with these folders, files, tests and options."""
    prefix = "".join(f"{name}={value} " for name, value in environment.items())
    return Step(f"{prefix}pytest {' '.join(words)}", (sys.executable, "-m", "pytest", *words), environment=environment)


def by_file(workers: int, *words: str) -> Step:
    """Return a step that runs pytest-xdist with this many workers; each file runs on one, which has control planes."""
    return pytest(f"--numprocesses={workers}", "--dist=loadfile", *words)


def git_files(*patterns: str) -> tuple[str, ...]:
    """Return the existing files of the checkout, untracked ones included, that match one of the git patterns."""
    command = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns)
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return tuple(name for name in listed.splitlines() if (ROOT / name).exists())


def programs() -> Step:
    """Return a step that builds etcd and the Kubernetes programs into the cache, unless they are there."""
    return Step("programs", ("ansible-playbook", "playbooks/programs.yml", *TEST_CLUSTER))


def package(what: str, names: str) -> Step:
    """Return a step that installs apt packages `names` on the host; needs root."""
    install = f"apt-get update --quiet && apt-get install --yes --no-install-recommends {names}"
    return Step(f"install {what}", ("sh", "-c", install))


@contextmanager
def _locked(file: Path) -> Iterator[bool]:
    """Lock the file during the block, unless another run has locked it. Yield whether it is locked."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def run_suite(suite: Suite) -> bool:
    """Run the steps up to the first that fails, then the cleanup. Return whether all passed."""
    with nullcontext(True) if suite.lock is None else _locked(suite.lock) as alone:
        if alone:
            return _run_steps(suite)
        print(
            f"cannot run: another run of the tests has the test cluster, and {suite.lock} is locked; wait for its end"
        )
        return False


def _run_steps(suite: Suite) -> bool:
    try:
        passed = all(_run(step) for step in suite.steps)
    finally:
        # Also after Ctrl-C, so that nothing that a suite started keeps running.
        cleaned = [_run(step) for step in suite.cleanup]
    return passed and all(cleaned)


def _run(step: Step) -> bool:
    print(f"\n--- {step.name}", flush=True)
    try:
        with ExitStack() as stack:
            processes = [stack.enter_context(started(step.command, None, step.environment))]
            outputs = [stack.enter_context(tempfile.TemporaryFile()) for _ in step.beside]
            for command, output in zip(step.beside, outputs, strict=True):
                processes.append(stack.enter_context(started(command, output, step.environment)))
            codes = [each.wait() for each in processes]
            for output in outputs:
                print_output(output)
    except OSError as error:
        print(f"cannot run {step.command[0]}: {error}")
        return False
    if any(codes):
        print(f"--- {step.name} failed with exit status {max(codes)}")
    return not any(codes)


def print_output(output: IO[bytes]) -> None:
    """Print the output of a command."""
    output.seek(0)
    print(output.read().decode(errors="replace"), flush=True)


@contextmanager
def started(
    command: tuple[str, ...], output: IO[bytes] | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in the checkout. If the block raises, for example by Ctrl-C, send SIGINT and wait for its end."""
    # import-linter imports the package gpu_scheduler from the path.
    prefix = {**os.environ, "PYTHONPATH": str(ROOT / "scheduler"), **(environment or {})}
    process: subprocess.Popen[bytes] = subprocess.Popen(
        command, cwd=ROOT, env=prefix, stdin=subprocess.DEVNULL, stdout=output, stderr=output
    )
    try:
        yield process
    except BaseException:
        process.send_signal(signal.SIGINT)
        process.wait()
        raise
