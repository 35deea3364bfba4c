"""Steps of a suite: commands, those that run beside them, and what is left to tell when they have ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT: Final = Path(__file__).resolve().parents[2]
TEST_CLUSTER: Final = ("-e", "@tests/cluster/vars.yml")
GIVE_WAY: Final = ("nice", "-n", "5")


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a suite; those `beside` it run at the same time, and their outputs come after."""

    name: str
    command: tuple[str, ...]
    beside: tuple[tuple[str, ...], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Suite:
    """Steps that stop at the first failure, and what is undone afterwards in any case."""

    steps: tuple[Step, ...]
    cleanup: tuple[Step, ...] = ()


def pytest(*words: str, **environment: str) -> Step:
    """Run these folders, files or tests, with what of pytest's options stands beside them."""
    told = "".join(f"{name}={value} " for name, value in environment.items())
    return Step(f"{told}pytest {' '.join(words)}", (sys.executable, "-m", "pytest", *words), environment=environment)


def by_file(workers: int, *words: str) -> Step:
    """Likewise, with whole files on so many workers of pytest-xdist: each has control planes of its own."""
    return pytest(f"--numprocesses={workers}", "--dist=loadfile", *words)


def tracked(*patterns: str) -> tuple[str, ...]:
    """Files of the checkout, new ones included, that match one of git's patterns."""
    command = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns)
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return tuple(name for name in listed.splitlines() if (ROOT / name).exists())


def programs() -> Step:
    """Build etcd and programs of Kubernetes into the cache, where they are not there yet."""
    return Step("programs", ("ansible-playbook", "playbooks/programs.yml", *TEST_CLUSTER))


def package(what: str, names: str) -> Step:
    """Install packages of the host's distribution; needs root."""
    install = f"apt-get update --quiet && apt-get install --yes --no-install-recommends {names}"
    return Step(f"install {what}", ("sh", "-c", install))


def run_suite(suite: Suite) -> bool:
    """Run the steps up to the first that fails, then the cleanup; whether all passed."""
    try:
        passed = all(_run(step) for step in suite.steps)
    finally:
        # Also after Ctrl-C: what a suite started never outlives it.
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
                tell(output)
    except OSError as error:
        print(f"cannot run {step.command[0]}: {error}")
        return False
    if any(codes):
        print(f"--- {step.name} failed with exit status {max(codes)}")
    return not any(codes)


def tell(output: IO[bytes]) -> None:
    """Print what a command has said."""
    output.seek(0)
    print(output.read().decode(errors="replace"), flush=True)


@contextmanager
def started(
    command: tuple[str, ...], output: IO[bytes] | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A command that does not outlive what is done with it: after Ctrl-C it is given time to clean up."""
    # import-linter looks for the payload as a package on the path.
    told = {**os.environ, "PYTHONPATH": str(ROOT / "scheduler"), **(environment or {})}
    process: subprocess.Popen[bytes] = subprocess.Popen(
        command, cwd=ROOT, env=told, stdin=subprocess.DEVNULL, stdout=output, stderr=output
    )
    try:
        yield process
    except BaseException:
        process.send_signal(signal.SIGINT)
        process.wait()
        raise
