"""The table of checks, and what they find."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpu_scheduler.cli.doctor.checks import certificate, drivers, gpus, installation, policies, replicas, webhook
from gpu_scheduler.cli.doctor.facts import UnreadFactError
from gpu_scheduler.cli.doctor.findings import CheckFinding, Result
from gpu_scheduler.core.immutable import immutable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpu_scheduler.cli.doctor.facts import Facts

    Find = Callable[[Facts], Iterator[CheckFinding]]


@immutable
class Check:
    """One area of an installation, and what is true of it where nothing is found."""

    name: str
    passed: str
    finds: tuple[Find, ...]


CHECKS: Final = (
    Check(
        "versions",
        "the API server is new enough, and all replicas and this command are of one version",
        (installation.check_server_version, installation.check_builds),
    ),
    Check("deployments", "all replicas are available", (installation.check_deployments,)),
    Check("kinds", "GPUNode and GPUWorkload are served", (installation.check_kinds,)),
    Check("rights", "each service account has the rights that its program needs", (installation.check_rights,)),
    Check("priority", "no tenant's requests make those of our programs wait", (installation.check_priority,)),
    Check(
        "policies",
        "all are in force, and a forged assignment is refused",
        (policies.check_policies, policies.check_driver_policy, policies.check_guarded),
    ),
    Check("webhook", "a new pod gets its variables", (webhook.check_registrations, webhook.check_injection)),
    Check(
        "certificate",
        "it is valid, served and trusted",
        (certificate.check_certificate, certificate.check_trust, certificate.check_served),
    ),
    Check(
        "leader",
        "a replica of the scheduler and one of the controller lead",
        (replicas.check_leases, replicas.check_holders),
    ),
    Check(
        "readiness",
        "each replica has complete caches and current watches",
        (replicas.check_running, replicas.check_readiness),
    ),
    Check("monitors", "each monitor renews its Lease", (gpus.check_monitors, gpus.check_monitor_leases)),
    Check(
        "drivers",
        "where claims are allocated, each GPU has a driver",
        (drivers.check_drivers, drivers.check_published, drivers.check_claims),
    ),
    Check(
        "clock",
        "this machine, the leaders and the API server agree",
        (replicas.check_own_clock, replicas.check_leaders_clocks, replicas.check_monitors_clocks),
    ),
    Check("nodes", "no node has pods of a device plugin beside pods with named GPUs", (gpus.check_mixed_nodes,)),
    Check(
        "pods",
        "each pod has its GPUs, and none is held twice",
        (gpus.check_drift, gpus.check_moved, gpus.check_conflicts),
    ),
    Check("limits", "each line can be read", (installation.check_limits,)),
)
"""Every check, in the order in which a reader asks: what is installed, what is asked, what runs, what is held."""


def examine(facts: Facts) -> list[CheckFinding]:
    """Return what all checks find, and one with result OK for each check that finds nothing; those come last."""
    found, passed = [], []
    for check in CHECKS:
        # A fact that several questions of a check need is reported once.
        findings = list(dict.fromkeys(finding for find in check.finds for finding in _ask(find, check.name, facts)))
        found += findings
        if not findings:
            passed.append(CheckFinding(check.passed, "", result=Result.OK, check=check.name))
    return found + passed


def _ask(find: Find, name: str, facts: Facts) -> Iterator[CheckFinding]:
    try:
        for finding in find(facts):
            yield replace(finding, check=name)
    except UnreadFactError as error:
        yield CheckFinding(f"cannot check {name}: {error}", error.fact.remedy, result=Result.UNKNOWN, check=name)
