"""Gives service accounts rights: by a Role in a namespace, or by a ClusterRole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.integration.control_plane import ControlPlane
    from tests.kube_client import KubeClient
    from tests.objects import Object

RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
FLOW_SCHEMAS: Final = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"


def collections(namespace: str) -> dict[str, str]:
    """Return, for each kind that gives an account rights or priority, the path that creates its objects."""
    return {
        "ServiceAccount": f"/api/v1/namespaces/{namespace}/serviceaccounts",
        "ClusterRole": f"{RBAC}/clusterroles",
        "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
        "Role": f"{RBAC}/namespaces/{namespace}/roles",
        "RoleBinding": f"{RBAC}/namespaces/{namespace}/rolebindings",
        "FlowSchema": FLOW_SCHEMAS,
    }


def rights(resource: str, *verbs: str, group: str = "agentaflow.io", only: Sequence[str] = ()) -> Object:
    """Return a rule of a role: these verbs on this resource, or on the objects of these names alone."""
    rule: Object = {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
    return {**rule, "resourceNames": list(only)} if only else rule


def binding(name: str, kind: str, role: str, account: str, namespace: str) -> Object:
    """Return a RoleBinding or ClusterRoleBinding of this name: it binds an account to a Role or ClusterRole."""
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }


def make_account(kube: KubeClient, namespace: str, name: str) -> None:
    """Create a service account, unless it exists."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    assert kube.call("POST", path, {"metadata": {"name": name}})[0] in {201, 409}


def allow(kube: KubeClient, namespace: str, account: str, name: str, *rules: Object) -> None:
    """Give an account rights in its namespace, by a Role and a RoleBinding of this name."""
    make_account(kube, namespace, account)
    path = f"{RBAC}/namespaces/{namespace}"
    kube.create(f"{path}/roles", {"metadata": {"name": name}, "rules": list(rules)})
    kube.create(f"{path}/rolebindings", binding(name, "Role", name, account, namespace))


def allow_everywhere(kube: KubeClient, namespace: str, account: str, name: str, *rules: Object) -> None:
    """Give an account rights in the whole cluster, by a ClusterRole and a ClusterRoleBinding of this name."""
    make_account(kube, namespace, account)
    kube.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": list(rules)})
    kube.create(f"{RBAC}/clusterrolebindings", binding(name, "ClusterRole", name, account, namespace))


def create_account(plane: ControlPlane, name: str, role: Object) -> None:
    """Create a service account of the namespace default that has this ClusterRole."""
    make_account(plane.kube, "default", name)
    plane.kube.create(f"{RBAC}/clusterroles", role)
    body = binding(name, "ClusterRole", role["metadata"]["name"], name, "default")
    plane.kube.create(f"{RBAC}/clusterrolebindings", body)
