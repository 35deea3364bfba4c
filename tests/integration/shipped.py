"""A control plane with what the scheduler's role puts there: its service account and its rights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
import yaml

from tests.integration.bench import SYSTEM_NAMESPACE
from tests.integration.plant import ControlPlane

if TYPE_CHECKING:
    from tests.integration.plant import Object

RBAC = Path(__file__).resolve().parents[2] / "roles" / "scheduler" / "templates" / "rbac.yaml.j2"
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
        for body in shipped_rights():
            plane.kube.create(COLLECTIONS[body["kind"]], body)
    except BaseException:
        plane.stop()
        raise
    return plane


def shipped_rights() -> list[Object]:
    """What the role applies: with a right too few, no test here passes."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)  # noqa: S701 - YAML, no HTML
    environment.filters["to_json"] = json.dumps
    template = environment.from_string(RBAC.read_text(encoding="utf-8"))
    rendered = template.render(scheduler_namespace=SYSTEM_NAMESPACE, _scheduler_labels={})
    return [body for body in yaml.safe_load_all(rendered) if body]
