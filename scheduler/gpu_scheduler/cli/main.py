"""The commands, their order in `--help`, and the console scripts.

A command imports what it needs when it runs, so that `--version` and `--help` do not load what reaches a cluster.
"""

from __future__ import annotations

import inspect
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from gpu_scheduler.cli.completion import completion, kubectl_words, prepare
from gpu_scheduler.cli.help_sections import SectionedGroup
from gpu_scheduler.cli.options import run_command, verb
from gpu_scheduler.cli.verbs.certificates import certificates
from gpu_scheduler.cli.verbs.describe import describe
from gpu_scheduler.cli.verbs.doctor import doctor
from gpu_scheduler.cli.verbs.explain import explain
from gpu_scheduler.cli.verbs.generate import generate_gpu_mapping, generate_template
from gpu_scheduler.cli.verbs.history import history
from gpu_scheduler.cli.verbs.lint import lint
from gpu_scheduler.cli.verbs.plan import plan
from gpu_scheduler.cli.verbs.replay import replay, snapshot
from gpu_scheduler.cli.verbs.show import health, nodes, status, workloads
from gpu_scheduler.cli.verbs.strategy import strategy
from gpu_scheduler.cli.verbs.submit import submit
from gpu_scheduler.cli.verbs.verify import verify
from gpu_scheduler.cli.verbs.version import version
from gpu_scheduler.cli.verbs.watch import watch
from gpu_scheduler.names import SCHEDULER_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

Kubeconfig = Annotated[
    str | None,
    typer.Option(help="Reach the cluster through this file; without it, through the pod's service account."),
]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig; its current one when left out.")]


_PROGRAMS_OF_PODS: Final = "Programs that our pods run"
SECTIONS: Final[dict[str, tuple[Callable[..., Any], ...]]] = {
    "Look": (status, nodes, workloads, health, describe, watch),
    "Answers": (explain, plan, lint, doctor, verify, history, snapshot, replay),
    "Change": (submit, strategy),
    "Write a first version": (generate_gpu_mapping, generate_template, certificates),
    "Help": (version, completion),
}
"""The verbs, by their section in `--help`."""
_LISTINGS: Final = (nodes, workloads, health)


def add_verbs(app: typer.Typer) -> None:
    """Register the verbs as commands of `app`."""
    for section, functions in SECTIONS.items():
        for function in functions:
            plain = not inspect.iscoroutinefunction(function)
            command = function if plain else verb(function, lists=function in _LISTINGS)
            app.command(function.__name__.replace("_", "-"), rich_help_panel=section)(command)


# Rich output is off: it would cost every process 10 MB and 0.1 s.
app = typer.Typer(
    name=SCHEDULER_NAME,
    cls=SectionedGroup,
    help="Says exactly which GPU on which node each replica gets.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer hands a flag over by position
    if wanted:
        from gpu_scheduler.cli.own_release import own_release

        version, commit = own_release()
        typer.echo(f"{SCHEDULER_NAME} {version} (commit {commit})")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[  # noqa: FBT002 - typer makes an option of it
        bool,
        typer.Option("--version", help="Print version and commit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Options before the command."""


add_verbs(app)


@app.command(rich_help_panel=_PROGRAMS_OF_PODS)
def run(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    leader_elect: Annotated[
        Literal["true", "false"],
        typer.Option(help="Elect a leader; false only if no other scheduler of these pods runs: two give GPUs twice."),
    ] = "true",
) -> None:
    """Schedule pods: watch, decide, bind; one of the replicas leads."""
    from gpu_scheduler.process.lifecycle import main_loop
    from gpu_scheduler.scheduler.run import run_scheduler
    from gpu_scheduler.settings import RunSettings

    elects = leader_elect == "true"
    main_loop(RunSettings, lambda settings: run_scheduler(settings, kubeconfig, context, leader_elect=elects))


@app.command(rich_help_panel=_PROGRAMS_OF_PODS)
def webhook() -> None:
    """Serve admission: inject the devices of pods whose placement is known, refuse pods that cannot be placed."""
    from gpu_scheduler.process.lifecycle import main_loop
    from gpu_scheduler.settings import WebhookSettings
    from gpu_scheduler.webhook.run import run_webhook

    main_loop(WebhookSettings, run_webhook)


@app.command(rich_help_panel=_PROGRAMS_OF_PODS)
def controller(kubeconfig: Kubeconfig = None, context: Context = None) -> None:
    """Make the pods of GPUWorkloads and write their status; one of the replicas leads."""
    from gpu_scheduler.controller.run import run_controller
    from gpu_scheduler.process.lifecycle import main_loop
    from gpu_scheduler.settings import LeaderSettings

    main_loop(LeaderSettings, lambda settings: run_controller(settings, kubeconfig, context))


@app.command(rich_help_panel=_PROGRAMS_OF_PODS)
def monitor(kubeconfig: Kubeconfig = None, context: Context = None) -> None:
    """Publish one node's GPUs: read them, write what changed on the node, and renew its Lease."""
    from gpu_scheduler.monitor.run import run_monitor
    from gpu_scheduler.process.lifecycle import main_loop
    from gpu_scheduler.settings import MonitorSettings

    main_loop(MonitorSettings, lambda settings: run_monitor(settings, kubeconfig, context))


@app.command(rich_help_panel=_PROGRAMS_OF_PODS)
def renew(kubeconfig: Kubeconfig = None, context: Context = None) -> None:
    """Renew the webhook's certificate if it is due, then end."""
    from gpu_scheduler.certificates.renewer import run_renewer
    from gpu_scheduler.process.lifecycle import main_loop
    from gpu_scheduler.settings import RenewerSettings

    main_loop(RenewerSettings, lambda settings: run_renewer(settings, kubeconfig, context))


@app.command(rich_help_panel=_PROGRAMS_OF_PODS)
def issue(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    secrets_only: Annotated[  # noqa: FBT002 - typer makes an option of it
        bool, typer.Option("--secrets-only", help="Leave the webhook's registrations alone: there may be none yet.")
    ] = False,
) -> None:
    """Make the webhook's CA and certificate where they are missing, let the API server trust the CA, then end."""
    from gpu_scheduler.certificates.issuer import run_issuer
    from gpu_scheduler.process.lifecycle import main_loop
    from gpu_scheduler.settings import IssuerSettings

    main_loop(IssuerSettings, lambda settings: run_issuer(settings, kubeconfig, context, secrets_only=secrets_only))


# The commands that our pods run, by their names.
_PROGRAMS: dict[str, Callable[[], None]] = {
    "run": run,
    "webhook": webhook,
    "controller": controller,
    "monitor": monitor,
    "renew": renew,
    "issue": issue,
}


def main(name: str = SCHEDULER_NAME) -> None:
    """Run the command line; `name` is the command as the user called it."""
    prepare(os.environ)
    _, *words = sys.argv
    if len(words) == 1 and words[0] in _PROGRAMS:
        # Without options typer's parser is not needed. It would load pydantic: 10 MB in each of our pods.
        _PROGRAMS[words[0]]()
        return
    run_command(app, name)


def plugin() -> None:
    """Run the console script `kubectl-gpu_scheduler`: kubectl calls it for `kubectl gpu-scheduler`."""
    main(f"kubectl {SCHEDULER_NAME}")


def complete() -> None:
    """Run the console script `kubectl_complete-gpu_scheduler`: kubectl calls it for completion."""
    sys.stdout.write(kubectl_words(main, sys.argv[1:]) + "\n")
