"""Every name of an annotation, label, variable, object, event or metric, defined once.

LAW: constants only, and only those that are used; a name that is spelled in a second place is a bug.
"""

from typing import Final

SCHEDULER_NAME: Final = "gpu-scheduler"
"""A pod's `spec.schedulerName`; also the name of the Lease, the Deployment and the component that reports events."""

PREFIX: Final = "agentaflow.gpu/"
"""How the keys of our annotations and labels begin, except MAP and NODE_ALIAS."""

# What users write on pods.
MAP: Final = "gpu-scheduling-map"
INDEX: Final = "agentaflow.gpu/index"
COUNT: Final = "agentaflow.gpu/count"
MEMORY: Final = "agentaflow.gpu/memory"
EXCLUSIVE: Final = "agentaflow.gpu/exclusive"
GPU_TYPE: Final = "agentaflow.gpu/type"
STRATEGY: Final = "agentaflow.gpu/scheduling-strategy"
PRIORITY: Final = "agentaflow.gpu/priority"
SHARING: Final = "agentaflow.gpu/sharing"
START: Final = "agentaflow.gpu/start"
OBSERVER: Final = "agentaflow.gpu/observer"
KEEP_ENV: Final = "agentaflow.gpu/keep-env"

# What only the scheduler writes on pods, in the Binding.
ASSIGNED_DEVICES: Final = "agentaflow.gpu/assigned-devices"
ASSIGNED_INDEX: Final = "agentaflow.gpu/assigned-index"
ASSIGNED_NODE: Final = "agentaflow.gpu/assigned-node"
ASSIGNED_UUIDS: Final = "agentaflow.gpu/assigned-uuids"
ASSIGNED_TOGETHER: Final = "agentaflow.gpu/assigned-together"
ASSIGNED_AT: Final = "agentaflow.gpu/assigned-at"
ASSIGNED_BY: Final = "agentaflow.gpu/assigned-by"
ASSIGNED_REASON: Final = "agentaflow.gpu/assigned-reason"

# What controllers write on pods.
POD_INDEX: Final = "apps.kubernetes.io/pod-index"
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
POD_TEMPLATE_HASH: Final = "pod-template-hash"
REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"

POD_ANNOTATIONS: Final = frozenset(
    {
        MAP,
        INDEX,
        COUNT,
        MEMORY,
        EXCLUSIVE,
        GPU_TYPE,
        STRATEGY,
        PRIORITY,
        SHARING,
        START,
        OBSERVER,
        KEEP_ENV,
        ASSIGNED_DEVICES,
        ASSIGNED_INDEX,
        ASSIGNED_NODE,
        ASSIGNED_UUIDS,
        ASSIGNED_TOGETHER,
        ASSIGNED_AT,
        COMPLETION_INDEX,
    }
)
"""The pod annotations that a decision reads; translation drops all others."""

# Kubeflow's jobs. The webhook copies a job's annotations into its pod templates.
KUBEFLOW: Final = "kubeflow.org"
PYTORCH_JOB: Final = "PyTorchJob"
MPI_JOB: Final = "MPIJob"
TF_JOB: Final = "TFJob"

CLAIM: Final = "gpu-scheduler-"
"""How the names of our ResourceClaims begin, and those of their entries in a pod's spec."""

NODE_ALIAS: Final = "gpu-node-name"
"""The node label with an alias, for a node whose real name a map cannot use."""

DEVICES: Final = "agentaflow.gpu/devices"
"""The node annotation in which a monitor lists the node's devices."""

ENABLED: Final = "agentaflow.gpu/enabled"
"""The node label by which an operator chooses the nodes that have a monitor."""

# What else a monitor writes on its node. It also writes the label COUNT, the number of its devices.
SCHEDULABLE: Final = "agentaflow.gpu/schedulable"
TIER: Final = "agentaflow.gpu/utilization-tier"
STATUS: Final = "agentaflow.gpu/status"
LAST_UPDATE: Final = "agentaflow.gpu/last-update"

GPU_RESOURCE: Final = "nvidia.com/gpu"
"""The resource that NVIDIA's device plugin advertises. For a limit of it, the plugin allocates the devices."""

DRA_DRIVER: Final = "gpu.agentaflow.io"
"""The name of our driver for dynamic resource allocation: in ResourceSlices, in allocations and at the kubelet."""
NVIDIA_DRA_DRIVER: Final = "gpu.nvidia.com"
"""The name of NVIDIA's driver for the same devices."""
GPU_DRIVERS: Final = frozenset({DRA_DRIVER, NVIDIA_DRA_DRIVER})
"""The drivers whose devices are GPUs with a UUID."""
CORDONED_TAINT: Final = "agentaflow.gpu/cordoned"
"""The taint of a cordoned device in a ResourceSlice: other schedulers do not allocate the device."""
PCI_BUS_ATTRIBUTE: Final = "resource.kubernetes.io/pciBusID"
"""Kubernetes' own name of the attribute of a device that has its PCI address."""
SIMULATED_CDI_KIND: Final = "agentaflow.io/gpu"
"""The kind of simulated devices in the Container Device Interface (CDI), by which a runtime finds a device."""
NVIDIA_CDI_KIND: Final = GPU_RESOURCE
"""The kind of the devices that NVIDIA's container toolkit describes for a runtime."""

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""The claim annotation in which a scheduler writes the pod's node for the claim's provisioner."""

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
CONDITION_SCHEDULED: Final = "Scheduled"
CONDITION_COMPLETED: Final = "Completed"
CONDITION_READY: Final = "Ready"
CONDITION_CORDONED: Final = "Cordoned"
"""A GPUNode's condition by which the scheduler confirms its cordons."""
EVENT_SCHEDULED: Final = "Scheduled"
EVENT_FAILED: Final = "FailedScheduling"
EVENT_CONFLICT: Final = "GpuConflict"
EVENT_MOVED: Final = "GpuMoved"

# Objects.
LEASE: Final = SCHEDULER_NAME
CONTROLLER: Final = "gpu-scheduler-controller"
"""The name of the controller's Deployment, of its Lease, and of its field manager."""
WORKLOAD_KIND: Final = "GPUWorkload"
NODE_KIND: Final = "GPUNode"
WORKLOAD: Final = "agentaflow.gpu/workload"
"""The label of a workload's pods: the workload's name, shortened if it is too long for a label."""
SYSTEM_NAMESPACE: Final = "gpu-scheduler-system"
SETTINGS: Final = "gpu-scheduler-settings"
"""The ConfigMap of the settings that can change while the scheduler runs, in the scheduler's namespace."""
SETTINGS_STRATEGY: Final = "strategy"
"""The key of that ConfigMap with the strategy of pods that name none."""
LIMITS: Final = "gpu-scheduler-limits"
"""The ConfigMap of the limits of each namespace, in the scheduler's namespace."""
LIMITS_TEXT: Final = "limits"
"""The key of that ConfigMap that has a line per namespace."""
MONITOR: Final = "gpu-scheduler-monitor"
"""The name of the monitors' namespace, DaemonSet, service account and field manager."""
DRIVER: Final = "gpu-scheduler-driver"
"""The name of the drivers' namespace, DaemonSet, service account and policy."""
WEBHOOK: Final = "gpu-scheduler-webhook"
"""The name of the webhook's Service, and of its two registrations."""
RENEWER: Final = "gpu-scheduler-renewer"
"""The name of the renewer's CronJob, service account and field manager."""
ISSUER: Final = "gpu-scheduler-issuer"
"""The name of the service account and field manager of `gpu-scheduler issue`."""
CA_SECRET: Final = "gpu-scheduler-webhook-ca"  # noqa: S105 - an object's name
"""The Secret with the CAs to trust and with the one that signs; whoever installs writes it."""
SERVING_SECRET: Final = "gpu-scheduler-webhook-tls"  # noqa: S105 - likewise
"""The Secret with the pair that the webhook serves."""

# Metrics; upstream's names where the meaning is the same.
METRIC_PENDING: Final = "agentaflow_workloads_pending"
METRIC_RUNNING: Final = "agentaflow_workloads_running"
METRIC_DURATION: Final = "agentaflow_scheduling_duration"
METRIC_GPUS: Final = "agentaflow_gpu_total"
METRIC_GPUS_AVAILABLE: Final = "agentaflow_gpu_available"
METRIC_UTILIZATION: Final = "agentaflow_gpu_utilization"
METRIC_STRATEGY: Final = "gpu_scheduler_strategy"
METRIC_LIMITS_FAULTS: Final = "gpu_scheduler_limits_faults"
METRIC_ATTEMPTS: Final = "scheduler_schedule_attempts"
METRIC_ATTEMPT_DURATION: Final = "scheduler_scheduling_attempt_duration_seconds"
METRIC_QUEUES: Final = "scheduler_pending_pods"
METRIC_PENDING_BY_REASON: Final = "gpu_scheduler_pending_pods"
METRIC_ATTEMPTS_BY_REASON: Final = "gpu_scheduler_attempts"
METRIC_BINDS: Final = "gpu_scheduler_binds"
METRIC_CREATION_TO_BIND: Final = "gpu_scheduler_creation_to_bind_seconds"
METRIC_LONGEST_WAIT: Final = "gpu_scheduler_longest_wait_seconds"
METRIC_NODE_GPUS: Final = "gpu_scheduler_node_gpus"
METRIC_STALE_MONITORS: Final = "gpu_scheduler_stale_monitors"
METRIC_UNPUBLISHED_NODES: Final = "gpu_scheduler_unpublished_nodes"
METRIC_ALLOCATED_CLAIMS: Final = "gpu_scheduler_allocated_claims"
METRIC_ALLOCATION_DURATION: Final = "gpu_scheduler_claim_allocation_duration_seconds"
METRIC_CONFLICTS: Final = "gpu_scheduler_conflicts"
METRIC_DRIFT: Final = "gpu_scheduler_drift"
METRIC_REPAIRS: Final = "gpu_scheduler_ledger_repairs"
METRIC_BUILD_INFO: Final = "gpu_scheduler_build_info"
METRIC_LEADER: Final = "gpu_scheduler_leader"
METRIC_LEADER_TRANSITIONS: Final = "gpu_scheduler_leader_transitions"
METRIC_WATCH_SILENCE: Final = "gpu_scheduler_watch_silence_seconds"
METRIC_QUEUE: Final = "gpu_scheduler_controller_queue"
METRIC_WORKLOADS: Final = "gpu_scheduler_workloads"
METRIC_REVIEWS: Final = "gpu_scheduler_admission_reviews"
METRIC_REVIEW_DURATION: Final = "gpu_scheduler_admission_review_duration_seconds"
METRIC_CERTIFICATE_EXPIRY: Final = "gpu_scheduler_certificate_expiry_seconds"
METRIC_GPU_UTILIZATION: Final = "gpu_scheduler_monitor_gpu_utilization_percent"
METRIC_GPU_MEMORY_TOTAL: Final = "gpu_scheduler_monitor_gpu_memory_total_bytes"
METRIC_GPU_MEMORY_USED: Final = "gpu_scheduler_monitor_gpu_memory_used_bytes"
METRIC_GPU_TEMPERATURE: Final = "gpu_scheduler_monitor_gpu_temperature_celsius"
METRIC_GPU_POWER: Final = "gpu_scheduler_monitor_gpu_power_watts"
METRIC_GPU_HEALTH: Final = "gpu_scheduler_monitor_gpu_health"
METRIC_MONITOR_CURRENT: Final = "gpu_scheduler_monitor_current"
METRIC_PREPARED_CLAIMS: Final = "gpu_scheduler_driver_prepared_claims"
METRIC_DRIVER_CLAIMS: Final = "gpu_scheduler_driver_claims"
METRIC_DRIVER_REGISTERED: Final = "gpu_scheduler_driver_registered"
METRIC_DRIVER_CURRENT: Final = "gpu_scheduler_driver_current"
