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

RENDER: Final = """\
---
- name: Render the templates, all in one task
  ansible.builtin.copy:
    content: "{{ query('ansible.builtin.template', *_files) | join('\\n---\\n') }}"
    dest: "{{ rendered_dir }}/{{ rendered_role }}.yaml"
    mode: "0600"
  vars:
    _files: "{{ query('ansible.builtin.fileglob', role_path ~ '/templates/*.yaml.j2') | sort }}"
"""


def rendered(
    folder: Path, names: Iterable[str], inventory: str = "inventory/kind", **variables: object
) -> list[Manifest]:
    """Return every template of these roles, rendered by Ansible with `inventory` and `variables`."""
    roles, found = folder / "roles", folder / "rendered"
    found.mkdir()
    shutil.copytree(ROOT / "roles" / "common", roles / "common")
    for role in names:
        shutil.copytree(ROOT / "roles" / role, roles / role)
        (roles / role / "tasks" / "render.yml").write_text(RENDER)
    given = {"rendered_roles": list(names), "rendered_dir": str(found), **variables}
    done = subprocess.run(
        ("ansible-playbook", "-i", inventory, "tests/contracts/render.yml", "-e", json.dumps(given)),
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_ROLES_PATH": str(roles)},
        capture_output=True,
        text=True,
        timeout=limit(120),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    documents = [document for path in sorted(found.iterdir()) for document in yaml.safe_load_all(path.read_text())]
    return [document for document in documents if document]


def once_rendered(
    folders: pytest.TempPathFactory, names: Sequence[str], cases: Mapping[str, Mapping[str, Any]]
) -> Callable[[str], list[Manifest]]:
    """Return a function that renders these roles with the variables of a case, once for each case."""

    @cache
    def of_case(case: str) -> list[Manifest]:
        return rendered(folders.mktemp("case"), names, "inventory/kind", **cases[case])

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
