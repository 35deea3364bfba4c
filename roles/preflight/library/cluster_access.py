"""Ansible module: whether an existing cluster can take the installation. Changes nothing.

It asks for the version, the rights of the user, our namespaces, objects of another installer that have our names, and
the nodes of the map. The first failure of the connection is the only one that it reports: all else would follow. Of a
cluster that is too old it asks nothing but the version.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ansible.module_utils.basic import AnsibleModule  # type: ignore[import-untyped]  # Ansible ships no types
from ansible.module_utils.compat.version import LooseVersion  # type: ignore[import-untyped]  # likewise
from ansible.module_utils.kube_context import Context  # type: ignore[import-untyped]  # ours: ansible.cfg says where
from ansible.module_utils.kubectl import (  # type: ignore[import-untyped]  # likewise
    MANAGER,
    Cluster,
    ClusterError,
    Reference,
    few,
    plural,
)
from ansible.module_utils.node_facts import node_facts  # type: ignore[import-untyped]  # likewise
from ansible.module_utils.records import PART_OF, PRODUCT  # type: ignore[import-untyped]  # likewise

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCUMENTATION = r"""
module: cluster_access
short_description: Version of a cluster, rights of its user, and what stands in the way of an installation
description:
  - Reads from the API server with kubectl, in parallel and with time-outs.
options:
  program:
    description: The user's kubectl, a name on the PATH or an absolute path.
    type: str
    required: true
  kubeconfig:
    description: The kubeconfig to use.
    type: path
    required: true
  context:
    description: The context in it.
    type: str
    required: true
  kubernetes:
    description: The oldest version that can be used; empty for any.
    type: str
    default: ""
  rights:
    description:
      - What the user must be allowed to do beside applying and removing, in rows with group, resource, verbs, names and
        namespace.
    type: list
    elements: dict
    default: []
  grant:
    description: The file with these rights as a ClusterRole, for the message.
    type: str
    default: ""
  objects:
    description:
      - What will be applied, in rows with api_version, kind, namespace and names, and more_verbs for rights that these
        objects take beside get and patch.
    type: list
    elements: dict
    default: []
  removed:
    description: What will be deleted, in rows as of I(objects).
    type: list
    elements: dict
    default: []
  namespaces:
    description: The namespaces that will be used, with the variable that names each.
    type: dict
    default: {}
  existing_namespaces:
    description: Those of them that nobody makes, so they must exist.
    type: list
    elements: str
    default: []
  cert_manager:
    description: Whether cert-manager must be installed.
    type: bool
    default: false
  nodes:
    description: Names or aliases of the nodes whose state is returned.
    type: list
    elements: str
    default: []
  images:
    description: Images that name no registry; those that no node lists are returned.
    type: list
    elements: str
    default: []
  records:
    description: ConfigMaps in which roles recorded what they applied, by role; the DaemonSets in them are returned.
    type: dict
    default: {}
  record_namespace:
    description: The namespace of the records.
    type: str
    default: ""
author: gpu-scheduler
"""

Json = dict[str, Any]

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
CERTIFICATE: Final = "cert-manager.io/certificate-name"
REVIEW: Final = ("create", "--filename=-", "--validate=false", "--output=jsonpath={.status.allowed} ")
ALL: Final = {"group": "*", "resource": "*"}
NOTHING: Final[Json] = {
    "version": "",
    "problems": [],
    "nodes": [],
    "node_names": [],
    "unlisted_images": [],
    "daemonsets": {},
    "error": "",
}
"""The result where nothing was asked."""


def rights_of(objects: list[Json], removed: list[Json]) -> Iterator[Json]:
    """Yield the rights that it takes to apply the ones and to delete the others."""
    for row in objects:
        # RBAC knows no name of an object that is being created.
        yield {**_collection_of(row), "verbs": ["create"]}
        yield {**_collection_of(row), "verbs": [*row.get("more_verbs", ()), "get", "patch"], "names": row["names"]}
    for row in removed:
        yield {**_collection_of(row), "verbs": ["delete"], "names": row["names"]}


def _collection_of(row: Json) -> Json:
    group = row["api_version"].rpartition("/")[0]
    return {"group": group, "resource": plural(row["kind"]), "namespace": row.get("namespace", "")}


def _order(right: Json) -> tuple[str, str, str]:
    return right.get("group", ""), right["resource"], right.get("namespace", "")


def allowed(cluster: Cluster, asked: list[tuple[Json, str, str]]) -> list[bool]:
    """Return for each right, verb and name whether the user has it."""
    reviews = []
    for right, verb, name in asked:
        resource, _, subresource = right["resource"].partition("/")
        attributes = {"group": right.get("group", ""), "resource": resource, "subresource": subresource, "verb": verb}
        attributes |= {"name": name, "namespace": right.get("namespace", "")}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        reviews.append({**review, "spec": {"resourceAttributes": attributes}})
    answers = " ".join(cluster.run_all(REVIEW, reviews))
    return [answer == "true" for answer in answers.split()]


def missing_rights(cluster: Cluster, rights: list[Json]) -> list[str]:
    """Return the rights that the user lacks: verbs, resource, names and namespace."""
    # Most deployers may do everything, and one answer says so.
    if not rights or allowed(cluster, [(ALL, "*", "")]) == [True]:
        return []
    asked = [(right, verb, name) for right in rights for verb in right["verbs"] for name in right.get("names") or [""]]
    without: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for (right, verb, name), granted in zip(asked, allowed(cluster, asked), strict=True):
        if not granted:
            key = right["resource"], right.get("group", ""), right.get("namespace", "")
            verbs = without.setdefault(key, {}).setdefault(name, [])
            if verb not in verbs:
                verbs.append(verb)
    return [
        f"{', '.join(verbs)} {resource}{'.' if group else ''}{group}{' ' if name else ''}{name}"
        f"{' in namespace ' if namespace else ''}{namespace}"
        for (resource, group, namespace), names in without.items()
        for name, verbs in names.items()
    ]


def user_of(cluster: Cluster) -> str:
    """Return the name of the user; empty where the API server does not say it."""
    try:
        return str(cluster.run("auth", "whoami", "--output=jsonpath={.status.userInfo.username}"))
    except ClusterError:
        return ""


def owner_of(metadata: Json) -> str:
    """Say whose an object is; empty if it is ours."""
    labels, managers = (
        metadata.get("labels", {}),
        [each.get("manager", "") for each in metadata.get("managedFields", [])],
    )
    certificate = metadata.get("annotations", {}).get(CERTIFICATE, "")
    if labels.get(PART_OF) == PRODUCT and labels.get(MANAGED_BY, "ansible") == "ansible":
        return ""
    # cert-manager writes the Secret of a Certificate, which has the Secret's name here.
    if MANAGER in managers or certificate == metadata["name"]:
        return ""
    named = [f"{MANAGED_BY}={labels[MANAGED_BY]}"] if MANAGED_BY in labels else []
    wrote = [f"field manager {manager}" for manager in dict.fromkeys(managers) if manager]
    return ", ".join(named + wrote) or "an unknown owner"


def foreign_objects(found: dict[Reference, Json]) -> dict[str, list[str]]:
    """Return the objects that another installer has made, by their owner."""
    foreign: dict[str, list[str]] = {}
    for reference, body in found.items():
        if owner := owner_of(body["metadata"]):
            foreign.setdefault(owner, []).append(str(reference))
    return foreign


def collection(cluster: Cluster, kind: str) -> list[Json] | None:
    """Return all objects of a kind; None where the user may not list them, which is reported as a missing right."""
    try:
        return list(cluster.items("v1", kind))
    except ClusterError as error:
        if "(Forbidden)" not in str(error):
            raise
        return None


def namespace_problems(found: list[Json], namespaces: dict[str, str], existing: list[str]) -> list[str]:
    """Return a sentence for each namespace that cannot be used."""
    bodies = {body["metadata"]["name"]: body for body in found}
    problems = []
    for name, variable in namespaces.items():
        body = bodies.get(name)
        if body is None and name in existing:
            problems.append(
                f"{variable} is '{name}', and the cluster has no such namespace: make it (kubectl create namespace"
                f" {name}), or name another (example: -e {variable}=default)."
            )
        elif body and "deletionTimestamp" in body["metadata"]:
            messages = [
                each["message"].rstrip(".")
                for each in body.get("status", {}).get("conditions", [])
                if each.get("status") == "True" and each.get("message")
            ]
            problems.append(
                f"{variable} is '{name}', and that namespace is being deleted since"
                f" {body['metadata']['deletionTimestamp']} ({'; '.join(messages) or 'nothing says what holds it'}):"
                f" wait until it is gone (kubectl wait --for=delete namespace/{name}), or name another."
            )
    return problems


def unlisted(images: list[str], nodes: list[Json]) -> list[str]:
    """Return the images that no node lists. A node lists those that it holds, the 50 largest at most."""
    listed = {
        name
        for node in nodes
        for image in node.get("status", {}).get("images", [])
        for name in image.get("names") or []
    }
    # Container runtimes write the registry and the folder that a short name stands for.
    return [image for image in images if nodes and not {image, f"docker.io/library/{image}"} & listed]


def daemonsets_of(record: Json) -> list[str]:
    """Return the DaemonSets that a role recorded as applied."""
    # A line is: apiVersion, kind, namespace and name, uid.
    lines = [line.split() for line in (record.get("data") or {}).get("objects", "").splitlines()]
    return [line[2] for line in lines if len(line) > 2 and line[1] == "DaemonSet"]  # noqa: PLR2004 - see above


def examine(cluster: Cluster, given: Json) -> Json:
    """Return the module's result; raise ClusterError where the connection fails."""
    # Vendors append a build of their own: v1.30.4-gke.1348000
    version = re.sub(r"^v|[-+].*$", "", (cluster.get("/version") or {}).get("gitVersion", ""))
    oldest = given["kubernetes"]
    if version and oldest and LooseVersion(version) < LooseVersion(oldest):
        return {**NOTHING, "version": version}
    rights = [*given["rights"], *rights_of(given["objects"], given["removed"])]
    missing, problems = missing_rights(cluster, sorted(rights, key=_order)), []
    if missing:
        user = user_of(cluster)
        problems.append(
            f"The user {user}{' ' if user else ''}of kube_context '{given['context']}' may not {'; '.join(missing)}. An"
            f" administrator grants it: kubectl apply -f {given['grant']}, and the binding at the head of that file."
        )
    if given["cert_manager"] and cluster.get("/apis/cert-manager.io/v1") is None:
        problems.append(
            "cert_mode is 'cert-manager', and the cluster does not serve cert-manager.io/v1: install cert-manager, or"
            " set cert_mode to managed."
        )
    namespaces = collection(cluster, "Namespace") if given["namespaces"] else None
    if namespaces is not None:
        problems += namespace_problems(namespaces, given["namespaces"], given["existing_namespaces"])
    objects = [
        Reference(row["api_version"], row["kind"], row.get("namespace", ""), name)
        for row in given["objects"]
        for name in row["names"]
    ]
    records = {
        Reference("v1", "ConfigMap", given["record_namespace"], name): role for role, name in given["records"].items()
    }
    # What the user may not read is reported as a right that is missing.
    found = cluster.get_all(dict.fromkeys([*objects, *records]), readable=True)
    for owner, foreign in foreign_objects({each: found[each] for each in objects if each in found}).items():
        problems.append(
            f"Another installer has made {few(foreign)} ({owner}): uninstall that first (example: helm uninstall"
            " gpu-scheduler), or, where it is not gpu-scheduler, set the variables of our namespaces to others."
        )
    bodies = (collection(cluster, "Node") or []) if given["nodes"] else []
    nodes = [node_facts(body) for body in bodies]
    wanted = set(given["nodes"])
    return {
        **NOTHING,
        "version": version,
        "problems": problems,
        "nodes": [node for node in nodes if {node["name"], node["alias"]} & wanted],
        "node_names": [node["name"] for node in nodes],
        "unlisted_images": unlisted(given["images"], bodies),
        "daemonsets": {role: sets for each, role in records.items() if (sets := daemonsets_of(found.get(each, {})))},
    }


def main() -> None:
    """Return the result to Ansible."""
    rows = {"type": "list", "elements": "dict", "default": []}
    words = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "program": {"type": "str", "required": True},
            "kubeconfig": {"type": "path", "required": True},
            "context": {"type": "str", "required": True},
            "kubernetes": {"type": "str", "default": ""},
            "rights": rows,
            "grant": {"type": "str", "default": ""},
            "objects": rows,
            "removed": rows,
            "namespaces": {"type": "dict", "default": {}},
            "existing_namespaces": words,
            "cert_manager": {"type": "bool", "default": False},
            "nodes": words,
            "images": words,
            "records": {"type": "dict", "default": {}},
            "record_namespace": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    try:
        cluster = Context(module.params["program"], module.params["kubeconfig"], module.params["context"])
        found = examine(cluster, module.params)
    except ClusterError as error:
        found = {**NOTHING, "error": str(error)}
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
