"""The facts of an installation in which nothing is wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from gpu_scheduler.cli.doctor.expected import (
    CLAIM_GUARDS,
    CLAIM_WEBHOOKS,
    DEPLOYMENTS,
    DRIVER_GUARD,
    ENVIRONMENT,
    FLOW_SCHEMAS,
    GUARDS,
    KINDS,
    WEBHOOKS,
)
from gpu_scheduler.cli.doctor.facts import (
    AdmissionPolicy,
    Answer,
    Certificate,
    Claims,
    Facts,
    Gpus,
    HeldLease,
    Installer,
    Known,
    Replica,
    UnreadFact,
    Workload,
)

NOW = datetime(2026, 11, 25, 3, 37, tzinfo=UTC)
DAY = timedelta(days=1)
GONE = AdmissionPolicy(exists=False, fails_closed=False, bound=False, denies=False)
REFUSAL = (
    "ValidatingAdmissionPolicy 'gpu-scheduler-assignments' with binding 'gpu-scheduler-assignments' denied request"
)
CERTIFICATE = Certificate(NOW - 100 * DAY, NOW + 265 * DAY, renewer="gpu-scheduler-renewer")
REPLICAS = tuple(
    Replica(
        f"{name}-{number}",
        component,
        version="0.1.0",
        commit="0a1b2c3",
        certificate_ends=CERTIFICATE.ends if component == "webhook" else None,
    )
    for component, name in DEPLOYMENTS.items()
    for number in range(2)
)
LEASES = {name: HeldLease(f"{name}-0_1", 1.5, 15.0) for name in ("gpu-scheduler", "gpu-scheduler-controller")}
POLICIES = {
    **dict.fromkeys(GUARDS, AdmissionPolicy()),
    **dict.fromkeys((*CLAIM_GUARDS, DRIVER_GUARD, ENVIRONMENT), GONE),
}
MONITOR_LEASES = {f"node{number}": HeldLease(f"node{number}", 10.0, 45.0) for number in range(1, 9)}

PRIORITIES = FLOW_SCHEMAS | {"gpu-scheduler-monitor", "gpu-scheduler-driver", "catch-all"}

ISOLATING: dict[str, Any] = {
    "isolates": True,
    "drivers": Workload(4, 4),
    "policies": {**POLICIES, **dict.fromkeys((*CLAIM_GUARDS, DRIVER_GUARD), AdmissionPolicy())},
    "webhooks": WEBHOOKS | CLAIM_WEBHOOKS,
}
"""What differs where claims are allocated and our drivers hand out their GPUs."""


def facts(**changes: Any) -> Facts:
    """Return the facts with these changes. A value that is no fact yet is one that was read."""
    healthy: dict[str, Any] = {
        "namespace": "gpu-scheduler-system",
        "own_version": "0.1.0",
        "now": NOW,
        "installer": Installer("ansible"),
        "server_version": (1, 36),
        "clock_ahead": 0.4,
        "deployments": dict.fromkeys(DEPLOYMENTS.values(), Workload(2, 2)),
        "monitors": Workload(4, 4),
        "drivers": None,
        "pods": frozenset(replica.pod for replica in REPLICAS),
        "replicas": REPLICAS,
        "kinds": KINDS,
        "denied": {},
        "flow_schemas": PRIORITIES,
        "isolates": False,
        "policies": POLICIES,
        "injection": GONE,
        "webhooks": WEBHOOKS,
        "our_pod": Answer(accepted=True, injected=True),
        "forged_pod": Answer(accepted=False, message=REFUSAL),
        "certificate": CERTIFICATE,
        "leases": LEASES,
        "monitor_leases": MONITOR_LEASES,
        "gpus": Gpus(),
        "claims": Claims(),
        "limits_faults": (),
    }
    plain = {"namespace", "own_version", "now", "installer"}
    given = {**healthy, **changes}
    read: dict[str, Any] = {
        name: value if name in plain or isinstance(value, (Known, UnreadFact)) else Known(value)
        for name, value in given.items()
    }
    return Facts(**read)
