"""The commands as a user types them: exit codes, sentences, and modules that they must not load."""

import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

from gpu_scheduler.cli.main import complete, main, plugin
from tests.messages import text_of
from tests.waiting import limit
from unit_tests.cli.scripted_cluster import kubeconfig

PACKAGE = Path(__file__).resolve().parents[2]


def environment(**env: str) -> dict[str, str]:
    """Return only these variables, and those that measure coverage."""
    measured = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGE), **measured, **env}


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `gpu-scheduler` with these arguments and nothing else in its environment."""
    return subprocess.run(
        [sys.executable, "-m", "gpu_scheduler", *arguments],
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=limit(20),
        check=False,
    )


def typed(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `gpu-scheduler` with these arguments in this process."""
    return called(main, *arguments, **env)


def called(script: Callable[[], None], /, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Call a console script in this process, where it is a hundred times as fast, with nothing else in the environment.

    What it sets for its whole process is left out: the log, and that no garbage is collected.
    """
    code: object = 0
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    with (
        patch.dict(os.environ, env, clear=True),
        patch.object(sys, "argv", ["gpu-scheduler", *arguments]),
        patch("gc.disable"),
        patch("gpu_scheduler.process.logs.set_up_logging"),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            script()
        except SystemExit as end:
            code = end.code
    for stream in (out, err):
        stream.seek(0)
    return subprocess.CompletedProcess(arguments, int(str(code or 0)), out.read(), err.read())


def python(script: str) -> subprocess.CompletedProcess[str]:
    """Run this text of Python."""
    return subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=True)


def test_version_names_version_and_commit() -> None:
    """The first log line and the metric do too."""
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


NO_ACCOUNT = text_of("no service account leads to a cluster")


@pytest.mark.parametrize(
    ("command", "env", "sentence"),
    [
        (("run",), {"LOG_LEVEL": "LOUD"}, 'cannot use LOG_LEVEL "LOUD": '),
        (
            ("run", "--leader-elect=no"),
            {},
            "cannot run gpu-scheduler run: invalid value for '--leader-elect': 'no' is not",
        ),
        (("driver",), {}, 'cannot use NODE_NAME "": '),
        (
            ("driver",),
            {"NODE_NAME": "node1", "SIMULATED_DEVICE_MAJOR": "240"},
            'cannot use SIMULATED_DEVICE_MAJOR "240": must be 60 to 63 or 120 to 127, ',
        ),
        (("renew",), {"SERVING_DAYS": "30"}, 'cannot use RENEW_DAYS, SERVING_DAYS "30, 30": '),
        (("renew",), {"RENEW_DAYS": "0"}, 'cannot use RENEW_DAYS "0": '),
        (("issue",), {"CA_DAYS": "394"}, 'cannot use CA_DAYS "394": '),
        (("issue",), {"REGISTRATION_TIMEOUT": "2"}, 'cannot use REGISTRATION_TIMEOUT "2": '),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    command: tuple[str, ...], env: dict[str, str], sentence: str
) -> None:
    """With an example of valid input."""
    assert_refused(typed(*command, **env), sentence)


@pytest.mark.parametrize(
    ("command", "env", "sentence"),
    [
        (("run",), {}, NO_ACCOUNT),
        (("run", "--kubeconfig", "/nowhere"), {}, "cannot reach a cluster through kubeconfig /nowhere: "),
        (("run", "--leader-elect=false"), {}, NO_ACCOUNT),
        (("controller",), {}, NO_ACCOUNT),
        (("webhook",), {"CERTIFICATE_DIR": "/nowhere"}, text_of("the webhook has no certificate")),
        (("driver",), {"NODE_NAME": "node1"}, NO_ACCOUNT),
        (("monitor",), {"NODE_NAME": "node1"}, NO_ACCOUNT),
        (("renew",), {}, NO_ACCOUNT),
        (("issue",), {}, NO_ACCOUNT),
        (("issue", "--secrets-only"), {}, NO_ACCOUNT),
    ],
)
def test_a_program_that_cannot_start_says_so_in_one_sentence(
    command: tuple[str, ...], env: dict[str, str], sentence: str
) -> None:
    """After its first log line; without a traceback."""
    assert_refused(run(*command, **env), sentence)


def assert_refused(result: subprocess.CompletedProcess[str], sentence: str) -> None:
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith(sentence)
    assert "example: " in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


GRPC = ("grpc", "google.protobuf")


@pytest.mark.parametrize(
    ("modules", "never"),
    [
        ("gpu_scheduler.webhook.run", {"kubernetes", "pydantic", "rich", "cryptography", *GRPC}),
        ("gpu_scheduler.monitor.run", {"kubernetes", "pydantic", "rich", "pynvml", "yaml", "cryptography", *GRPC}),
        ("gpu_scheduler.driver.run", {"kubernetes", "pydantic", "rich", "pynvml", "yaml", "cryptography"}),
        ("gpu_scheduler.controller.run", {"rich", "kubernetes", "cryptography", *GRPC}),
        ("gpu_scheduler.scheduler.run", {"rich", "kubernetes", "cryptography", *GRPC}),
        ("gpu_scheduler.certificates.renewer", {"rich", "kubernetes", *GRPC}),
        (
            "gpu_scheduler.cli.main",
            {"kubernetes", "rich", "aiohttp", "pythonjsonlogger", "prometheus_client", "yaml", "cryptography", *GRPC},
        ),
    ],
)
def test_unneeded_modules_are_not_loaded(modules: str, never: set[str]) -> None:
    """The Kubernetes client costs 50 MB and rich 10, in every replica."""
    script = (
        f"import sys, {modules}, gpu_scheduler.process.lifecycle; import gpu_scheduler.settings; "
        "print('\\n'.join(name for name, module in sys.modules.items() if module is not None))"
    )

    result = python(script)

    assert never & set(result.stdout.split()) == set()


def test_help_waits_for_no_slow_module() -> None:
    """Each of them would cost every call of every verb 20 ms and more."""
    script = "import sys; sys.argv = ['x', 'nodes', '-h']\nfrom gpu_scheduler.cli.main import main\n"
    script += "try: main()\nfinally: print(*sys.modules, file=sys.stderr)"

    result = python(script)

    assert {"asyncio", "msgspec", "pydantic", "gpu_scheduler.settings"} & set(result.stderr.split()) == set()


@pytest.mark.parametrize("verb", ["nodes", "lint"])
def test_help_shows_defaults_as_a_user_writes_them(verb: str) -> None:
    """Also those of a verb's own formats."""
    assert "[default: table]" in " ".join(typed(verb, "--help").stdout.split())


@pytest.mark.parametrize("verb", ["status", "nodes", "workloads", "submit", "strategy", "watch", "health", "doctor"])
def test_all_verbs_share_their_options(verb: str) -> None:
    """A user of one verb knows the options of all."""
    result = typed(verb, "-h", TERM="dumb", COLUMNS="200")

    options = ["-n, --namespace", "-A, --all-namespaces", "--kubeconfig", "--context", "-o, --output", "--no-headers"]
    assert [option for option in (*options, "--log-level", "-h, --help") if option not in result.stdout] == []


USAGE = {
    "an unknown command": (("nodse",), "cannot run gpu-scheduler: no such command 'nodse'. Did you mean 'nodes'?"),
    "an unknown option": (("nodes", "--quick"), "cannot run gpu-scheduler nodes: no such option: --quick"),
    "an unknown output form": (
        ("nodes", "-o", "xml"),
        'cannot print "xml": ',
    ),
    "a format with an expression that it does not take": (("nodes", "-o", "json=x"), 'cannot print "json=x": the '),
    "no expression": (("nodes", "-o", "jsonpath"), 'cannot print "jsonpath": '),
    "no file": (("submit",), "cannot run gpu-scheduler submit: missing argument 'FILE'"),
    "no number": (
        ("generate-gpu-mapping", "--per-pod", "0"),
        "cannot run gpu-scheduler generate-gpu-mapping: invalid value for '--per-pod': ",
    ),
    "an unknown strategy": (("strategy", "fastest"), 'cannot use strategy "fastest": '),
    "no cluster": (("status",), text_of("no cluster is named")),
}


@pytest.mark.parametrize(("words", "sentence"), USAGE.values(), ids=USAGE)
def test_wrong_usage_is_one_sentence_and_exit_code_2(words: tuple[str, ...], sentence: str) -> None:
    """With an example."""
    result = typed(*words, HOME="/nowhere")

    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(sentence)
    assert result.stderr.count("\n") == 1
    assert "example: " in result.stderr


def test_an_unreachable_cluster_is_reported_within_5_seconds(tmp_path: Path) -> None:
    """With its address and what to try; exit code 1."""
    config = tmp_path / "config"
    config.write_text(json.dumps(kubeconfig("https://127.0.0.1:1")), encoding="utf-8")

    result = run("status", KUBECONFIG=str(config))

    assert (result.returncode, result.stdout) == (1, "")
    assert " https://127.0.0.1:1 (context test): connection refused; " in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_call_without_a_command_shows_the_usage() -> None:
    """On standard error, because it is no result."""
    result = typed()

    assert result.returncode == 2
    assert result.stderr.startswith("Usage: gpu-scheduler [OPTIONS] COMMAND")


@pytest.mark.promise("cli-8")
def test_kubectl_calls_the_same_program() -> None:
    """Errors name the program as it was called."""
    result = called(plugin, "nodse")

    assert result.returncode == 2
    assert result.stderr.startswith("cannot run kubectl gpu-scheduler: no such command")
    assert "(example: kubectl gpu-scheduler --help)" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete_words(shell: str) -> None:
    """The completion script calls the program."""
    result = typed("completion", shell)

    assert result.returncode == 0
    assert f"_GPU_SCHEDULER_COMPLETE={shell}_complete" in result.stdout


WORDS = {
    "commands": (("st",), ["status", "strategy"]),
    "options": (("nodes", "--no"), ["--no-headers"]),
    "strategies": (("strategy", ""), ["least_utilized", "best_fit", "priority", "round_robin"]),
    "forms": (("nodes", "-o", "w"), ["wide"]),
}


@pytest.mark.promise("cli-8")
@pytest.mark.parametrize(("words", "offered"), WORDS.values(), ids=WORDS)
def test_words_are_offered(words: tuple[str, ...], offered: list[str]) -> None:
    """Bash and kubectl each get them in their own format."""
    line = shlex.join(("gpu-scheduler", *words))
    in_bash = typed(COMP_WORDS=line, COMP_CWORD=str(len(words)), _GPU_SCHEDULER_COMPLETE="bash_complete")
    by_kubectl = called(complete, *words)

    assert in_bash.stdout.split() == [f"plain,{word}" for word in offered]
    assert by_kubectl.stdout.split() == [*offered, ":4"]


def test_kubectl_offers_files_where_nothing_else_is_known() -> None:
    """`submit` takes a file."""
    assert called(complete, "submit", "").stdout.split() == [":0"]
