"""Service accounts of the namespace default with the rights of one ClusterRole."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.integration.control_plane import ControlPlane
    from tests.objects import Object


def create_account(plane: ControlPlane, name: str, role: Object) -> None:
    """Create a service account that has this ClusterRole."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    plane.kube.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}})
    plane.kube.create(f"{rbac}/clusterroles", role)
    plane.kube.create(
        f"{rbac}/clusterrolebindings",
        {
            "metadata": {"name": name},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": role["metadata"]["name"],
            },
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        },
    )
