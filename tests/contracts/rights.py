"""The complete list of RBAC rules that the roles grant, and their accounts."""

from __future__ import annotations

from typing import Final

Rights = dict[tuple[str, str, str], set[str]]

# role → (group, resource, name of the one object; empty for all) → verbs.
RIGHTS: Final[dict[str, Rights]] = {
    "ClusterRole gpu-scheduler": {
        ("", "pods", ""): {"get", "list", "watch"},
        ("", "nodes", ""): {"list", "watch"},
        ("", "pods/binding", ""): {"create"},
        ("", "pods/status", ""): {"patch"},
        ("events.k8s.io", "events", ""): {"create"},
        ("", "persistentvolumeclaims", ""): {"list", "watch", "patch"},
        ("", "persistentvolumes", ""): {"list", "watch"},
        ("storage.k8s.io", "storageclasses", ""): {"list", "watch"},
        ("agentaflow.io", "gpunodes", ""): {"list", "watch"},
        ("agentaflow.io", "gpunodes/status", ""): {"patch"},
    },
    "Role gpu-scheduler": {
        ("coordination.k8s.io", "leases", ""): {"create"},
        ("coordination.k8s.io", "leases", "gpu-scheduler"): {"get", "update"},
        ("", "configmaps", "gpu-scheduler-settings"): {"list", "watch"},
        ("", "configmaps", "gpu-scheduler-limits"): {"list", "watch"},
    },
    "Role gpu-scheduler-reads-monitor": {("coordination.k8s.io", "leases", ""): {"list", "watch"}},
    "ClusterRole gpu-scheduler-monitor": {
        ("", "nodes", ""): {"get", "patch"},
        ("agentaflow.io", "gpunodes", ""): {"create", "patch", "list", "watch"},
        ("agentaflow.io", "gpunodes/status", ""): {"patch"},
        # Only for simulated GPUs.
        ("", "pods", ""): {"list", "watch"},
    },
    "Role gpu-scheduler-monitor": {("coordination.k8s.io", "leases", ""): {"create", "patch"}},
    "ClusterRole gpu-scheduler-controller": {
        ("agentaflow.io", "gpuworkloads", ""): {"get", "list", "watch"},
        ("agentaflow.io", "gpuworkloads/status", ""): {"patch"},
        ("agentaflow.io", "gpuworkloads/finalizers", ""): {"update"},
        ("agentaflow.io", "gpunodes", ""): {"list", "watch", "delete"},
        ("agentaflow.io", "gpunodes/status", ""): {"patch"},
        ("", "pods", ""): {"create", "get", "list", "watch"},
        ("", "nodes", ""): {"list", "watch"},
        ("events.k8s.io", "events", ""): {"create"},
    },
    "Role gpu-scheduler-controller": {
        ("coordination.k8s.io", "leases", ""): {"create"},
        ("coordination.k8s.io", "leases", "gpu-scheduler-controller"): {"get", "update"},
    },
    "Role gpu-scheduler-renewer": {
        ("", "secrets", "gpu-scheduler-webhook-ca"): {"get"},
        ("", "secrets", "gpu-scheduler-webhook-tls"): {"get", "patch"},
    },
    # Not a resource of the API server: a policy requires the right.
    "Role gpu-scheduler-check": {("agentaflow.io", "observers", ""): {"use"}},
}

# What `isolation: dra` adds to ClusterRole gpu-scheduler.
ISOLATING: Final[Rights] = {
    ("resource.k8s.io", "resourceslices", ""): {"list", "watch"},
    ("resource.k8s.io", "deviceclasses", ""): {"list", "watch"},
    ("resource.k8s.io", "resourceclaims", ""): {"get", "list", "watch", "create", "patch"},
    ("resource.k8s.io", "resourceclaims/status", ""): {"patch"},
    ("resource.k8s.io", "resourceclaims/binding", ""): {"patch"},
}

# role → the accounts that have it, as NAMESPACE/NAME.
ACCOUNTS: Final[dict[str, set[str]]] = {
    "ClusterRole gpu-scheduler": {"gpu-scheduler-system/gpu-scheduler"},
    "Role gpu-scheduler": {"gpu-scheduler-system/gpu-scheduler"},
    "Role gpu-scheduler-reads-monitor": {"gpu-scheduler-system/gpu-scheduler"},
    "ClusterRole gpu-scheduler-monitor": {"gpu-scheduler-monitor/gpu-scheduler-monitor"},
    "Role gpu-scheduler-monitor": {"gpu-scheduler-monitor/gpu-scheduler-monitor"},
    "ClusterRole gpu-scheduler-controller": {"gpu-scheduler-system/gpu-scheduler-controller"},
    "Role gpu-scheduler-controller": {"gpu-scheduler-system/gpu-scheduler-controller"},
    "Role gpu-scheduler-renewer": {"gpu-scheduler-system/gpu-scheduler-renewer"},
    "Role gpu-scheduler-check": {"default/gpu-scheduler-check", "gpu-scheduler-tests/gpu-scheduler-check"},
}
