"""The commands, their order in `--help`, and the console scripts.

What a command needs is imported when it runs, so that `--version` and the webhook never pay for the Kubernetes client.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gpu_scheduler.cli.completion import completion, kubectl_words, prepare
from gpu_scheduler.cli.options import run_command, verb
from gpu_scheduler.cli.verbs.generate import generate_gpu_mapping, generate_template
from gpu_scheduler.cli.verbs.show import health, nodes, status, workloads
from gpu_scheduler.cli.verbs.strategy import strategy
from gpu_scheduler.cli.verbs.submit import submit
from gpu_scheduler.cli.verbs.watch import watch
from gpu_scheduler.names import SCHEDULER_NAME

if TYPE_CHECKING:
    from collections.abc import Callable


def add_verbs(app: typer.Typer) -> None:
    """Make commands of them."""
    for work in (status, nodes, workloads, submit, strategy, watch, health, generate_gpu_mapping):
        app.command(work.__name__.replace("_", "-"))(verb(work))
    app.command("generate-template")(generate_template)
    app.command("completion")(completion)


# typer's rich output would cost every process 10 MB and 0.1 s.
app = typer.Typer(
    name=SCHEDULER_NAME,
    help="Says exactly which GPU on which node each replica gets.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer hands a flag over by position
    if wanted:
        from gpu_scheduler.process.lifecycle import own_name
        from gpu_scheduler.settings import CommonSettings, read_settings

        typer.echo(own_name(read_settings(CommonSettings)))
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[  # noqa: FBT002 - typer makes an option of it
        bool,
        typer.Option("--version", help="Print version and commit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Options before the command."""


@app.command()
def run(
    kubeconfig: Annotated[
        str | None,
        typer.Option(help="Reach the cluster through this file; without it, through the pod's service account."),
    ] = None,
    context: Annotated[
        str | None, typer.Option(help="Context of the kubeconfig; its current one when left out.")
    ] = None,
) -> None:
    """Schedule pods: watch, decide, bind; one of the replicas leads."""
    from gpu_scheduler.process.lifecycle import main_loop
    from gpu_scheduler.scheduler.run import run_scheduler
    from gpu_scheduler.settings import RunSettings

    main_loop(RunSettings, lambda settings: run_scheduler(settings, kubeconfig, context))


@app.command()
def webhook() -> None:
    """Serve admission: inject the devices of pods whose place is known, refuse what cannot be placed."""
    from gpu_scheduler.process.lifecycle import main_loop
    from gpu_scheduler.settings import WebhookSettings
    from gpu_scheduler.webhook.run import run_webhook

    main_loop(WebhookSettings, run_webhook)


@app.command()
def controller(
    kubeconfig: Annotated[
        str | None,
        typer.Option(help="Reach the cluster through this file; without it, through the pod's service account."),
    ] = None,
    context: Annotated[
        str | None, typer.Option(help="Context of the kubeconfig; its current one when left out.")
    ] = None,
) -> None:
    """Make the pods of GPUWorkloads and tell what becomes of them; one of the replicas leads."""
    from gpu_scheduler.controller.run import run_controller
    from gpu_scheduler.process.lifecycle import main_loop
    from gpu_scheduler.settings import LeaderSettings

    main_loop(LeaderSettings, lambda settings: run_controller(settings, kubeconfig, context))


@app.command()
def monitor(
    kubeconfig: Annotated[
        str | None,
        typer.Option(help="Reach the cluster through this file; without it, through the pod's service account."),
    ] = None,
    context: Annotated[
        str | None, typer.Option(help="Context of the kubeconfig; its current one when left out.")
    ] = None,
) -> None:
    """Tell of one node's GPUs: read them, write what is news on the node, and say that it is still so."""
    from gpu_scheduler.monitor.run import run_monitor
    from gpu_scheduler.process.lifecycle import main_loop
    from gpu_scheduler.settings import MonitorSettings

    main_loop(MonitorSettings, lambda settings: run_monitor(settings, kubeconfig, context))


add_verbs(app)
# What our pods run, as they call it.
_SERVING: dict[str, Callable[[], None]] = {"run": run, "webhook": webhook, "controller": controller, "monitor": monitor}


def main(name: str = SCHEDULER_NAME) -> None:
    """The console script; `name` is how it was called."""
    prepare(os.environ)
    _, *words = sys.argv
    if len(words) == 1 and words[0] in _SERVING:
        # There is nothing to parse, and typer's parser would load pydantic: 10 MB in each of our pods.
        _SERVING[words[0]]()
        return
    run_command(app, name)


def plugin() -> None:
    """The console script `kubectl-gpu_scheduler`: kubectl calls it for `kubectl gpu-scheduler`."""
    main(f"kubectl {SCHEDULER_NAME}")


def complete() -> None:
    """The console script `kubectl_complete-gpu_scheduler`: kubectl asks it for words."""
    sys.stdout.write(kubectl_words(main, sys.argv[1:]) + "\n")
