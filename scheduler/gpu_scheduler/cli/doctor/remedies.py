"""Commands that correct what a check found."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from gpu_scheduler.names import RENEWER, SERVING_SECRET

if TYPE_CHECKING:
    from gpu_scheduler.cli.doctor.facts import Facts


def in_namespace(facts: Facts, command: str) -> str:
    """Return a command of kubectl for the namespace of the scheduler."""
    return f"kubectl {command} -n {shlex.quote(facts.namespace)}"


def install_again(facts: Facts, roles: str) -> str:
    """Return the command by which whoever installed gpu-scheduler applies its objects again, or these roles' alone."""
    match facts.installer.name:
        case "Helm":
            release, namespace = shlex.quote(facts.installer.release), shlex.quote(facts.namespace)
            return f"helm upgrade {release} charts/gpu-scheduler -n {namespace} --reuse-values"
        case "kubectl":
            return "kubectl apply -k manifests"
        case _:
            return f"make up ARGS='--tags {roles}'"


def renew_certificate(facts: Facts, renewer: str) -> str:
    """Return the command that renews the webhook's certificate, or shows why `renewer` does not."""
    if renewer == RENEWER:
        return in_namespace(facts, f"create job {RENEWER}-now --from=cronjob/{RENEWER}")
    if renewer:
        return in_namespace(facts, f"describe certificate {SERVING_SECRET}")
    return install_again(facts, "certificates,webhook")
