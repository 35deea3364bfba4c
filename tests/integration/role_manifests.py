"""Control planes with the manifests of our roles: service accounts, RBAC and FlowSchemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
import yaml
from ansible.plugins.filter.core import FilterModule  # type: ignore[import-untyped]  # Ansible ships no types

from tests.auditor.audit_log import audit_flags
from tests.integration.accounts import collections
from tests.integration.control_plane import ControlPlane
from tests.integration.namespace import SYSTEM_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.objects import Object

ROLES = Path(__file__).resolve().parents[2] / "roles"


def control_plane(folder: Path, *flags: str, isolation: str = "env") -> ControlPlane:
    """Start a control plane with the RBAC of role scheduler and these flags of the API server. The caller stops it."""
    plane = ControlPlane(folder, *flags)
    try:
        plane.kube.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM_NAMESPACE}})
        for collection, body in rights_of("scheduler", scheduler_isolation=isolation):
            plane.kube.create(collection, body)
    except BaseException:
        plane.stop()
        raise
    return plane


def audited_plane(folder: Path) -> ControlPlane:
    """Start a control plane that keeps an audit log of writes to pods, for the auditor."""
    return control_plane(folder, *audit_flags(folder))


def rights_of(role: str, **inputs: str) -> Iterator[tuple[str, Object]]:
    """Return the service account of a role, its RBAC objects and its FlowSchema, each with the path to create it.

    The tests run with exactly these rights: a missing right fails them. `inputs` are the role's, by default its own.
    """
    values = {**values_of(role), f"{role}_namespace": SYSTEM_NAMESPACE, **inputs}
    paths = collections(SYSTEM_NAMESPACE)
    return ((paths[body["kind"]], body) for body in rendered(role, "rbac", values))


def values_of(role: str) -> Object:
    """Return variables and defaults of a role, as a user gets them. Labels are empty: only Ansible composes them."""
    files = [ROLES / role / folder / "main.yml" for folder in ("vars", "defaults")]
    values = {key: value for file in files for key, value in yaml.safe_load(file.read_text(encoding="utf-8")).items()}
    options = {"_common_pod_options": values.get(f"{role}_pod_options", {}), "_common_openshift": False}
    common = {"_common_labels": {}, "_common_selector": {}, "_common_manager": "ansible", "ansible_role_name": role}
    return {**values, **options, **common}


def rendered(role: str, name: str, values: Object) -> Iterator[Object]:
    """Return the objects of a role's template, rendered with these values."""
    environment = jinja2.Environment(  # noqa: S701 - YAML, no HTML
        loader=jinja2.FileSystemLoader(ROLES / role / "templates"), undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    # Its default and others of the same names need Ansible's own values.
    of_ansible = FilterModule().filters()
    environment.filters.update({name: of_ansible[name] for name in ("bool", "combine")}, to_json=json.dumps)
    text = environment.get_template(f"{name}.yaml.j2").render(values)
    return (body for body in yaml.safe_load_all(text) if body)
