"""A control plane with what the scheduler's role puts there, its service account and its rights; and other roles'."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
import yaml

from tests.auditor.audit_log import audit_flags
from tests.integration.bench import SYSTEM_NAMESPACE
from tests.integration.control_plane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.objects import Object

ROLES = Path(__file__).resolve().parents[2] / "roles"
COLLECTIONS = {
    "ServiceAccount": f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/roles",
    "RoleBinding": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/rolebindings",
}


def control_plane(folder: Path, *flags: str) -> ControlPlane:
    """Start one, with these flags more for its API server; who asked for it stops it."""
    plane = ControlPlane(folder, *flags)
    try:
        plane.kube.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM_NAMESPACE}})
        for collection, body in rights_of("scheduler"):
            plane.kube.create(collection, body)
    except BaseException:
        plane.stop()
        raise
    return plane


def audited_plane(folder: Path) -> ControlPlane:
    """Start one that keeps an audit log of writes to pods, as the auditor needs it."""
    return control_plane(folder, *audit_flags(folder))


def rights_of(role: str) -> Iterator[tuple[str, Object]]:
    """What the role applies, and where: with a right too few, no test here passes."""
    values = {f"{role}_namespace": SYSTEM_NAMESPACE, f"_{role}_labels": {}}
    return ((COLLECTIONS[body["kind"]], body) for body in rendered(role, "rbac", values))


def values_of(role: str) -> Object:
    """The role's variables and defaults, before anybody chooses others; labels are put together by Ansible alone."""
    files = [ROLES / role / folder / "main.yml" for folder in ("vars", "defaults")]
    values = {key: value for file in files for key, value in yaml.safe_load(file.read_text(encoding="utf-8")).items()}
    return {**values, f"_{role}_labels": {}}


def rendered(role: str, name: str, values: Object) -> Iterator[Object]:
    """The objects of a role's template."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)  # noqa: S701 - YAML, no HTML
    environment.filters["to_json"] = json.dumps
    template = environment.from_string((ROLES / role / "templates" / f"{name}.yaml.j2").read_text(encoding="utf-8"))
    return (body for body in yaml.safe_load_all(template.render(values)) if body)
