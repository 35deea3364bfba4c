"""Reads several objects and collections from the API server, in one task."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible.module_utils.basic import AnsibleModule  # type: ignore[import-untyped]  # Ansible ships no types
from ansible.module_utils.kubectl import (  # type: ignore[import-untyped]  # ours: ansible.cfg says where
    PARALLEL,
    Cluster,
    ClusterError,
    Reference,
)

DOCUMENTATION = """
module: cluster_objects
short_description: reads several objects and collections from the API server
description:
  - In place of one M(kubernetes.core.k8s_info) an object; each of these loads the Python client of Kubernetes anew.
  - Changes nothing, so it reads in check mode too.
options:
  kubectl: {description: "The kubectl command, program and options.", type: list, elements: str, default: [kubectl]}
  objects:
    description: What to read.
    required: true
    type: list
    elements: dict
    suboptions:
      api_version: {description: The group and version of the kind., type: str, default: v1}
      kind: {description: The kind., required: true, type: str}
      namespace: {description: "The namespace; empty for all, and for kinds without.", type: str, default: ""}
      name: {description: "The name of one object; empty for all of the collection.", type: str, default: ""}
      selector: {description: "Labels of those of the collection that are wanted.", type: str, default: ""}
attributes:
  check_mode:
    support: full
    description: Nothing is changed.
"""

EXAMPLES = """
- name: Read the CA and the nodes
  cluster_objects:
    objects:
      - {kind: Secret, namespace: gpu-scheduler-system, name: gpu-scheduler-webhook-ca}
      - {kind: Node, selector: agentaflow.gpu/enabled=true}
  register: found
"""

RETURN = """
found:
  description: >-
    For each entry of I(objects) the list of what there is; an empty one where there is nothing, or no such kind.
  type: list
"""

Json = dict[str, Any]


def is_served(cluster: Cluster, api_version: str, kind: str) -> bool:
    """Whether the API server has the kind."""
    served = cluster.get(f"{'/apis' if '/' in api_version else '/api'}/{api_version}") or {"resources": []}
    return any(each["kind"] == kind for each in served["resources"])


def read(cluster: Cluster, asked: Json) -> list[Json]:
    """Return what there is. A user need not have rights on a kind that the API server does not know."""
    try:
        return found(cluster, asked)
    except ClusterError as error:
        if "(Forbidden)" not in str(error) or is_served(cluster, asked["api_version"], asked["kind"]):
            raise
        return []


def found(cluster: Cluster, asked: Json) -> list[Json]:
    """Return the object, or the objects of the collection."""
    kind, namespace = (asked["api_version"], asked["kind"]), asked["namespace"]
    if not asked["name"]:
        query = {"labelSelector": asked["selector"]} if asked["selector"] else {}
        return list(cluster.items(*kind, namespace, **query))
    body = cluster.get(Reference(*kind, namespace, asked["name"]).path)
    return [body] if body else []


def main() -> None:
    """Return what there is."""
    wanted = {
        "api_version": {"type": "str", "default": "v1"},
        "kind": {"type": "str", "required": True},
        "namespace": {"type": "str", "default": ""},
        "name": {"type": "str", "default": ""},
        "selector": {"type": "str", "default": ""},
    }
    module = AnsibleModule(
        argument_spec={
            "kubectl": {"type": "list", "elements": "str", "default": ["kubectl"]},
            "objects": {"type": "list", "elements": "dict", "required": True, "options": wanted},
        },
        supports_check_mode=True,
    )
    given = module.params
    cluster = Cluster(given["kubectl"])
    try:
        with ThreadPoolExecutor(PARALLEL) as pool:
            module.exit_json(found=list(pool.map(lambda asked: read(cluster, asked), given["objects"])))
    except ClusterError as error:
        kinds = ", ".join(dict.fromkeys(asked["kind"] for asked in given["objects"]))
        module.fail_json(msg=f"Cannot read from the cluster ({kinds}): {error}")


if __name__ == "__main__":
    main()
