"""The service accounts of an installation and their rights.

A contract test holds them equal to what the roles' templates grant.
"""

from __future__ import annotations

from gpu_scheduler import names
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.scheduler.access import Use, needed_rights
from gpu_scheduler.settings import RunSettings


@immutable
class Granted:
    """A right that a role grants. `str()` gives `get, patch secrets "gpu-scheduler-webhook-tls"`."""

    verbs: tuple[str, ...]
    resource: str
    group: str = ""
    namespace: str = ""
    """Empty if the right holds in all namespaces."""
    name: str = ""
    """The one object that the right is about; empty for all."""

    def __str__(self) -> str:
        """Return verbs, resource, object and namespace."""
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        name = f' "{self.name}"' if self.name else ""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{', '.join(self.verbs)} {resource}{name}{where}"

    def attributes(self, verb: str) -> dict[str, str]:
        """Return what a SubjectAccessReview asks about."""
        resource, _, subresource = self.resource.partition("/")
        return {
            "verb": verb,
            "group": self.group,
            "resource": resource,
            "subresource": subresource,
            "namespace": self.namespace,
            "name": self.name,
        }


@immutable
class Account:
    """A service account of ours."""

    namespace: str
    name: str
    rights: tuple[Granted, ...]

    def __str__(self) -> str:
        """Return NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"


def scheduler_account(namespace: str, *, monitors: bool = True, reads_claims: bool = False) -> Account:
    """Return the scheduler's account in this namespace. Its rights are those that the scheduler itself asks for.

    Without `monitors`, nobody grants the right to read their Leases, and there are none. With `reads_claims` the
    scheduler has `ISOLATION=dra`.
    """
    settings = RunSettings(kubernetes_namespace=namespace, isolation="dra" if reads_claims else "env")
    rights = needed_rights(settings, leader_elect=True)
    granted = tuple(
        Granted(each.verbs, each.resource, each.group, each.namespace, each.name)
        for each in rights
        if monitors or each.use is not Use.MONITORS
    )
    return Account(namespace, names.SCHEDULER_NAME, granted)


def controller_account(namespace: str) -> Account:
    """Return the controller's account."""
    ours, leases = "agentaflow.io", "coordination.k8s.io"
    return Account(
        namespace,
        names.CONTROLLER,
        (
            Granted(("get", "list", "watch"), "gpuworkloads", ours),
            Granted(("patch",), "gpuworkloads/status", ours),
            Granted(("update",), "gpuworkloads/finalizers", ours),
            Granted(("list", "watch", "delete"), "gpunodes", ours),
            Granted(("patch",), "gpunodes/status", ours),
            Granted(("create", "get", "list", "watch"), "pods"),
            Granted(("list", "watch"), "nodes"),
            Granted(("create",), "events", "events.k8s.io"),
            Granted(("create",), "leases", leases, namespace),
            Granted(("get", "update"), "leases", leases, namespace, names.CONTROLLER),
        ),
    )


def monitor_account() -> Account:
    """Return the monitors' account. The rights that only simulated GPUs need are left out."""
    ours = "agentaflow.io"
    return Account(
        names.MONITOR,
        names.MONITOR,
        (
            Granted(("get", "patch"), "nodes"),
            Granted(("create", "patch", "list", "watch"), "gpunodes", ours),
            Granted(("patch",), "gpunodes/status", ours),
            Granted(("create", "patch"), "leases", "coordination.k8s.io", names.MONITOR),
        ),
    )


def driver_account() -> Account:
    """Return the drivers' account."""
    return Account(
        names.DRIVER,
        names.DRIVER,
        (
            Granted(("list", "watch"), "nodes"),
            Granted(("list", "watch"), "gpunodes", "agentaflow.io"),
            Granted(("list", "watch", "create", "update", "delete"), "resourceslices", "resource.k8s.io"),
            Granted(("get",), "resourceclaims", "resource.k8s.io"),
        ),
    )


def renewer_account(namespace: str) -> Account:
    """Return the account that renews the webhook's certificate."""
    return Account(
        namespace,
        names.RENEWER,
        (
            Granted(("get",), "secrets", "", namespace, names.CA_SECRET),
            Granted(("get", "patch"), "secrets", "", namespace, names.SERVING_SECRET),
        ),
    )
