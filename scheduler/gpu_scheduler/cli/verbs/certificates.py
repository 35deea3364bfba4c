"""The verb that makes the webhook's certificate without a cluster: certificates."""

from __future__ import annotations

import re
import shlex
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from gpu_scheduler.certificate_days import CA_DAYS, RENEW_DAYS, SERVING_DAYS
from gpu_scheduler.cli.command_line import PATH
from gpu_scheduler.cli.options import RefusedInputError
from gpu_scheduler.names import SYSTEM_NAMESPACE, WEBHOOK

if TYPE_CHECKING:
    from gpu_scheduler.certificates.folder import IssueResult

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DAYS: Final = click.IntRange(1, 3650)


@click.option("--out", type=PATH, metavar="DIR", help="The folder to write.")
@click.option("--namespace", "-n", help="Where the webhook is installed.")
@click.option("--service", help="The Service whose names the certificate is made for.")
@click.option("--ca-days", type=_DAYS, help="Days that a new CA is valid.")
@click.option("--serving-days", type=_DAYS, help="Days that a new certificate is valid.")
@click.option("--force", is_flag=True, help="Issue a new certificate, due or not.")
@click.option("--new-ca", is_flag=True, help="Issue a new CA too; the one before stays trusted beside it.")
def certificates(  # noqa: PLR0913 - the options of a command
    *,
    out: str = "certs",
    namespace: str = SYSTEM_NAMESPACE,
    service: str = WEBHOOK,
    ca_days: int = CA_DAYS,
    serving_days: int = SERVING_DAYS,
    force: bool = False,
    new_ca: bool = False,
) -> None:
    """Write the webhook's CA and certificate as files, for an installation without the playbook.

    Needs no cluster. What is in the folder stays, except a certificate that is due.
    """
    _refuse_wrong(namespace, service, ca_days, serving_days)
    sys.stdout.write(_fill(Path(out), namespace, service, (ca_days, serving_days), (force, new_ca)))


def _refuse_wrong(namespace: str, service: str, ca_days: int, serving_days: int) -> None:
    from gpu_scheduler.core.text import quote

    for option, value, example in (("--namespace", namespace, SYSTEM_NAMESPACE), ("--service", service, WEBHOOK)):
        if not _LABEL.fullmatch(value):
            raise RefusedInputError(
                f"cannot use {option} {quote(value)}: it must be a DNS label, at most 63 of a-z, 0-9 and - "
                f"(example: {option} {example})"
            )
    due = RENEW_DAYS
    if serving_days <= due:
        raise RefusedInputError(
            f"cannot use --serving-days {serving_days}: a certificate is due {due} days before its end, so it must be "
            f"more (example: --serving-days {SERVING_DAYS})"
        )
    if ca_days < serving_days + due:
        raise RefusedInputError(
            f"cannot use --ca-days {ca_days}: it must be at least {serving_days + due}, {due} more than "
            f"--serving-days (example: --ca-days {CA_DAYS})"
        )


def _fill(folder: Path, namespace: str, service: str, days: tuple[int, int], anew: tuple[bool, bool]) -> str:
    """Write the folder; return what the user reads. `anew`: the certificate, the CA."""
    from gpu_scheduler.certificates.folder import Wanted, fill
    from gpu_scheduler.certificates.issuing import IssuingError, Terms, names_of

    ca_validity, validity, due = (timedelta(days=each) for each in (*days, RENEW_DAYS))
    terms = Terms(names_of(service, namespace), validity, due)
    try:
        outcome = fill(folder, Wanted(namespace, terms, ca_validity, *anew), datetime.now(UTC))
    except IssuingError as error:
        raise RefusedInputError(str(error)) from error
    except OSError as error:
        raise RefusedInputError(
            f"cannot write {folder}: {error.strerror}; choose another folder "
            "(example: gpu-scheduler certificates --out other)"
        ) from error
    return _report(folder, namespace, terms.names[0], outcome, rotates=anew[1] and outcome.has_previous)


def _report(folder: Path, namespace: str, name: str, outcome: IssueResult, *, rotates: bool) -> str:
    """Return what was done, what is in the folder, and the next two commands."""
    from gpu_scheduler.certificates.folder import BUNDLE_FILE, SECRETS_FILE

    secrets, bundle = (shlex.quote(str(folder / file)) for file in (SECRETS_FILE, BUNDLE_FILE))
    apply = f"kubectl apply -f {secrets}"
    action, options = ("upgrade", " --reuse-values") if rotates else ("install", "")
    helm = (
        f"helm {action} gpu-scheduler charts/gpu-scheduler -n {namespace}{options} "
        f'--set webhook.caBundle="$(base64 -w 0 {bundle})"'
    )
    # A CA is trusted before what it signed is served.
    first, second = (helm, apply) if rotates else (apply, helm)
    cas = "the CA and those before it" if outcome.has_previous else "the CA"
    return (
        f"{outcome.done}\n"
        f"  {secrets}: both Secrets with their keys; keep it secret, do not commit it\n"
        f"  {bundle}: {cas}, as caBundle\n"
        f"Valid: the CA until {outcome.ca_until:%Y-%m-%d}, the certificate of {name} until {outcome.until:%Y-%m-%d}.\n"
        f"Next, in this order, in a cluster with namespace {namespace}:\n"
        f"  {first}\n"
        f"  {second}\n"
    )
