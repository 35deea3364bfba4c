"""Renders the manifests of the roles as the main play applies them, without a cluster."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import yaml

from tests.contracts.roles import ROOT
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    import pytest

Manifest = dict[str, Any]
Case = tuple[str, "Mapping[str, object]"]
"""A role and the variables of the inventory that are given to it."""

KIND: Final = "inventory/kind"
# Not by a module: each would start two processes. The result of `debug` stands in the output.
RENDER: Final = """\
---
- name: Render the templates, all in one task
  ansible.builtin.debug:
    msg: "{{ query('ansible.builtin.template', *_files) | join('\\n---\\n') }}"
  vars:
    _files: "{{ query('ansible.builtin.fileglob', role_path ~ '/templates/*.yaml.j2') | sort }}"
"""
OUTPUT: Final = "ansible.posix.json"
MADE_UP: Final = {
    "base_image_id": "sha256:0",
    "__certificates_found": {"found": [[], [], [], [], [], []]},
    "__certificates_rotated": {
        "ca": dict.fromkeys(("ca.crt", "ca.key", "previous.crt", "tls.crt", "tls.key"), "bWFkZSB1cA=="),
        "serving": dict.fromkeys(("tls.crt", "tls.key", "ca.crt"), "bWFkZSB1cA=="),
    },
    "__webhook_found": {"found": [[{"data": {"ca.crt": "bWFkZSB1cA=="}}], []]},
    "__check_found": {"found": [[], [], []]},
}
"""What a run would read from the cluster."""
_TEXTS: Final[dict[tuple[str, str, str], str]] = {}
"""What this process has rendered, by inventory, role and variables."""


def rendered(folder: Path, names: Sequence[str], inventory: str = KIND, **variables: object) -> list[Manifest]:
    """Return every template of these roles, rendered by Ansible with `inventory` and `variables`."""
    render(folder, inventory, ((role, variables) for role in names))
    texts = (_TEXTS[_key(inventory, (role, variables))] for role in sorted(names))
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    documents = [document for text in texts for document in yaml.load_all(text, loader)]
    return [document for document in documents if document]


def render(folder: Path, inventory: str, cases: Iterable[Case]) -> None:
    """Render those cases that are not yet rendered, all by one run of Ansible, whose start costs as much as three."""
    missing = {key: case for case in cases if (key := _key(inventory, case)) not in _TEXTS}
    if not missing:
        return
    roles = folder / "roles"
    for role in {"common", *(role for role, _ in missing.values())}:
        shutil.copytree(ROOT / "roles" / role, roles / role)
        (roles / role / "tasks").mkdir(exist_ok=True)
        (roles / role / "tasks" / "render.yml").write_text(RENDER)
    tasks = [
        {"ansible.builtin.include_role": {"name": role, "tasks_from": "render"}, "vars": variables}
        for role, variables in missing.values()
    ]
    (folder / "render.yml").write_text(json.dumps([{"hosts": "localhost", "vars": MADE_UP, "tasks": tasks}]))
    done = subprocess.run(
        ("ansible-playbook", "-i", inventory, str(folder / "render.yml")),
        cwd=ROOT,
        env={
            **os.environ,
            "ANSIBLE_ROLES_PATH": str(roles),
            "ANSIBLE_STDOUT_CALLBACK": OUTPUT,
            "ANSIBLE_CALLBACKS_ENABLED": OUTPUT,
        },
        capture_output=True,
        text=True,
        timeout=limit(120),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (play,) = json.loads(done.stdout)["plays"]
    results = (task["hosts"]["localhost"] for task in play["tasks"])
    _TEXTS.update(zip(missing, (each["msg"] for each in results if "msg" in each), strict=True))


def _key(inventory: str, case: Case) -> tuple[str, str, str]:
    role, variables = case
    return inventory, role, json.dumps(variables, sort_keys=True)


def once_rendered(
    folders: pytest.TempPathFactory, names: Sequence[str], cases: Mapping[str, Mapping[str, Any]]
) -> Callable[[str], list[Manifest]]:
    """Return a function that returns what these roles make with the variables of a case. One run renders all cases."""

    @cache
    def of_case(case: str) -> list[Manifest]:
        folder = folders.mktemp("cases")
        render(folder, KIND, ((role, each) for each in cases.values() for role in names))
        return rendered(folder, names, KIND, **cases[case])

    return of_case


def of_kind(manifests: Iterable[Manifest], *kinds: str) -> list[Manifest]:
    """Return the manifests of these kinds."""
    return [manifest for manifest in manifests if manifest["kind"] in kinds]


def only(manifests: Iterable[Manifest], kind: str) -> Manifest:
    """Return the only manifest of that kind."""
    (found,) = of_kind(manifests, kind)
    return found


def pod_of(manifest: Manifest) -> Manifest:
    """Return the specification of a pod, or that of a workload's template."""
    spec: Manifest = manifest["spec"]
    if manifest["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    return spec if manifest["kind"] == "Pod" else spec["template"]["spec"]
