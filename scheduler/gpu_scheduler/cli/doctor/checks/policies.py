"""Checks of the admission policies that guard our pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_scheduler.cli.doctor.checks.webhook import refused_otherwise
from gpu_scheduler.cli.doctor.expected import ASSIGNMENTS, CLAIM_GUARDS, DRIVER_GUARD, ENVIRONMENT, GUARDS, INJECTION
from gpu_scheduler.cli.doctor.findings import CheckFinding
from gpu_scheduler.cli.doctor.remedies import install_again

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_scheduler.cli.doctor.facts import AdmissionPolicy, Facts


def check_policies(facts: Facts) -> Iterator[CheckFinding]:
    """Each policy exists, refuses when it cannot be evaluated, and is bound."""
    ours = GUARDS | CLAIM_GUARDS if facts.isolates.value else GUARDS
    expected = {name: facts.policies.value[name] for name in sorted(ours)}
    faults = [_fault("ValidatingAdmissionPolicy", name, policy) for name, policy in expected.items()]
    if facts.injects_by_policy:
        faults.append(_fault("ValidatingAdmissionPolicy", ENVIRONMENT, facts.policies.value[ENVIRONMENT]))
        faults.append(_fault("MutatingAdmissionPolicy", INJECTION, facts.injection.value))
    for what, reference in filter(None, faults):
        yield CheckFinding(what, install_again(facts, "policies"), reference)


def _fault(kind: str, name: str, policy: AdmissionPolicy) -> tuple[str, str] | None:
    """Return what is wrong with the policy, and the object; None if it is in force."""
    binding = f"{kind}Binding"
    if not policy.exists:
        what, at = f"{kind} {name} does not exist: the API server no longer enforces it", kind
    elif not policy.bound:
        what, at = f"{binding} {name} does not exist or is of another policy: {kind} {name} is not in force", binding
    elif not policy.denies:
        what, at = f"{binding} {name} does not refuse requests: its validationActions have no Deny", binding
    elif not policy.fails_closed:
        what, at = f"{kind} {name} lets requests pass that it cannot evaluate: its failurePolicy is not Fail", kind
    else:
        return None
    return what, f"{at.lower()}/{name}"


def check_driver_policy(facts: Facts) -> Iterator[CheckFinding]:
    """Where drivers of ours run, each writes only what its node has."""
    if facts.drivers.value is None:
        return
    fault = _fault("ValidatingAdmissionPolicy", DRIVER_GUARD, facts.policies.value[DRIVER_GUARD])
    if fault is not None:
        yield CheckFinding(fault[0], install_again(facts, "driver"), fault[1])


def check_guarded(facts: Facts) -> Iterator[CheckFinding]:
    """The API server refuses a pod whose assignment is forged."""
    if _fault("", ASSIGNMENTS, facts.policies.value[ASSIGNMENTS]) is not None:
        return
    answer = facts.forged_pod.value
    if answer.accepted:
        yield CheckFinding(
            f"the API server accepts a pod with a forged assignment, although policy {ASSIGNMENTS} exists",
            install_again(facts, "policies"),
            f"validatingadmissionpolicy/{ASSIGNMENTS}",
        )
    elif ASSIGNMENTS not in answer.message:
        yield refused_otherwise(facts, answer)
