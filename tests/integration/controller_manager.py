"""Runs kube-controller-manager with few of its controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.integration.control_plane import ADMIN_TOKEN
from tests.integration.programs import Process, program
from tests.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane


OF_CLAIMS: Final = ("resourceclaim-controller", "garbage-collector-controller", "statefulset-controller")
"""The controllers that clear allocations of ResourceClaims, and make the pods of StatefulSets."""
OF_DELETIONS: Final = ("namespace-controller", "garbage-collector-controller")
"""The controllers that empty deleted namespaces and delete what deleted objects own."""


def start_controller_manager(
    plane: ControlPlane, folder: Path, *controllers: str, own_accounts: bool = False
) -> Process:
    """Start these controllers, by default those that finish deletions. The caller stops them.

    With `own_accounts` each has its own service account and rights, as in a cluster; otherwise all are admin.
    """
    kubeconfig = plane.kubeconfig(folder / "controller-manager.kubeconfig", ADMIN_TOKEN)
    command = [
        str(program("kube-controller-manager")),
        f"--kubeconfig={kubeconfig}",
        f"--controllers={','.join(controllers or OF_DELETIONS)}",
        f"--use-service-account-credentials={str(own_accounts).lower()}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={free_port()}",
        f"--cert-dir={folder}",
    ]
    return Process("kube-controller-manager", command, folder / "controller-manager.log")
