"""Says in check mode which objects a run would create in a namespace that is missing.

The API server refuses a dry run in a namespace that does not exist, so the modules of kubernetes.core would fail there.
"""

from __future__ import annotations

import subprocess
from typing import Any, Final

import yaml
from ansible.module_utils.basic import AnsibleModule  # type: ignore[import-untyped]  # Ansible ships no types

DOCUMENTATION = """
module: missing_namespace
short_description: whether a namespace is missing, and what a run would create in it
description:
  - Reports each object as one that would be created, with its diff, where the namespace does not exist. Data of Secrets
    are left out. Where the namespace exists, it reports nothing.
  - Changes nothing; for tasks with C(when) ansible_check_mode.
options:
  namespace: {description: The namespace., required: true, type: str}
  definition:
    description: The objects, each as a dictionary or as YAML text.
    required: true
    type: list
    elements: raw
  kubectl: {description: "The kubectl command, program and options.", type: list, elements: str, default: [kubectl]}
attributes:
  check_mode:
    support: full
    description: Nothing is changed.
"""

EXAMPLES = """
- name: Tell what a run would create
  missing_namespace:
    namespace: gpu-scheduler-system
    definition: ["{{ lookup('ansible.builtin.template', 'deployment.yaml.j2') }}"]
  register: preview
  when: ansible_check_mode
"""

RETURN = """
missing: {description: Whether the namespace does not exist, type: bool}
"""

Json = dict[str, Any]

TIMEOUT: Final = 15


def objects_of(definition: list[Any]) -> list[Json]:
    """Return the objects that are given as dictionaries or as YAML text."""
    read = [list(yaml.safe_load_all(each)) if isinstance(each, str) else [each] for each in definition]
    return [body for bodies in read for body in bodies if body]


def diff_of(body: Json) -> Json:
    """Return the diff of an object that is created."""
    metadata = body["metadata"]
    header = f"{body['kind']} {'/'.join(filter(None, (metadata.get('namespace'), metadata['name'])))}"
    shown = {key: value for key, value in body.items() if body["kind"] != "Secret" or key not in ("data", "stringData")}
    text = yaml.safe_dump(shown, sort_keys=False, default_flow_style=False)
    return {"before_header": header, "after_header": header, "before": "", "after": text}


def exists(kubectl: list[str], namespace: str) -> bool:
    """Return whether the namespace exists; raise OSError where the cluster gives no answer."""
    command = [*kubectl, "get", "namespace", namespace, "--ignore-not-found", "--output=name"]
    try:
        done = subprocess.run(  # noqa: S603 - the command is the caller's kubectl
            command, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"no answer in {TIMEOUT} s") from None
    if done.returncode:
        raise OSError(" ".join(done.stderr.split()))
    return bool(done.stdout.strip())


def main() -> None:
    """Return whether the namespace is missing, and what would be created."""
    module = AnsibleModule(
        argument_spec={
            "namespace": {"type": "str", "required": True},
            "definition": {"type": "list", "elements": "raw", "required": True},
            "kubectl": {"type": "list", "elements": "str", "default": ["kubectl"]},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        missing = not exists(given["kubectl"], given["namespace"])
    except OSError as error:
        module.fail_json(msg=f"cannot read namespace {given['namespace']}: {error}")
    found = objects_of(given["definition"]) if missing else []
    created = [f"{body['kind']} {body['metadata']['name']}" for body in found]
    module.exit_json(changed=missing, missing=missing, created=created, diff=[diff_of(each) for each in found])


if __name__ == "__main__":
    main()
