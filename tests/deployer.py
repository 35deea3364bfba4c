"""Writes the rights that a deployer needs, from what the roles render and read: `python tests/deployer.py`.

roles/preflight/files/deployer.yaml is the ClusterRole. roles/preflight/vars/main/installed.yml has the objects that the
roles apply, from which preflight knows most of the same rights, and the other rights, each with the namespace and the
option that it belongs to. A contract test fails where one of the two is not up to date.
"""

from __future__ import annotations

import itertools
import re
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.contracts import roles
from tests.contracts.cluster_modules import load_module
from tests.contracts.rendering import rendered
from tests.contracts.tasks import TASKS

Manifest = dict[str, Any]

CLUSTER_ROLE: Final = roles.ROOT / "roles" / "preflight" / "files" / "deployer.yaml"
ACCESS: Final = load_module("roles", "preflight", "library", "cluster_access.py")
INSTALLED: Final = roles.ROOT / "roles" / "preflight" / "vars" / "main" / "installed.yml"

# These change this host alone, or only read.
ELSEWHERE: Final = frozenset({"container_engine", "node_image", "kind_cluster", "images", "preflight"})
# Default name of a namespace → preflight's input for it.
NAMESPACES: Final = {
    "gpu-scheduler-system": "{{ preflight_system_namespace }}",
    "gpu-scheduler-tests": "{{ preflight_tests_namespace }}",
    "default": "{{ preflight_check_namespace }}",
}
SYSTEM, TESTS, CHECK = NAMESPACES
# Right only for a report of a failure, or for the removal: not asked for before an installation.
REPORT, REMOVAL = "report", "removal"


class Right(NamedTuple):
    """One verb on one resource, of one object or of all."""

    group: str
    resource: str
    verb: str
    name: str
    namespace: str
    """Where it is needed; empty for a resource without a namespace, and for all namespaces."""
    needed_for: str
    """What of the inventory asks for it; empty for every installation."""


WRITE: Final = "create get patch delete"
OTHER: Final = (
    # The proof reads the variables of containers and the logs of check pods. Which pods those are depends on the map.
    *(
        Right("", resource, verb, "", namespace, "")
        for namespace in (CHECK, TESTS, SYSTEM)
        for resource, verb in (("pods/exec", "create"), ("pods/exec", "get"), ("pods/log", "get"), ("pods", "get"))
    ),
    *(Right("", resource, "list", "", "", "") for resource in ("pods", "nodes", "namespaces")),
    # Dry runs: their answers show whether webhook and policies are in force.
    Right("", "pods", "create", "", SYSTEM, ""),
    # Nodes whose GPUs are declared get a label; at the end, the fields of a monitor that is gone are taken away.
    *(Right("", "nodes", verb, "", "", "simulated") for verb in ("get", "patch")),
    *(Right("agentaflow.io", "gpunodes", verb, "", "", REMOVAL) for verb in ("get", "list", "delete")),
    *(
        Right("agentaflow.io", "gpuworkloads", verb, "", "", REMOVAL)
        for verb in ("get", "list", "delete", "deletecollection")
    ),
    # Written by the replicas themselves.
    *(
        Right("coordination.k8s.io", "leases", verb, name, SYSTEM, REMOVAL)
        for name in ("gpu-scheduler", "gpu-scheduler-controller")
        for verb in ("get", "delete")
    ),
    # `make prepare-rollback` asks for a record that nobody writes.
    Right("", "configmaps", "get", "gpu-scheduler-applied-rollback", SYSTEM, REMOVAL),
    # A namespace of ours is deleted only after everything in it was listed, by a grant for that time.
    *(
        Right("rbac.authorization.k8s.io", resource, verb, name, SYSTEM, REMOVAL)
        for resource, verbs in (("roles", f"{WRITE} bind escalate"), ("rolebindings", WRITE))
        for verb in verbs.split()
        for name in ("" if verb == "create" else "gpu-scheduler-removal",)
    ),
    Right("", "events", "list", "", "", REPORT),
    Right("authorization.k8s.io", "selfsubjectaccessreviews", "create", "", "", REPORT),
)


def group_of(api_version: str) -> str:
    """Return the API group of an apiVersion."""
    group, slash, _ = api_version.partition("/")
    return group if slash else ""


def manifests() -> Iterator[Manifest]:
    """Yield each object that the play applies with any option, and the records of what was applied."""
    ours = [role for role in roles.play_roles() if role not in ELSEWHERE]
    with tempfile.TemporaryDirectory() as folder:
        templates = {role: (roles.ROOT / "roles" / role / "templates").glob("*.yaml.j2") for role in ours}
        # Every template, whichever option of the inventory a task applies it with.
        yield from rendered(Path(folder), [role for role in ours if any(templates[role])], "inventory/existing")
    for role in ours:
        for path in sorted((roles.ROOT / "roles" / role / "files").glob("*.yaml")):
            yield from (each for each in yaml.safe_load_all(path.read_text()) if each)
    for role in sorted({task.role for task in TASKS if task.module == "removed_objects" and task.role}):
        metadata = {"name": f"gpu-scheduler-applied-{role.replace('_', '-')}", "namespace": SYSTEM}
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def option_of(manifest: Manifest) -> str:
    """Return the option of the inventory with which the object is applied; empty if it always is."""
    kind, name = manifest["kind"], manifest["metadata"]["name"]
    role = manifest["metadata"].get("labels", {}).get("app.kubernetes.io/component", "")
    if manifest["apiVersion"].startswith("cert-manager.io/"):
        return "cert-manager"
    if kind.startswith("MutatingAdmissionPolicy") or name == "gpu-scheduler-environment":
        return "policy"
    if name in {"gpu-scheduler-claims", "gpu-scheduler-claim-users"}:
        return "dra"
    if role == "observability":
        return "observability"
    for option in ("monitor", "driver"):
        own = f"gpu-scheduler-{option}"
        if role == option or manifest["metadata"].get("namespace") == own or (kind, name) == ("Namespace", own):
            return option
    return "webhook" if role in {"webhook", "certificates"} else ""


def rights_of(manifest: Manifest) -> Iterator[Right]:
    """Yield what applying this object takes, and removing it."""
    group, resource = group_of(manifest["apiVersion"]), ACCESS.plural(manifest["kind"])
    name, namespace = manifest["metadata"]["name"], manifest["metadata"].get("namespace", "")
    option = option_of(manifest)
    # RBAC knows no name of an object that is being created.
    yield Right(group, resource, "create", "", namespace, option)
    yield Right(group, resource, "get", name, namespace, option)
    yield Right(group, resource, "patch", name, namespace, option)
    # A pod cannot be changed, so check pods are replaced.
    yield Right(group, resource, "delete", name, namespace, "" if resource == "pods" else REMOVAL)
    if resource in {"roles", "clusterroles"}:
        yield Right(group, resource, "escalate", name, namespace, option)
    if resource in {"rolebindings", "clusterrolebindings"}:
        reference = manifest["roleRef"]
        within = namespace if reference["kind"] == "Role" else ""
        yield Right(group, ACCESS.plural(reference["kind"]), "bind", reference["name"], within, option)


def lists(groups: dict[str, str]) -> Iterator[Right]:
    """Yield the collections that tasks read; `groups` has the API group of each resource that the roles apply."""
    groups = {"replicasets": "apps", "jobs": "batch", "certificaterequests": "cert-manager.io", **groups}
    for task in TASKS:
        if task.role in ELSEWHERE or not task.role:
            continue
        if task.module == "cluster_objects":
            needed_for = REMOVAL if task.file.endswith(("/remove.yml", "/unused.yml")) else ""
            for asked in task.arguments["objects"]:
                if "name" not in asked:
                    namespace = _namespace(asked.get("namespace", ""))
                    group = group_of(asked.get("api_version", "v1"))
                    yield Right(group, ACCESS.plural(asked["kind"]), "list", "", namespace, needed_for)
        subjects = task.arguments.get("subjects", []) if isinstance(task.arguments, dict) else []
        if isinstance(subjects, list):
            for subject in subjects:
                for resource in subject.get("kinds", "pods").split(","):
                    yield Right(groups.get(resource, ""), resource, "list", "", "", REPORT)


def _namespace(template: str) -> str:
    """Return the default name of the namespace that a role's input names."""
    words = {"check_tests_namespace": TESTS, "check_namespace": CHECK}
    return next((name for word, name in words.items() if word in template), SYSTEM if template else "")


def everything() -> tuple[list[Right], list[Manifest]]:
    """Return all rights, and the objects that the roles apply."""
    applied = list(manifests())
    groups = {ACCESS.plural(each["kind"]): group_of(each["apiVersion"]) for each in applied}
    return sorted({right for each in applied for right in rights_of(each)} | {*OTHER, *lists(groups)}), applied


HEAD: Final = """\
# The rights that installing, proving and removing gpu-scheduler takes, written by `python tests/deployer.py` from what
# the roles apply and read. Preflight asks for those that the inventory needs. An administrator grants them to a user
# (or with --group or --serviceaccount to others):
#
#   kubectl apply -f roles/preflight/files/deployer.yaml
#   kubectl create clusterrolebinding gpu-scheduler-deployer --clusterrole=gpu-scheduler-deployer --user=NAME
#
# Trust who has them as an administrator. RBAC knows no name of an object that is being created, so `create` is not
# restricted to our names; `bind` and `escalate` let change what our own roles grant; `pods/exec` is for all namespaces.
# Of Secrets only ours can be read, except for a removal. The resourceNames of `namespaces` are the inventory's
# defaults: with other names of namespaces change them here. Before `make uninstall` deletes a namespace of ours it
# lists what others keep in it, Secrets included: for that time it grants itself Role gpu-scheduler-removal there.
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: gpu-scheduler-deployer}
rules:
"""
CORE: Final = "core"
"""Stands for the API group without a name."""
LONGEST: Final = 100


def cluster_role(rights: Iterable[Right]) -> str:
    """Return the ClusterRole as YAML. A verb that is granted on all objects is not granted on one again."""
    on_all = {(right.group, right.resource, right.verb) for right in rights if not right.name}
    verbs: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for right in rights:
        if not right.name or (right.group, right.resource, right.verb) not in on_all:
            verbs[right.group, right.resource, right.name].add(right.verb)
    names: dict[tuple[str, str, tuple[str, ...]], set[str]] = defaultdict(set)
    for (group, resource, name), given in verbs.items():
        # Rules without a name come first and never join others.
        names[group, resource, (*(("",) if not name else ()), *sorted(given))].add(name)
    rules = (
        {
            "apiGroups": [group or CORE],
            "resources": [resource],
            "resourceNames": sorted(called),
            "verbs": [verb for verb in given if verb],
        }
        for (group, resource, given), called in sorted(names.items())
    )
    return HEAD + "".join(entries(rules))


def _scalar(value: str) -> str:
    if value == CORE:
        return '""'
    return value if re.fullmatch(r"[A-Za-z][-\w./]*", value) else f'"{value}"'


def entries(rows: Iterable[Manifest]) -> Iterator[str]:
    """Yield the lines of a list in YAML. Empty values are left out; a list is on one line if it is short enough."""
    for row in rows:
        mark = "  - "
        for key, value in row.items():
            if value in ("", [], [""]):
                continue
            text = _scalar(value) if isinstance(value, str) else f"[{', '.join(map(_scalar, value))}]"
            if value == [""] or len(text) < LONGEST:
                yield f"{mark}{key}: {text}\n"
            else:
                yield f"{mark}{key}:\n"
                yield from (f"      - {_scalar(each)}\n" for each in value)
            mark = "    "


def applied_rows(objects: Iterable[Manifest], rights: Iterable[Right]) -> list[Manifest]:
    """Return what preflight expects to apply, with the inventory's own namespaces in place of the defaults.

    A namespace may be made by an administrator, and the limits are an administrator's where the inventory has none. A
    user's pod stays in the place of ours.
    """
    more: dict[tuple[str, str, str, str], set[str]] = defaultdict(set)
    for right in rights:
        if right.verb in {"bind", "escalate"}:
            more[right.resource, right.name, right.namespace, right.needed_for].add(right.verb)
    together: dict[tuple[str, str, str, str, tuple[str, ...]], set[str]] = defaultdict(set)
    for each in objects:
        version, kind, name = each["apiVersion"], each["kind"], each["metadata"]["name"]
        namespace, option = each["metadata"].get("namespace", ""), option_of(each)
        if kind not in {"Namespace", "Pod"} and name != "gpu-scheduler-limits":
            verbs = more[ACCESS.plural(kind), name, namespace, option]
            together[version, kind, NAMESPACES.get(namespace, namespace), option, tuple(sorted(verbs))].add(name)
    return [
        {"api_version": version, "kind": kind, "namespace": namespace, "needed_for": option}
        | {"more_verbs": list(verbs), "names": sorted(names)}
        for (version, kind, namespace, option, verbs), names in sorted(together.items())
    ]


def asked_rights(rows: Iterable[Manifest]) -> Iterator[Right]:
    """Yield the rights that preflight asks for because of these objects."""
    for row in rows:
        option = row.get("needed_for", "")
        for right in (*ACCESS.rights_of([row], []), *ACCESS.rights_of([], [row])):
            for verb, name in itertools.product(right["verbs"], right.get("names", [""])):
                needed_for = REMOVAL if verb == "delete" else option
                yield Right(right["group"], right["resource"], verb, name, right["namespace"], needed_for)


def other_rows(rights: Iterable[Right]) -> list[Manifest]:
    """Return these rights as rows for preflight."""
    verbs: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for group, resource, verb, name, namespace, needed_for in rights:
        verbs[group, resource, namespace, needed_for, name].add(verb)
    names: dict[tuple[str, str, str, str, tuple[str, ...]], set[str]] = defaultdict(set)
    for (group, resource, namespace, needed_for, name), given in verbs.items():
        names[group, resource, namespace, needed_for, tuple(sorted(given))].add(name)
    return [
        {"group": group, "resource": resource, "namespace": namespace, "needed_for": needed_for}
        | {"verbs": list(given), "names": sorted(called)}
        for (group, resource, namespace, needed_for, given), called in sorted(names.items())
    ]


def for_preflight(rights: Iterable[Right]) -> Iterator[Right]:
    """Yield the rights that preflight asks for, with the inventory's own namespaces in place of the defaults."""
    for right in rights:
        if right.needed_for != REPORT:
            name = NAMESPACES.get(right.name, right.name) if right.resource == "namespaces" else right.name
            yield right._replace(name=name, namespace=NAMESPACES.get(right.namespace, right.namespace))


def installed(rights: Iterable[Right], objects: Iterable[Manifest]) -> str:
    """Return preflight's variables as YAML: the objects, and the rights that do not follow from them."""
    rows = applied_rows(objects, rights)
    others = other_rows({*for_preflight(rights)} - {*asked_rights(rows)})
    head = (
        "# Written by `python tests/deployer.py` from what the roles apply and read. The rights that an object takes\n"
        "# follow from its row, in cluster_access; these are the others.\n"
    )
    return (
        f"---\n{head}_preflight_other_rights:\n{''.join(entries(others))}"
        f"_preflight_known_objects:\n{''.join(entries(rows))}"
    )


def texts() -> dict[Path, str]:
    """Return the text of each file."""
    rights, objects = everything()
    return {CLUSTER_ROLE: cluster_role(rights), INSTALLED: installed(rights, objects)}


def main() -> None:
    """Write both files."""
    for path, text in texts().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
