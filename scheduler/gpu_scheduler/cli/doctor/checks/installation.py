"""Checks of what is installed: versions, Deployments, kinds, rights, limits."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from gpu_scheduler import names
from gpu_scheduler.cli.doctor.expected import DEPLOYMENTS, FLOW_SCHEMAS, KINDS
from gpu_scheduler.cli.doctor.findings import CheckFinding, Result, listed
from gpu_scheduler.cli.doctor.remedies import in_namespace, install_again

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_scheduler.cli.doctor.facts import Facts

OLDEST: Final = (1, 30)
"""The first version of Kubernetes with ValidatingAdmissionPolicies."""


def check_server_version(facts: Facts) -> Iterator[CheckFinding]:
    """The API server knows the policies that guard our pods."""
    version = facts.server_version.value
    if version < OLDEST:
        found, oldest = (".".join(map(str, each)) for each in (version, OLDEST))
        yield CheckFinding(
            f"the API server is Kubernetes {found}, and {oldest} or newer is needed", "upgrade the cluster"
        )


def check_builds(facts: Facts) -> Iterator[CheckFinding]:
    """All replicas run one build, and it is this command's version."""
    replicas = sorted((each.version, each.commit, each.pod) for each in facts.replicas.value if each.version)
    builds = {build: [pod for _, _, pod in pods] for build, pods in groupby(replicas, key=lambda replica: replica[:2])}
    if len(builds) > 1:
        found = "; ".join(f"{version} ({commit}) in {listed(pods)}" for (version, commit), pods in builds.items())
        yield CheckFinding(
            f"replicas run different builds: {found}", install_again(facts, "scheduler,webhook,controller")
        )
    versions = {version for version, _ in builds}
    if facts.own_version and versions and facts.own_version not in versions:
        yield CheckFinding(
            f"this command is {facts.own_version}, and the replicas run {listed(versions)}",
            "uv tool install --compile-bytecode ./scheduler",
            result=Result.WARNING,
        )


def check_deployments(facts: Facts) -> Iterator[CheckFinding]:
    """Each Deployment has all the replicas that it wants."""
    deployments = facts.deployments.value
    for component, name in DEPLOYMENTS.items():
        found, reference = deployments.get(name), f"deployment/{name}"
        if component == "webhook" and found is None and facts.injects_by_policy:
            continue
        if found is None:
            yield CheckFinding(
                f"Deployment {name} does not exist in namespace {facts.namespace}; "
                "if the scheduler is in another one, name it with --system-namespace",
                install_again(facts, component),
                reference,
            )
        elif not found.wanted:
            yield CheckFinding(
                f"Deployment {name} is scaled to 0", in_namespace(facts, f"scale {reference} --replicas=2"), reference
            )
        elif found.available < found.wanted:
            yield CheckFinding(
                f"Deployment {name} has {found.available} of {found.wanted} replicas available",
                in_namespace(facts, f"describe pods -l app.kubernetes.io/component={component}"),
                reference,
            )


def check_kinds(facts: Facts) -> Iterator[CheckFinding]:
    """The API server serves GPUNode and GPUWorkload."""
    for name in sorted(KINDS - facts.kinds.value):
        what = f"CustomResourceDefinition {name} does not exist or is not established"
        yield CheckFinding(what, install_again(facts, "crds"), f"customresourcedefinition/{name}")


def check_rights(facts: Facts) -> Iterator[CheckFinding]:
    """Each service account has the rights that its program needs."""
    for account, rights in sorted(facts.denied.value.items()):
        namespace, _, name = account.partition("/")
        yield CheckFinding(
            f"service account {name} of namespace {namespace} may not {'; '.join(rights)}",
            install_again(facts, _ROLES.get(name, "certificates")),
            f"serviceaccount/{name}",
        )


def check_priority(facts: Facts) -> Iterator[CheckFinding]:
    """A FlowSchema gives the requests of each program a priority that no tenant's have."""
    on_nodes = {names.MONITOR: facts.monitors.value, names.DRIVER: facts.drivers.value}
    expected = FLOW_SCHEMAS.union(name for name, daemon_set in on_nodes.items() if daemon_set is not None)
    for name in sorted(expected - facts.flow_schemas.value):
        yield CheckFinding(
            f"FlowSchema {name} does not exist: a tenant's requests can make those of service account {name} wait",
            install_again(facts, _ROLES[name]),
            f"flowschema/{name}",
        )


_ROLES: Final = {
    names.SCHEDULER_NAME: "scheduler,monitor",
    names.CONTROLLER: "controller",
    names.MONITOR: "monitor",
    names.DRIVER: "driver",
}
"""The roles that grant an account its rights and priority: the monitors' role lets the scheduler read their Leases."""


def check_limits(facts: Facts) -> Iterator[CheckFinding]:
    """Each line of the namespaces' limits can be read."""
    for fault in facts.limits_faults.value:
        yield CheckFinding(
            f"ConfigMap {names.LIMITS}: {fault}",
            in_namespace(facts, f"edit configmap {names.LIMITS}"),
            f"configmap/{names.LIMITS}",
        )
