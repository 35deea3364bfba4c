"""Structs that the kinds of agentaflow.io/v1 share, and GPUNode, field for field.

The role `crds` gives the same definitions to the API server, as schemas. A contract test compares the two: every field,
limit and default must be in both.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from gpu_scheduler.core.nodes.inventory import Health
from gpu_scheduler.kube.objects.meta import ObjectMeta

GROUP = "agentaflow.io"
VERSION = "v1"
API = f"/apis/{GROUP}/{VERSION}"

Count = Annotated[int, Meta(ge=0)]
Memory = Annotated[int, Meta(ge=0, le=2**40)]
Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Truth = Annotated[str, Meta(extra_json_schema={"enum": ["True", "False", "Unknown"]})]


_RFC_3339 = r"^[-0-9]{10}T[:0-9]{8}(\.[0-9]+)?(Z|[-+][:0-9]{5})$"
"""Narrower than the format `date-time`, which accepts control characters and what Python cannot read."""
CordonMoment = Annotated[str, Meta(pattern=_RFC_3339, extra_json_schema={"format": "date-time"})]


class WrittenStruct(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """Base of structs that are read and written."""


class StatusConditionObject(WrittenStruct, kw_only=True):
    """A condition, as in Kubernetes' own objects."""

    type: str
    status: Truth
    reason: str
    message: str
    last_transition_time: Moment
    observed_generation: Count | None = None


class MigDeviceObject(WrittenStruct, kw_only=True):
    """A MIG device of a GPU."""

    uuid: str
    memory_mib: Count | None = msgspec.field(name="memoryMiB", default=None)


class GpuDevice(WrittenStruct, kw_only=True):
    """A device as its monitor lists it. Only its index is required: everything else may be unknown."""

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
    mig_devices: list[MigDeviceObject] | None = None
    released: bool | None = None


class AllocationObject(WrittenStruct, kw_only=True):
    """What one pod holds on the node: a device as the pod names it, or a number of devices that the plugin chose."""

    pod: str
    device: str | None = None
    unnamed: Annotated[int, Meta(ge=1)] | None = None
    memory_mib: Count | None = msgspec.field(name="memoryMiB", default=None)


class CordonObject(WrittenStruct, kw_only=True):
    """A device that an operator has taken out of service; see core.nodes.cordons.Cordon."""

    device: Annotated[str, Meta(min_length=1, max_length=63)]
    index: Count | None = None
    reason: Annotated[str, Meta(min_length=1, max_length=256)]
    by: Annotated[str, Meta(min_length=1, max_length=253)]
    since: CordonMoment
    until: CordonMoment | None = None


class GpuNodeSpec(WrittenStruct, kw_only=True):
    """The node that the GPUNode describes, and its devices that are out of service."""

    node_name: Annotated[str, Meta(min_length=1, max_length=253)]
    cordoned: Annotated[list[CordonObject], Meta(max_length=64)] | None = None


class GpuNodeStatus(WrittenStruct, kw_only=True):
    """Status of a GPUNode: the node's monitor writes the devices and their number, the controller the rest."""

    gpus: Count | None = None
    devices: list[GpuDevice] | None = None
    allocated: Count | None = None
    allocations: list[AllocationObject] | None = None
    conditions: list[StatusConditionObject] | None = None


class GpuNodeObject(WrittenStruct, kw_only=True):
    """The GPUs of one node, and the pods that hold them."""

    metadata: ObjectMeta
    spec: GpuNodeSpec
    status: GpuNodeStatus | None = None
