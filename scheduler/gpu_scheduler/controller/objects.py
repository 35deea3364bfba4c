"""GPUWorkload of agentaflow.io/v1, field for field.

Role crds installs the same fields as schemas in the API server. A contract test compares the two.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from gpu_scheduler.controller.gpu_workload import Phase
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.kube.objects.agentaflow import Count, Memory, Moment, StatusConditionObject, WrittenStruct
from gpu_scheduler.kube.objects.meta import ObjectMeta

GoDuration = Annotated[str, Meta(pattern=r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$", max_length=64)]


class GpuRequirements(WrittenStruct, kw_only=True):
    """Which devices, and how many of them, on one node."""

    gpu_count: Annotated[int, Meta(ge=1, le=1024)] = 1
    min_gpu_memory: Memory = msgspec.field(name="minGPUMemory", default=0)
    exclusive_access: bool = True
    gpu_type: Annotated[str, Meta(min_length=1, max_length=63, pattern="^[ -~]*$")] | None = None


class RetryPolicy(WrittenStruct, kw_only=True):
    """What happens when the pod fails."""

    limit: Annotated[int, Meta(ge=0, le=10)] = 0


class TemplateMeta(WrittenStruct, kw_only=True):
    """Labels and annotations that the pod gets in addition to the controller's own."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class PodTemplate(WrittenStruct, kw_only=True):
    """The pod to create; `spec` is a PodSpec of Kubernetes."""

    metadata: TemplateMeta | None = None
    spec: dict[str, Any]


class WorkloadSpec(WrittenStruct, kw_only=True):
    """The request. The fields that the pod depends on cannot be changed after creation."""

    priority: Annotated[int, Meta(ge=-1_000_000_000, le=1_000_000_000)] = 0
    gpu_memory_required: Memory = 0
    scheduling_strategy: Strategy | None = None
    gpu_requirements: GpuRequirements = msgspec.field(default_factory=GpuRequirements)
    estimated_duration: GoDuration | None = None
    retry_policy: RetryPolicy = msgspec.field(default_factory=RetryPolicy)
    pod_template: PodTemplate


class WorkloadStatusObject(WrittenStruct, kw_only=True):
    """The status that the controller writes on a workload."""

    phase: Phase | None = None
    node: str | None = None
    devices: list[str] | None = None
    uuids: list[str] | None = None
    pod_name: str | None = None
    attempts: Count | None = None
    reason: str | None = None
    message: str | None = None
    start_time: Moment | None = None
    completion_time: Moment | None = None
    observed_generation: Count | None = None
    conditions: list[StatusConditionObject] | None = None


class GpuWorkloadObject(WrittenStruct, kw_only=True):
    """A request for one pod with GPUs, and its status."""

    metadata: ObjectMeta
    spec: WorkloadSpec
    status: WorkloadStatusObject | None = None
