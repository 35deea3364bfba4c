"""GPUWorkload and GPUNode of agentaflow.io/v1, field for field.

Role crds says the same to the API server, as schemas; a contract test holds the two against each other, so a field, a
limit or a default that stands here stands there.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from gpu_scheduler.adapters.objects import ObjectMeta
from gpu_scheduler.core.counting import Strategy
from gpu_scheduler.core.inventory import Health
from gpu_scheduler.core.workload import Phase

GROUP = "agentaflow.io"
VERSION = "v1"
API = f"/apis/{GROUP}/{VERSION}"

Count = Annotated[int, Meta(ge=0)]
Memory = Annotated[int, Meta(ge=0, le=2**40)]
Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Truth = Annotated[str, Meta(extra_json_schema={"enum": ["True", "False", "Unknown"]})]
GoDuration = Annotated[str, Meta(pattern=r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$", max_length=64)]


class _Ours(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """Base of what is read and written."""


class GpuRequirements(_Ours, kw_only=True):
    """Which cards, and how many of them, on one node."""

    gpu_count: Annotated[int, Meta(ge=1, le=1024)] = 1
    min_gpu_memory: Memory = msgspec.field(name="minGPUMemory", default=0)
    exclusive_access: bool = True
    gpu_type: Annotated[str, Meta(min_length=1, max_length=63, pattern="^[ -~]*$")] | None = None


class RetryPolicy(_Ours, kw_only=True):
    """What happens when the pod fails."""

    limit: Annotated[int, Meta(ge=0, le=10)] = 0


class TemplateMeta(_Ours, kw_only=True):
    """What the pod's metadata gets beside our own."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class PodTemplate(_Ours, kw_only=True):
    """The pod as it is to be made; what stands in its `spec` is a PodSpec of Kubernetes."""

    metadata: TemplateMeta | None = None
    spec: dict[str, Any]


class WorkloadSpec(_Ours, kw_only=True):
    """What is asked for; all that reaches the pod is fixed once it is written."""

    priority: Annotated[int, Meta(ge=-1_000_000_000, le=1_000_000_000)] = 0
    gpu_memory_required: Memory = 0
    scheduling_strategy: Strategy | None = None
    gpu_requirements: GpuRequirements = msgspec.field(default_factory=GpuRequirements)
    estimated_duration: GoDuration | None = None
    retry_policy: RetryPolicy = msgspec.field(default_factory=RetryPolicy)
    pod_template: PodTemplate


class Condition(_Ours, kw_only=True):
    """As Kubernetes' own objects have them."""

    type: str
    status: Truth
    reason: str
    message: str
    last_transition_time: Moment
    observed_generation: Count | None = None


class WorkloadStatus(_Ours, kw_only=True):
    """What the controller tells of a workload."""

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
    conditions: list[Condition] | None = None


class GpuWorkload(_Ours, kw_only=True):
    """One pod that wants GPUs, and what became of it."""

    metadata: ObjectMeta
    spec: WorkloadSpec
    status: WorkloadStatus | None = None


class MigDevice(_Ours, kw_only=True):
    """A slice of a card."""

    uuid: str
    memory_mib: Count | None = msgspec.field(name="memoryMiB", default=None)


class GpuDevice(_Ours, kw_only=True):
    """A card as its monitor lists it; all but its index is optional, because all of it may be unknown."""

    index: Count
    uuid: str | None = None
    pci_bus_id: str | None = None
    model: str | None = None
    memory_total_mib: Count | None = msgspec.field(name="memoryTotalMiB", default=None)
    memory_used_mib: Count | None = msgspec.field(name="memoryUsedMiB", default=None)
    utilization: Annotated[int, Meta(ge=0, le=100)] | None = None
    temperature: int | None = None
    power: int | None = None
    health: Health | None = None
    mig_devices: list[MigDevice] | None = None


class Allocation(_Ours, kw_only=True):
    """What one pod has of the node: a device as the pod names it, or so many that its device plugin chose."""

    pod: str
    device: str | None = None
    unnamed: Annotated[int, Meta(ge=1)] | None = None
    memory_mib: Count | None = msgspec.field(name="memoryMiB", default=None)


class GpuNodeSpec(_Ours, kw_only=True):
    """Which node it is about."""

    node_name: Annotated[str, Meta(min_length=1, max_length=253)]


class GpuNodeStatus(_Ours, kw_only=True):
    """The cards as the node's monitor tells of them, and the rest as the controller does."""

    gpus: Count | None = None
    devices: list[GpuDevice] | None = None
    allocated: Count | None = None
    allocations: list[Allocation] | None = None
    conditions: list[Condition] | None = None


class GpuNode(_Ours, kw_only=True):
    """The GPUs of one node, and who has them."""

    metadata: ObjectMeta
    spec: GpuNodeSpec
    status: GpuNodeStatus | None = None
