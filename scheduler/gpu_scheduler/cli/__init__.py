"""The command line: one file a command group, and the only place that wires things together.

What a command needs is imported when it runs, so that `--version` and the webhook never pay for the Kubernetes client.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Annotated

import typer

from gpu_scheduler.names import SCHEDULER_NAME

if TYPE_CHECKING:
    from gpu_scheduler.settings import CommonSettings

# typer's rich output would cost every process 10 MB and 0.1 s.
app = typer.Typer(
    name=SCHEDULER_NAME,
    help="Says exactly which GPU on which node each replica gets.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def own_version() -> str:
    """The package's version, as its metadata tells; `0+unknown` when it was never installed."""
    try:
        return version(SCHEDULER_NAME)
    except PackageNotFoundError:
        return "0+unknown"


def own_name(settings: CommonSettings) -> str:
    """Name, version and commit, as `--version` and the first log line tell them."""
    return f"{SCHEDULER_NAME} {own_version()} (commit {settings.gpu_scheduler_commit})"


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer hands a flag over by position
    if wanted:
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
    from gpu_scheduler.cli.run import run_scheduler
    from gpu_scheduler.cli.serving import main_loop
    from gpu_scheduler.settings import RunSettings

    main_loop(RunSettings, lambda settings: run_scheduler(settings, kubeconfig, context))


@app.command()
def webhook() -> None:
    """Serve admission: inject the devices of pods whose place is known, refuse what cannot be placed."""
    from gpu_scheduler.cli.serving import main_loop
    from gpu_scheduler.cli.webhook import run_webhook
    from gpu_scheduler.settings import WebhookSettings

    main_loop(WebhookSettings, run_webhook)


def main() -> None:
    """The console script."""
    app()
