"""The rights of a deployer: up to date, and no more than the roles need."""

from __future__ import annotations

from typing import Final

import yaml

from tests import deployer

# The only verbs on whatever has any name.
UNNAMED: Final = {"create", "get", "list", "patch", "delete", "deletecollection"}
# Of these kinds more than creation and lists is for all names: names are those of nodes, or of check pods.
OF_ANY_NAME: Final = {"nodes", "pods", "pods/exec", "pods/log", "gpunodes", "gpuworkloads"}


def test_files_are_up_to_date() -> None:
    """Both files are the output of `python tests/deployer.py`, which `make fmt` runs."""
    for path, text in deployer.texts().items():
        assert path.read_text() == text, f"{path} is not up to date: run python tests/deployer.py"


def test_rights_are_the_least() -> None:
    """No wildcard; Secrets are never listed; what exists is changed by name alone."""
    rules = yaml.safe_load(deployer.CLUSTER_ROLE.read_text())["rules"]

    for rule in rules:
        ((resource,), verbs) = rule["resources"], set(rule["verbs"])
        assert "*" not in (*rule["apiGroups"], resource, *verbs)
        if "resourceNames" not in rule and resource not in OF_ANY_NAME:
            assert verbs <= {"create", "list"}, rule
        if "resourceNames" not in rule:
            assert verbs <= UNNAMED, rule
        assert resource != "secrets" or "list" not in verbs


def test_preflight_asks_for_what_the_roles_need_and_no_more() -> None:
    """What its objects take, and the other rights, are all rights but those of reports."""
    rights, objects = deployer.everything()
    needed = {*deployer.for_preflight(rights)}
    asked = {*deployer.asked_rights(deployer.applied_rows(objects, rights))}

    assert asked <= needed
    for verb in ("create", "get", "patch", "bind", "escalate", "delete"):
        assert {right.verb for right in asked} & {verb}, verb
    others = yaml.safe_load(deployer.installed(rights, objects))["_preflight_other_rights"]
    assert {(row.get("group", ""), row["resource"]) for row in others} >= {("", "pods/exec"), ("", "namespaces")}


def test_a_users_pod_is_no_object_of_another_installer() -> None:
    """A user may have made a pod of a check pod's name: preflight does not stop for it, and the run leaves it."""
    objects = next(text for path, text in deployer.texts().items() if path != deployer.CLUSTER_ROLE)

    assert "Pod" not in {row["kind"] for row in yaml.safe_load(objects)["_preflight_known_objects"]}
