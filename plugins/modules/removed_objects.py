"""Removes what a role applied, in a safe order, waits until it is gone, and leaves what others made."""

from __future__ import annotations

import json
import time
from typing import Any, Final

import yaml
from ansible.module_utils.basic import AnsibleModule  # type: ignore[import-untyped]  # Ansible ships no types
from ansible.module_utils.kubectl import (  # type: ignore[import-untyped]  # ours: ansible.cfg says where
    MANAGER,
    ClusterError,
    Reference,
    few,
)
from ansible.module_utils.kubectl import Cluster as Kubectl
from ansible.module_utils.records import (  # type: ignore[import-untyped]  # likewise
    LABELS,
    PART_OF,
    PRODUCT,
    Record,
    in_order,
    is_ours,
    managers_of,
)

DOCUMENTATION = """
module: removed_objects
short_description: removes what a role applied
description:
  - Deletes what the record of M(applied_record) and I(objects) name, where it has our label or field manager, waits,
    and says what holds the rest. A Namespace with objects of others stays.
options:
  role: {description: The role, required: true, type: str}
  namespace: {description: The namespace of the record, required: true, type: str}
  kubectl: {description: "The kubectl command, program and options.", type: list, elements: str, default: [kubectl]}
  objects:
    description: What an interrupted run may have applied and not recorded, each as a dictionary or as YAML text.
    type: list
    elements: raw
    default: []
  named:
    description: What is ours by its name alone, whoever wrote it.
    type: list
    elements: dict
    default: []
  only_kinds: {description: Remove these kinds only and keep the record., type: list, elements: str, default: []}
  spared_kinds: {description: Leave these kinds., type: list, elements: str, default: []}
  wait_timeout: {description: Seconds until all must be gone., type: int, default: 120}
attributes:
  check_mode:
    support: full
    description: Lists what would be deleted.
"""

EXAMPLES = """
- name: Delete the controller
  removed_objects:
    role: controller
    namespace: gpu-scheduler-system
    objects: "{{ query('ansible.builtin.template', 'rbac.yaml.j2', 'deployment.yaml.j2') }}"
"""

RETURN = """
deleted: {description: "The objects that were deleted or, in check mode, would be.", type: list, returned: always}
left: {description: "The objects that stay although record or role names them, and why.", type: list, returned: always}
"""

Json = dict[str, Any]

RBAC: Final = "rbac.authorization.k8s.io/v1"
LISTING: Final = "gpu-scheduler-removal"
"""Role and RoleBinding by which a removal lists what is in a namespace of ours, before it deletes that."""
ALLOWED_WITHIN: Final = 10
"""Seconds."""
# Objects that a cluster itself makes in every namespace; those of OpenShift are among them.
OF_EVERY_NAMESPACE: Final = frozenset(
    {
        ("ConfigMap", "kube-root-ca.crt"),
        ("ConfigMap", "openshift-service-ca.crt"),
        ("ServiceAccount", "default"),
        ("ServiceAccount", "builder"),
        ("ServiceAccount", "deployer"),
    }
)
PAUSE: Final = 0.5


class Cluster(Kubectl):  # type: ignore[misc]  # its base is loaded by Ansible
    """The API server, and what is in a namespace."""

    def __init__(self, kubectl: list[str], *, check: bool = False) -> None:
        """`kubectl` is the program with its options; with `check` nothing is granted."""
        super().__init__(kubectl)
        self._check = check

    def contents(self, namespace: str) -> list[Json]:
        """Return every object of a namespace that can be listed and deleted, but for its events."""
        kinds = self.run("api-resources", "--namespaced", "--verbs=list,delete", "--output=name").split()
        asked = ",".join(kind for kind in kinds if kind.partition(".")[0] != "events")
        words = ("get", asked, f"--namespace={namespace}", "--output=json", "--show-managed-fields")
        try:
            listed = self.run(*words)
        except ClusterError as error:
            if self._check or "(Forbidden)" not in str(error):
                raise
            listed = self._run_granted(namespace, *words)
        items: list[Json] = json.loads(listed)["items"]
        return items

    def _run_granted(self, namespace: str, *words: str) -> str:
        """Return kubectl's output; meanwhile its user may list everything in the namespace."""
        user = json.loads(self.run("auth", "whoami", "--output=json"))["status"]["userInfo"]["username"]
        metadata = {"name": LISTING, "namespace": namespace, "labels": LABELS}
        role = {"apiVersion": RBAC, "kind": "Role", "metadata": metadata}
        binding = {"apiVersion": RBAC, "kind": "RoleBinding", "metadata": metadata}
        rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["list"]}]
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": LISTING}
        try:
            self.write({**role, "rules": rules})
            self.write({**binding, "subjects": [subject], "roleRef": reference})
            return self._run_when_allowed(*words)
        finally:
            # The namespace may stay, because of objects of others.
            options = (f"--namespace={namespace}", "--ignore-not-found", "--wait=false")
            self.run("delete", "role,rolebinding", LISTING, *options)

    def _run_when_allowed(self, *words: str) -> str:
        """Return kubectl's output. An API server reads a new grant within seconds."""
        deadline = time.monotonic() + ALLOWED_WITHIN
        while True:
            try:
                answer: str = self.run(*words)
            except ClusterError as error:
                if "(Forbidden)" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(PAUSE)
            else:
                return answer


def foreign_objects(contents: list[Json]) -> list[str]:
    """Return the objects of a namespace that neither we nor the cluster made, in words."""
    uids = {body["metadata"]["uid"] for body in contents}

    def belongs(body: Json) -> bool:
        metadata, kind = body["metadata"], body["kind"]
        return (
            is_ours(body)
            or (kind, metadata["name"]) in OF_EVERY_NAMESPACE
            # Judged by its owner.
            or any(owner["uid"] in uids for owner in metadata.get("ownerReferences", []))
            or (kind == "Lease" and any(manager.startswith(PRODUCT) for manager in managers_of(body)))
            or (kind == "RoleBinding" and metadata["name"].startswith("system:"))
            or (kind == "Secret" and "kubernetes.io/service-account.name" in metadata.get("annotations", {}))
        )

    return sorted(f"{body['kind']} {body['metadata']['name']}" for body in contents if not belongs(body))


def what_holds(cluster: Cluster, reference: Reference) -> str:
    """Say what holds an object that is being deleted."""
    body = cluster.get(reference.path) or {"metadata": {}}
    metadata = body["metadata"]
    reasons = [f"finalizers {', '.join(metadata['finalizers'])}"] if metadata.get("finalizers") else []
    reasons += [
        condition["message"]
        for condition in body.get("status", {}).get("conditions", [])
        if condition.get("message") and condition["type"].endswith(("Remaining", "Failure", "Terminating"))
    ]
    if reference.kind == "CustomResourceDefinition":
        spec = body.get("spec", {"group": "", "names": {"plural": ""}, "versions": [{"name": "v1"}]})
        version = spec["versions"][0]["name"]
        items = (cluster.get(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}") or {}).get("items", [])
        held = [
            f"{item['kind']} {item['metadata'].get('namespace', '')}/{item['metadata']['name']}"
            f" ({', '.join(item['metadata']['finalizers'])})"
            for item in items
            if item["metadata"].get("finalizers")
        ]
        reasons += [f"finalizers of {few(held)}"] if held else []
    since = metadata.get("deletionTimestamp", "now")
    return f"{reference} is being deleted since {since}: {'; '.join(reasons) or 'nothing says why'}"


def wait_until_gone(cluster: Cluster, references: list[Reference], deadline: float, seconds: int) -> None:
    """Wait until none of the objects is there; raise ClusterError with what holds the others."""
    while references:
        references = list(cluster.get_all(references))
        if references and time.monotonic() > deadline:
            raise ClusterError(
                f"not all is gone after {seconds} s. {'. '.join(what_holds(cluster, each) for each in references)}. "
                "Whoever set a finalizer removes it; where its controller is gone for good, edit it out of the object "
                "(kubectl edit). Then run this again"
            )
        if references:
            time.sleep(PAUSE)


def objects_of(given: list[Any]) -> list[Json]:
    """Return the objects that are given as dictionaries or as YAML text."""
    read = [list(yaml.safe_load_all(each)) if isinstance(each, str) else [each] for each in given]
    return [body for bodies in read for body in bodies if body]


def remove(record: Record, cluster: Cluster, given: Json, *, check: bool) -> Json:
    """Delete what the role applied, kind by kind, and wait until it is gone."""
    named = {Reference.of(body) for body in given["named"]}
    listed = {Reference.of(body) for body in objects_of(given["objects"])} | named | set(record.objects)
    chosen = [
        each
        for each in in_order(listed)
        if each.kind not in given["spared_kinds"] and (not given["only_kinds"] or each.kind in given["only_kinds"])
    ]
    result: Json = {"changed": False, "deleted": [], "left": []}
    deadline = time.monotonic() + given["wait_timeout"]
    for kind in dict.fromkeys(each.kind for each in chosen):
        going = []
        for reference, body in cluster.get_all([each for each in chosen if each.kind == kind]).items():
            reason = "" if reference in named else why_left(cluster, reference, body)
            if reason:
                result["left"].append(f"{reference}: {reason}")
                continue
            ends = "deletionTimestamp" in body["metadata"]
            if not ends:
                result["deleted"].append(str(reference))
            if not check and (ends or not cluster.delete(reference, body["metadata"]["uid"])):
                going.append(reference)
        wait_until_gone(cluster, going, deadline, given["wait_timeout"])
    if record.exists and not given["only_kinds"]:
        result["deleted"].append(str(record.reference))
        if not check:
            record.delete()
    result["changed"] = bool(result["deleted"])
    return result


def why_left(cluster: Cluster, reference: Reference, body: Json) -> str:
    """Say why an object stays; empty for one that goes."""
    if not is_ours(body):
        return f"it has neither label {PART_OF}={PRODUCT} nor field manager {MANAGER}: another made it"
    if reference.kind != "Namespace" or "deletionTimestamp" in body["metadata"]:
        return ""
    try:
        others = foreign_objects(cluster.contents(reference.name))
    except ClusterError as error:
        return f"what is in it cannot be listed: {error}"
    return f"it has objects of others: {few(others)}; delete or move them, and run this again" if others else ""


def main() -> None:
    """Say what was deleted, what was left, and whether anything changed."""
    module = AnsibleModule(
        argument_spec={
            "role": {"type": "str", "required": True},
            "namespace": {"type": "str", "required": True},
            "kubectl": {"type": "list", "elements": "str", "default": ["kubectl"]},
            "objects": {"type": "list", "elements": "raw", "default": []},
            "named": {"type": "list", "elements": "dict", "default": []},
            "only_kinds": {"type": "list", "elements": "str", "default": []},
            "spared_kinds": {"type": "list", "elements": "str", "default": []},
            "wait_timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    given = module.params
    cluster = Cluster(given["kubectl"], check=module.check_mode)
    try:
        record = Record(cluster, given["role"], given["namespace"])
        module.exit_json(**remove(record, cluster, given, check=module.check_mode))
    except ClusterError as error:
        module.fail_json(msg=f"Cannot remove what role {given['role']} applied: {error}")


if __name__ == "__main__":
    main()
