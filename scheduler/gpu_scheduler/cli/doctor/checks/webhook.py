"""Checks of how pods of ours get their variables: by the webhook, or by a policy in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpu_scheduler.cli.doctor.expected import CLAIM_WEBHOOKS, MUTATING, WEBHOOKS
from gpu_scheduler.cli.doctor.findings import CheckFinding, Result, listed
from gpu_scheduler.cli.doctor.remedies import in_namespace, install_again
from gpu_scheduler.names import VISIBLE_DEVICES, WEBHOOK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_scheduler.cli.doctor.facts import Answer, Facts

_NOT_CALLED: Final = "failed calling webhook"
_MUTATING: Final = f"mutatingwebhookconfiguration/{WEBHOOK}"
_VALIDATING: Final = f"validatingwebhookconfiguration/{WEBHOOK}"
_PODS: Final = "describe pods -l app.kubernetes.io/component=webhook"


def check_registrations(facts: Facts) -> Iterator[CheckFinding]:
    """The webhook is registered for everything that it reviews."""
    if facts.injects_by_policy:
        return
    missing = (WEBHOOKS | CLAIM_WEBHOOKS if facts.isolates.value else WEBHOOKS) - facts.webhooks.value
    if missing:
        what = f"the API server does not call {listed(missing)}: not registered"
        yield CheckFinding(what, install_again(facts, "webhook"), _MUTATING if missing & MUTATING else _VALIDATING)


def check_injection(facts: Facts) -> Iterator[CheckFinding]:
    """A pod of ours gets the variables that show its containers their devices."""
    by_policy = facts.injects_by_policy
    # What is not there is reported by another check, and injects nothing.
    if not (facts.injection.value.exists if by_policy else facts.webhooks.value >= WEBHOOKS):
        return
    answer = facts.our_pod.value
    if answer.accepted:
        if not answer.injected:
            yield CheckFinding(
                f"the {'policy' if by_policy else 'webhook'} does not inject {VISIBLE_DEVICES} into a new pod of ours",
                install_again(facts, "policies") if by_policy else in_namespace(facts, _PODS),
            )
    elif _NOT_CALLED in answer.message:
        by_certificate = "tls:" in answer.message
        yield CheckFinding(
            f"the API server cannot call the webhook: {answer.message}",
            install_again(facts, "certificates,webhook") if by_certificate else in_namespace(facts, _PODS),
            _MUTATING,
        )
    else:
        yield refused_otherwise(facts, answer)


def refused_otherwise(facts: Facts, answer: Answer) -> CheckFinding:
    """Return the finding that a pod of a dry run is refused by something that is not ours."""
    return CheckFinding(
        f"cannot check what happens to new pods: the API server refuses a pod in namespace {facts.namespace} "
        f"for another reason: {answer.message}",
        "let your own admission policies accept pods as the scheduler's Deployment makes them",
        result=Result.UNKNOWN,
    )
