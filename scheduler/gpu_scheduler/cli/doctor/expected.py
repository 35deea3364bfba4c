"""The names of an installation's objects.

A contract test holds them equal to what the roles' templates make.
"""

from __future__ import annotations

from typing import Final

from gpu_scheduler import names

DEPLOYMENTS: Final = {
    "scheduler": names.SCHEDULER_NAME,
    "controller": names.CONTROLLER,
    "webhook": names.WEBHOOK,
}
"""Our Deployments by component. Without a webhook, a policy injects variables and the last one does not exist."""
FLOW_SCHEMAS: Final = frozenset({names.SCHEDULER_NAME, names.CONTROLLER})
"""The FlowSchemas of every installation. Monitors and drivers of ours have one with their name."""
KINDS: Final = frozenset({"gpunodes.agentaflow.io", "gpuworkloads.agentaflow.io"})
"""The CustomResourceDefinitions."""
MUTATING: Final = frozenset(f"{name}.gpu-scheduler.agentaflow.io" for name in ("mutate", "mutate-dra", "mutate-job"))
"""The webhooks of the MutatingWebhookConfiguration."""
CLAIM_WEBHOOKS: Final = frozenset(f"{name}.gpu-scheduler.agentaflow.io" for name in ("mutate-dra", "validate-dra"))
"""The webhooks that are registered only with `isolation: dra`."""
WEBHOOKS: Final = MUTATING - CLAIM_WEBHOOKS | {f"{name}.gpu-scheduler.agentaflow.io" for name in ("validate", "warn")}
"""The webhooks of both registrations, of every installation with webhooks."""
ASSIGNMENTS: Final = "gpu-scheduler-assignments"
"""The policy that lets only the scheduler write assignments."""
GUARDS: Final = frozenset(
    {
        ASSIGNMENTS,
        "gpu-scheduler-controller",
        "gpu-scheduler-cordons",
        "gpu-scheduler-forced-deletion",
        "gpu-scheduler-inputs",
        "gpu-scheduler-monitor",
        "gpu-scheduler-node-alias",
        "gpu-scheduler-node-name",
        "gpu-scheduler-rights",
        "gpu-scheduler-scheduler",
        "gpu-scheduler-workloads",
    }
)
"""The ValidatingAdmissionPolicies of every installation. The binding of a policy has its name."""
CLAIM_GUARDS: Final = frozenset({"gpu-scheduler-claims", "gpu-scheduler-claim-users"})
"""The ValidatingAdmissionPolicies that are there only with `isolation: dra`."""
DRIVER_GUARD: Final = names.DRIVER
"""The ValidatingAdmissionPolicy that is there only with drivers of ours."""
ENVIRONMENT: Final = "gpu-scheduler-environment"
"""The ValidatingAdmissionPolicy that is there only with INJECTION."""
INJECTION: Final = "gpu-scheduler-injection"
"""The MutatingAdmissionPolicy that injects variables in place of the webhook."""
