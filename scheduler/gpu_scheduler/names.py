"""Every annotation, label, variable, object, event and metric name, once.

LAW: constants only, and only those something uses; a name that is spelled in a second place is a bug.
"""

from typing import Final

SCHEDULER_NAME: Final = "gpu-scheduler"
"""What a pod writes as `spec.schedulerName`; also the Lease, the Deployment and the component that reports events."""

# What users write on pods.
MAP: Final = "gpu-scheduling-map"
INDEX: Final = "agentaflow.gpu/index"
COUNT: Final = "agentaflow.gpu/count"
SHARING: Final = "agentaflow.gpu/sharing"
OBSERVER: Final = "agentaflow.gpu/observer"
KEEP_ENV: Final = "agentaflow.gpu/keep-env"

# What only we write on pods, in the Binding.
ASSIGNED_DEVICES: Final = "agentaflow.gpu/assigned-devices"
ASSIGNED_INDEX: Final = "agentaflow.gpu/assigned-index"
ASSIGNED_NODE: Final = "agentaflow.gpu/assigned-node"
ASSIGNED_UUIDS: Final = "agentaflow.gpu/assigned-uuids"
ASSIGNED_AT: Final = "agentaflow.gpu/assigned-at"
ASSIGNED_BY: Final = "agentaflow.gpu/assigned-by"

# What controllers write on pods.
POD_INDEX: Final = "apps.kubernetes.io/pod-index"
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
POD_TEMPLATE_HASH: Final = "pod-template-hash"
REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"

POD_ANNOTATIONS: Final = frozenset(
    {MAP, INDEX, COUNT, SHARING, OBSERVER, KEEP_ENV, ASSIGNED_DEVICES, ASSIGNED_INDEX, ASSIGNED_NODE, COMPLETION_INDEX}
)
"""The pod annotations that a decision reads; translation drops all others."""

POD_LABELS: Final = frozenset({POD_INDEX, COMPLETION_INDEX, POD_TEMPLATE_HASH, REPLICA_TYPE})
"""The pod labels that a decision reads; translation drops all others."""

NODE_ALIAS: Final = "gpu-node-name"
"""The node label by which a map may name a node that it cannot name by its real name."""

DEVICES: Final = "agentaflow.gpu/devices"
"""The node annotation in which a monitor lists the node's cards."""

GPU_RESOURCE: Final = "nvidia.com/gpu"
"""What NVIDIA's device plugin advertises; a limit of it is answered by the plugin, card by card."""

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""The annotation by which a scheduler tells a claim's provisioner where its pod will run."""

# What containers read.
VISIBLE_DEVICES: Final = "CUDA_VISIBLE_DEVICES"
DEVICE_ORDER: Final = "CUDA_DEVICE_ORDER"
PCI_BUS_ID: Final = "PCI_BUS_ID"
DEVICES_FIELD: Final = f"metadata.annotations['{ASSIGNED_DEVICES}']"
"""The fieldRef path by which a container reads the devices that the scheduler assigned."""

# Conditions and events.
CONDITION_POD_SCHEDULED: Final = "PodScheduled"
CONDITION_UNSCHEDULABLE: Final = "Unschedulable"
CONDITION_SCHEDULER_ERROR: Final = "SchedulerError"
EVENT_SCHEDULED: Final = "Scheduled"
EVENT_FAILED: Final = "FailedScheduling"
EVENT_CONFLICT: Final = "GpuConflict"

# Objects.
LEASE: Final = SCHEDULER_NAME
SYSTEM_NAMESPACE: Final = "gpu-scheduler-system"

# Metrics; upstream's names where the meaning is the same.
METRIC_PENDING: Final = "agentaflow_workloads_pending"
METRIC_RUNNING: Final = "agentaflow_workloads_running"
METRIC_DURATION: Final = "agentaflow_scheduling_duration"
METRIC_ATTEMPTS: Final = "scheduler_schedule_attempts"
METRIC_ATTEMPT_DURATION: Final = "scheduler_scheduling_attempt_duration_seconds"
METRIC_QUEUES: Final = "scheduler_pending_pods"
METRIC_CONFLICTS: Final = "gpu_scheduler_conflicts"
METRIC_DRIFT: Final = "gpu_scheduler_drift"
METRIC_REPAIRS: Final = "gpu_scheduler_ledger_repairs"
METRIC_BUILD_INFO: Final = "gpu_scheduler_build_info"
METRIC_LEADER: Final = "gpu_scheduler_leader"
METRIC_WATCH_SILENCE: Final = "gpu_scheduler_watch_silence_seconds"
METRIC_REVIEWS: Final = "gpu_scheduler_admission_reviews"
METRIC_CERTIFICATE_EXPIRY: Final = "gpu_scheduler_certificate_expiry_seconds"
