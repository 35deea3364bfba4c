"""The Secrets with which the webhook serves, and what no account that writes one of them may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpu_scheduler.names import CA_SECRET, SERVING_SECRET
from tests.attacks.installed_cluster import NOBODYS, SYSTEM

if TYPE_CHECKING:
    from tests.attacks.installed_cluster import Request

SECRETS: Final = f"{SYSTEM}/secrets"
OTHER: Final = "registry-password"
CHANGE: Final = {"data": {"tls.key": "c3B5"}}
NEITHERS: Final[dict[str, Request]] = {
    **NOBODYS,
    "reads another Secret of its namespace": ("GET", f"{SECRETS}/{OTHER}", None),
    "reads a Secret of another namespace": ("GET", f"/api/v1/namespaces/default/secrets/{CA_SECRET}", None),
    "changes the CA": ("PATCH", f"{SECRETS}/{CA_SECRET}", CHANGE),
    "deletes the CA, to make one of another type": ("DELETE", f"{SECRETS}/{CA_SECRET}", None),
    "deletes the serving pair": ("DELETE", f"{SECRETS}/{SERVING_SECRET}", None),
    "changes another Secret": ("PATCH", f"{SECRETS}/{OTHER}", CHANGE),
    "reads pods": ("GET", "/api/v1/pods", None),
    "makes a pod": ("POST", f"{SYSTEM}/pods", {"metadata": {"name": "spy"}}),
}
"""Requests that neither the renewer nor the issuer may send."""
