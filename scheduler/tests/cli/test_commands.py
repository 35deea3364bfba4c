"""The commands as processes of their own: exit codes, sentences, and what they must not load."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2]


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `gpu-scheduler` with these arguments and nothing else in its environment, but for who measures coverage."""
    measured = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGE), **measured, **env}
    return subprocess.run(
        [sys.executable, "-m", "gpu_scheduler", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def test_version_names_version_and_commit() -> None:
    """As the first log line and the metric do."""
    result = run("--version", GPU_SCHEDULER_COMMIT="0a1b2c3")

    assert result.returncode == 0
    assert result.stdout.startswith("gpu-scheduler ")
    assert result.stdout.endswith("(commit 0a1b2c3)\n")


def test_the_first_log_line_names_version_and_commit() -> None:
    """JSON, because standard error is no terminal here."""
    result = run("run", GPU_SCHEDULER_COMMIT="0a1b2c3")

    first = json.loads(result.stderr.splitlines()[0])
    assert first["commit"] == "0a1b2c3"
    assert first["event"].startswith("gpu-scheduler ")


@pytest.mark.parametrize(
    ("command", "env", "sentence"),
    [
        (("run",), {"LOG_LEVEL": "LOUD"}, 'cannot use LOG_LEVEL "LOUD": '),
        (("run",), {}, "cannot reach a cluster through a service account: "),
        (("run", "--kubeconfig", "/nowhere"), {}, "cannot reach a cluster through kubeconfig /nowhere: no such file"),
        (("webhook",), {"CERTIFICATE_DIR": "/nowhere"}, "cannot read the serving certificate: "),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    command: tuple[str, ...], env: dict[str, str], sentence: str
) -> None:
    """No traceback, and an example of what would do."""
    result = run(*command, **env)

    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith(sentence)
    assert "example: " in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("modules", "never"),
    [
        ("gpu_scheduler.cli.webhook", {"kubernetes", "rich"}),
        ("gpu_scheduler.cli.run", {"rich", "kubernetes.aio.client.api", "kubernetes.aio.client.models.v1_pod"}),
        ("gpu_scheduler.cli", {"kubernetes", "rich", "aiohttp", "structlog", "prometheus_client"}),
    ],
)
def test_what_is_not_needed_is_not_loaded(modules: str, never: set[str]) -> None:
    """The client costs 50 MB, its typed classes 130, and rich 10, in every replica."""
    script = (
        f"import sys, {modules}, gpu_scheduler.cli.serving; import gpu_scheduler.settings; "
        "print('\\n'.join(name for name, module in sys.modules.items() if module is not None))"
    )

    result = subprocess.run(
        [sys.executable, "-c", script],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGE)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert never & set(result.stdout.split()) == set()


def test_help_lists_the_commands() -> None:
    """Plain text, no boxes."""
    result = run("--help")

    assert "run " in result.stdout
    assert "webhook " in result.stdout
