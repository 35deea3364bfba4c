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
KINDS: Final = frozenset({"gpunodes.agentaflow.io", "gpuworkloads.agentaflow.io"})
"""The CustomResourceDefinitions."""
VALIDATING: Final = frozenset(f"{name}.gpu-scheduler.agentaflow.io" for name in ("validate", "warn"))
"""The webhooks of the ValidatingWebhookConfiguration."""
WEBHOOKS: Final = VALIDATING | {f"{name}.gpu-scheduler.agentaflow.io" for name in ("mutate", "mutate-job")}
"""The webhooks of both registrations."""
ASSIGNMENTS: Final = "gpu-scheduler-assignments"
"""The policy that lets only the scheduler write assignments."""
GUARDS: Final = frozenset(
    {
        ASSIGNMENTS,
        "gpu-scheduler-controller",
        "gpu-scheduler-cordons",
        "gpu-scheduler-inputs",
        "gpu-scheduler-monitor",
        "gpu-scheduler-node-name",
        "gpu-scheduler-rights",
        "gpu-scheduler-scheduler",
        "gpu-scheduler-workloads",
    }
)
"""The ValidatingAdmissionPolicies of every installation. The binding of a policy has its name."""
ENVIRONMENT: Final = "gpu-scheduler-environment"
"""The ValidatingAdmissionPolicy that is there only with INJECTION."""
INJECTION: Final = "gpu-scheduler-injection"
"""The MutatingAdmissionPolicy that injects variables in place of the webhook."""
