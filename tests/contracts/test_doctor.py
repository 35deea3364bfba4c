"""Verb `doctor` expects of an installation exactly what the roles' templates make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jinja2
import pytest
import yaml

from gpu_scheduler.cli.doctor import expected, rights
from tests.contracts.rendering import KIND, render, rendered
from tests.contracts.rights import ACCOUNTS, ISOLATING, RIGHTS
from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from gpu_scheduler.cli.doctor.rights import Account
    from tests.contracts.rendering import Case
    from tests.contracts.rights import Rights

ROLES_OF_CHECKS = ("scheduler", "policies", "webhook", "controller")
WITH_CLAIMS = {"isolation": "dra"}
DRIVEN = {"isolation": "dra", "monitor_source": "simulated"}
SYSTEM = "gpu-scheduler-system"
SIMULATED_ONLY = ("", "pods", "")
"""A right of the monitors that only simulated GPUs need."""


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return all manifests of the roles that make what `doctor` checks, rendered by Ansible itself."""
    # One run renders what else this file needs.
    folder = tmp_path_factory.mktemp("manifests")
    own: list[Case] = [(role, {}) for role in ROLES_OF_CHECKS]
    render(folder, KIND, [*own, ("webhook", WITH_CLAIMS), ("driver", DRIVEN)])
    return rendered(folder, ROLES_OF_CHECKS)


def names_of(manifests: list[dict[str, Any]], kind: str) -> set[str]:
    return {each["metadata"]["name"] for each in manifests if each["kind"] == kind}


@pytest.mark.promise("doctor-3")
def test_policies_are_those_of_the_templates(manifests: list[dict[str, Any]]) -> None:
    """And a binding has the name of its policy."""
    refusing = {*expected.GUARDS, *expected.CLAIM_GUARDS, expected.ENVIRONMENT}

    assert names_of(manifests, "ValidatingAdmissionPolicy") == refusing
    assert names_of(manifests, "ValidatingAdmissionPolicyBinding") == refusing
    assert names_of(manifests, "MutatingAdmissionPolicy") == {expected.INJECTION}
    assert names_of(manifests, "MutatingAdmissionPolicyBinding") == {expected.INJECTION}
    bindings = [each for each in manifests if each["kind"].endswith("PolicyBinding")]
    assert all(each["spec"]["policyName"] == each["metadata"]["name"] for each in bindings)


def test_policies_of_other_inputs_are_those_that_the_play_applies() -> None:
    """Only with `isolation: dra` does it apply the policies for claims, and with `injection: policy` the last two."""
    variables = yaml.safe_load((ROOT / "roles" / "policies" / "vars" / "main.yml").read_text())
    chosen = jinja2.Environment(autoescape=True).compile_expression(variables["_policies_guards"].strip("{} "))

    def applied(isolation: str) -> str:
        templates = chosen(policies_isolation=isolation) or ()
        return "".join((ROOT / "roles" / "policies" / "templates" / name).read_text() for name in templates)

    claims = expected.GUARDS | expected.CLAIM_GUARDS
    assert {name for name in claims if f"name: {name}," in applied("env")} == expected.GUARDS
    assert {name for name in claims if f"name: {name}," in applied("dra")} == claims
    assert f"name: {expected.ENVIRONMENT}," not in applied("dra")


@pytest.mark.promise("doctor-3")
def test_webhooks_are_those_of_the_template(manifests: list[dict[str, Any]], tmp_path: Path) -> None:
    """Of both registrations. Those for claims are there only with `isolation: dra`."""
    isolating = rendered(tmp_path, ["webhook"], **WITH_CLAIMS)

    assert webhooks_of(manifests) == expected.WEBHOOKS
    assert webhooks_of(isolating) == expected.WEBHOOKS | expected.CLAIM_WEBHOOKS
    assert webhooks_of(isolating, "Mutating") == expected.MUTATING


@pytest.mark.promise("doctor-3")
def test_the_policy_of_drivers_is_that_of_their_role(tmp_path: Path) -> None:
    """And the rights that it grants them."""
    drivers = rendered(tmp_path, ["driver"], **DRIVEN)
    (role,) = [each for each in drivers if each["kind"] == "ClusterRole"]

    assert names_of(drivers, "ValidatingAdmissionPolicy") == {expected.DRIVER_GUARD}
    assert names_of(drivers, "ValidatingAdmissionPolicyBinding") == {expected.DRIVER_GUARD}
    granted = {
        (group, resource, tuple(rule["verbs"]))
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert {(each.group, each.resource, each.verbs) for each in rights.driver_account().rights} == granted
    assert names_of(drivers, "ServiceAccount") == names_of(drivers, "DaemonSet") == {rights.driver_account().name}


def webhooks_of(manifests: list[dict[str, Any]], kind: str = "") -> set[str]:
    registered = [each for each in manifests if each["kind"].endswith(f"{kind}WebhookConfiguration")]
    return {one["name"] for each in registered for one in each["webhooks"]}


@pytest.mark.promise("doctor-3")
def test_deployments_and_kinds_are_those_of_the_roles(manifests: list[dict[str, Any]]) -> None:
    """Each Deployment's pods carry the component by which they are found."""
    deployments = [each for each in manifests if each["kind"] == "Deployment"]
    components = {
        each["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]: each["metadata"]["name"]
        for each in deployments
    }

    assert components == expected.DEPLOYMENTS
    files = (ROOT / "roles" / "crds" / "files").glob("gpu*.yaml")
    assert {yaml.safe_load(path.read_text())["metadata"]["name"] for path in files} == expected.KINDS


@pytest.mark.promise("doctor-3")
def test_flow_schemas_are_those_of_the_roles(manifests: list[dict[str, Any]], tmp_path: Path) -> None:
    """Monitors and drivers have one with the name of their DaemonSet."""
    on_nodes = rendered(tmp_path, ["monitor", "driver"], **DRIVEN)

    assert names_of(manifests, "FlowSchema") == expected.FLOW_SCHEMAS
    assert names_of(on_nodes, "FlowSchema") == names_of(on_nodes, "DaemonSet")


def granted(account: Account, *roles: str) -> Rights:
    """Return what these roles grant, and assert that they grant it to this account."""
    found: Rights = {}
    for role in roles:
        assert str(account) in ACCOUNTS[role]
        for key, verbs in RIGHTS[role].items():
            found[key] = found.get(key, set()) | verbs
    return found


ROLES = {
    "scheduler": (
        rights.scheduler_account(SYSTEM),
        ("ClusterRole gpu-scheduler", "Role gpu-scheduler", "Role gpu-scheduler-reads-monitor"),
    ),
    "controller": (
        rights.controller_account(SYSTEM),
        ("ClusterRole gpu-scheduler-controller", "Role gpu-scheduler-controller"),
    ),
    "monitor": (rights.monitor_account(), ("ClusterRole gpu-scheduler-monitor", "Role gpu-scheduler-monitor")),
    "renewer": (rights.renewer_account(SYSTEM), ("Role gpu-scheduler-renewer",)),
}


@pytest.mark.promise("doctor-3")
@pytest.mark.parametrize(("account", "roles"), ROLES.values(), ids=ROLES)
def test_rights_are_those_that_the_roles_grant(account: Account, roles: tuple[str, ...]) -> None:
    """All of them, in the namespace in which they hold."""
    asked: Rights = {}
    for right in account.rights:
        key = (right.group, right.resource, right.name)
        asked[key] = asked.get(key, set()) | set(right.verbs)
        assert bool(right.namespace) == any(key in RIGHTS[role] for role in roles if role.startswith("Role "))

    wanted = granted(account, *roles)
    if account == rights.monitor_account():
        wanted.pop(SIMULATED_ONLY)
    assert asked == wanted


@pytest.mark.promise("doctor-3")
def test_a_scheduler_that_allocates_claims_has_more_rights() -> None:
    """Those that role scheduler grants with `isolation: dra` too."""
    plain, isolating = (
        {(each.group, each.resource, verb) for each in account.rights for verb in each.verbs}
        for account in (rights.scheduler_account(SYSTEM), rights.scheduler_account(SYSTEM, reads_claims=True))
    )

    added = {(group, resource, verb) for (group, resource, _), verbs in ISOLATING.items() for verb in verbs}
    assert isolating == plain | added
