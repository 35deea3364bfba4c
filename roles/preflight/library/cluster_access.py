"""Ansible module: whether an existing cluster answers, how old it is, and what its user may do. Changes nothing."""

from __future__ import annotations

import re
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: cluster_access
short_description: Version of a cluster, and rights of its user
description:
  - Asks the API server for its version and, by access reviews, for the rights given.
options:
  kubeconfig:
    description: The kubeconfig to use.
    type: path
    required: true
  context:
    description: The context in it; empty is its current one.
    type: str
    default: ""
  rights:
    description: What the user should be allowed to do.
    type: list
    elements: dict
    default: []
    suboptions:
      verb:
        description: The verb.
        type: str
        required: true
      resource:
        description: The resource, in the plural.
        type: str
        required: true
      group:
        description: The resource's API group.
        type: str
        default: ""
author: gpu-scheduler
"""

# Long enough for a cluster behind a slow link, short enough for a wrong address.
TIMEOUT = 10


def look(kubeconfig: str, context: str, rights: list[dict[str, str]]) -> dict[str, Any]:
    """The module's answer; raises whatever the client raises."""
    # Here, because the module must load where the client is missing, to say so.
    from kubernetes import client, config  # noqa: PLC0415

    api = config.new_client_from_config(config_file=kubeconfig, context=context or None)
    version = client.VersionApi(api).get_code(_request_timeout=TIMEOUT).git_version
    reviews = client.AuthorizationV1Api(api)
    missing = []
    for right in rights:
        review = {"spec": {"resourceAttributes": right}}
        answer = reviews.create_self_subject_access_review(review, _request_timeout=TIMEOUT)
        if not answer.status.allowed:
            missing.append(f"{right['verb']} {right['resource']}")
    # Vendors append a build of their own: v1.30.4-gke.1348000
    return {"version": re.sub(r"^v|[-+].*$", "", version), "missing": missing, "error": ""}


def main() -> None:
    """Answer Ansible."""
    right = {
        "verb": {"type": "str", "required": True},
        "resource": {"type": "str", "required": True},
        "group": {"type": "str", "default": ""},
    }
    module = AnsibleModule(
        argument_spec={
            "kubeconfig": {"type": "path", "required": True},
            "context": {"type": "str", "default": ""},
            "rights": {"type": "list", "elements": "dict", "default": [], "options": right},
        },
        supports_check_mode=True,
    )
    try:
        found = look(module.params["kubeconfig"], module.params["context"], module.params["rights"])
    except Exception as error:  # noqa: BLE001 - whatever the client raises, the user sees it beside the variables to check
        found = {"version": "", "missing": [], "error": " ".join(str(error).split())[:300]}
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
