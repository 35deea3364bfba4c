"""The commands, their order in `--help`, and the console scripts.

A command imports what it needs when it runs, so that `--version` and `--help` do not load what reaches a cluster.
"""

from __future__ import annotations

import sys
from typing import Final

import click

from gpu_scheduler.cli.command_line import PATH, SETTINGS, command, run_command, verb
from gpu_scheduler.cli.completion import completion, kubectl_words
from gpu_scheduler.cli.help_sections import SectionedGroup
from gpu_scheduler.cli.verbs.certificates import certificates
from gpu_scheduler.cli.verbs.cordon import cordon, drain, uncordon
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

_kubeconfig = click.option(
    "--kubeconfig",
    type=PATH,
    help="Reach the cluster through this file; without it, through the pod's service account.",
)
_context = click.option("--context", help="Context of the kubeconfig; its current one when left out.")


@_kubeconfig
@_context
@click.option(
    "--leader-elect",
    type=click.Choice(("true", "false")),
    help="Elect a leader; false only if no other scheduler of these pods runs: two give GPUs twice.",
)
def run(kubeconfig: str | None, context: str | None, leader_elect: str = "true") -> None:
    """Schedule pods: watch, decide, bind; one of the replicas leads."""
    from gpu_scheduler.process.lifecycle import main_loop
    from gpu_scheduler.scheduler.run import run_scheduler
    from gpu_scheduler.settings import RunSettings

    elects = leader_elect == "true"
    main_loop(RunSettings, lambda settings: run_scheduler(settings, kubeconfig, context, leader_elect=elects))


def webhook() -> None:
    """Serve admission: inject the devices of pods whose placement is known, refuse pods that cannot be placed."""
    from gpu_scheduler.process.lifecycle import main_loop
    from gpu_scheduler.settings import WebhookSettings
    from gpu_scheduler.webhook.run import run_webhook

    main_loop(WebhookSettings, run_webhook)


@_kubeconfig
@_context
def controller(kubeconfig: str | None, context: str | None) -> None:
    """Make the pods of GPUWorkloads and write their status; one of the replicas leads."""
    from gpu_scheduler.controller.run import run_controller
    from gpu_scheduler.process.lifecycle import main_loop
    from gpu_scheduler.settings import LeaderSettings

    main_loop(LeaderSettings, lambda settings: run_controller(settings, kubeconfig, context))


@_kubeconfig
@_context
def monitor(kubeconfig: str | None, context: str | None) -> None:
    """Publish one node's GPUs: read them, write what changed on the node, and renew its Lease."""
    from gpu_scheduler.monitor.run import run_monitor
    from gpu_scheduler.process.lifecycle import main_loop
    from gpu_scheduler.settings import MonitorSettings

    main_loop(MonitorSettings, lambda settings: run_monitor(settings, kubeconfig, context))


@_kubeconfig
@_context
def driver(kubeconfig: str | None, context: str | None) -> None:
    """Serve one node's kubelet: publish the GPUs as ResourceSlices, and prepare the claims that allocate them."""
    from gpu_scheduler.driver.run import run_driver
    from gpu_scheduler.process.lifecycle import main_loop
    from gpu_scheduler.settings import DriverSettings

    main_loop(DriverSettings, lambda settings: run_driver(settings, kubeconfig, context))


@_kubeconfig
@_context
def renew(kubeconfig: str | None, context: str | None) -> None:
    """Renew the webhook's certificate if it is due, then end."""
    from gpu_scheduler.certificates.renewer import run_renewer
    from gpu_scheduler.process.lifecycle import main_loop
    from gpu_scheduler.settings import RenewerSettings

    main_loop(RenewerSettings, lambda settings: run_renewer(settings, kubeconfig, context))


@_kubeconfig
@_context
@click.option("--secrets-only", is_flag=True, help="Leave the webhook's registrations alone: there may be none yet.")
def issue(kubeconfig: str | None, context: str | None, *, secrets_only: bool) -> None:
    """Make the webhook's CA and certificate where they are missing, let the API server trust the CA, then end."""
    from gpu_scheduler.certificates.issuer import run_issuer
    from gpu_scheduler.process.lifecycle import main_loop
    from gpu_scheduler.settings import IssuerSettings

    main_loop(IssuerSettings, lambda settings: run_issuer(settings, kubeconfig, context, secrets_only=secrets_only))


def _print_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click hands a flag over by position
    if wanted:
        from gpu_scheduler.cli.own_release import own_release

        number, commit = own_release()
        click.echo(f"{SCHEDULER_NAME} {number} (commit {commit})")
        ctx.exit()


app: Final = SectionedGroup(
    name=SCHEDULER_NAME,
    help="Says exactly which GPU on which node each replica gets.",
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Print version and commit.",
        )
    ],
    context_settings=SETTINGS,
)
app.add_section(
    "Look",
    verb(status),
    verb(nodes, lists=True),
    verb(workloads, lists=True),
    verb(health, lists=True),
    verb(describe),
    verb(watch),
)
app.add_section(
    "Answers",
    verb(explain),
    verb(plan),
    verb(lint, without=["all_namespaces"]),
    verb(doctor),
    verb(verify),
    verb(history),
    verb(snapshot),
    verb(replay),
)
app.add_section("Change", verb(submit), verb(strategy), verb(cordon), verb(uncordon), verb(drain))
app.add_section("Write a first version", verb(generate_gpu_mapping), command(generate_template), command(certificates))
app.add_section("Help", verb(version), command(completion))
app.add_section(
    "Programs that our pods run",
    command(run),
    command(webhook),
    command(controller),
    command(monitor),
    command(driver),
    command(renew),
    command(issue),
)


def main(name: str = SCHEDULER_NAME) -> None:
    """Run the command line; `name` is the command as the user called it."""
    run_command(app, name)


def plugin() -> None:
    """Run the console script `kubectl-gpu_scheduler`: kubectl calls it for `kubectl gpu-scheduler`."""
    main(f"kubectl {SCHEDULER_NAME}")


def complete() -> None:
    """Run the console script `kubectl_complete-gpu_scheduler`: kubectl calls it for completion."""
    sys.stdout.write(kubectl_words(app, sys.argv[1:]) + "\n")
