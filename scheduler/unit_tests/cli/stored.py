"""The storage of a scripted cluster, for verbs that read everything that the scheduler watches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unit_tests.cli.scripted_cluster import items
from unit_tests.kube.server import Reply

if TYPE_CHECKING:
    from unit_tests.kube.server import FakeServer

CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
FORBIDDEN = Reply(403, {"message": 'User "jane" cannot do that'})


def with_storage(server: FakeServer) -> None:
    """Add a claim, its volume and its class."""
    claim = {"metadata": {"namespace": "ml", "name": "data"}, "spec": {"volumeName": "disk"}}
    server.on("GET", CLAIMS, items(claim))
    server.on("GET", VOLUMES, items({"metadata": {"name": "disk"}, "spec": {}}))
    server.on("GET", CLASSES, items({"metadata": {"name": "fast"}, "provisioner": "csi"}))
