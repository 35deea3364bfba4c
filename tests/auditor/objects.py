"""Structs with the fields of pods and nodes that the auditor reads."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import msgspec

from tests.oracle import reference

OURS: Final = "gpu-scheduler"
GIVEN: Final = "agentaflow.gpu/assigned-devices"
BY: Final = "agentaflow.gpu/assigned-by"
DEVICES: Final = "nvidia.com/gpu"
_UNITS: Final = {
    **{
        unit: Decimal(1000) ** power
        for unit, power in zip(("n", "u", "m", "k", "M", "G", "T"), (-3, -2, -1, 1, 2, 3, 4), strict=True)
    },
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}


class Metadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"
    deletion_timestamp: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Source(msgspec.Struct, rename="camel"):
    field_ref: dict[str, str] = {}


class Variable(msgspec.Struct, rename="camel"):
    name: str
    value: str = ""
    value_from: Source | None = None


class Resources(msgspec.Struct):
    requests: dict[str, str] = {}


class Container(msgspec.Struct, rename="camel"):
    name: str
    env: list[Variable] = []
    resources: Resources = msgspec.field(default_factory=Resources)
    ports: list[object] = []
    restart_policy: str = ""


class Spec(msgspec.Struct, rename="camel"):
    scheduler_name: str = ""
    node_name: str = ""
    containers: list[Container] = []
    init_containers: list[Container] = []
    overhead: dict[str, str] = {}
    scheduling_gates: list[object] = []
    tolerations: list[dict[str, object]] = []
    node_selector: dict[str, str] = {}
    affinity: object = None
    volumes: list[dict[str, object]] = []
    resource_claims: list[object] = []
    topology_spread_constraints: list[object] = []
    # Of a node:
    unschedulable: bool = False
    taints: list[dict[str, str]] = []


class Condition(msgspec.Struct):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class Status(msgspec.Struct):
    phase: str = ""
    conditions: list[Condition] = []
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}


class ApiObject(msgspec.Struct):
    """A pod or a node."""

    metadata: Metadata
    spec: Spec = msgspec.field(default_factory=Spec)
    status: Status = msgspec.field(default_factory=Status)

    @property
    def path(self) -> str:
        """`namespace/name`, or the name of a node."""
        return f"{self.metadata.namespace}/{self.metadata.name}".lstrip("/")

    @property
    def version(self) -> int:
        """The resource version as a number: a later version is greater."""
        return int(self.metadata.resource_version)

    @property
    def ours(self) -> bool:
        """Whether the pod belongs to our scheduler."""
        return self.spec.scheduler_name == OURS

    @property
    def placed(self) -> bool:
        """Whether a Binding of our scheduler placed the pod: it has the annotation assigned-by."""
        return self.ours and bool(self.spec.node_name) and BY in self.metadata.annotations

    @property
    def finished(self) -> bool:
        """Whether the pod has stopped for good."""
        return self.status.phase in {"Succeeded", "Failed"}

    @property
    def terminating(self) -> bool:
        """Whether the pod is being deleted."""
        return bool(self.metadata.deletion_timestamp)

    @property
    def ready(self) -> bool:
        """Whether the node has condition Ready with status True."""
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)

    def given(self, name: str) -> str | None:
        """Return the annotation agentaflow.gpu/`name`; None if it is missing."""
        return self.metadata.annotations.get(f"{reference.PREFIX}{name}")


class Slice(msgspec.Struct):
    uuid: str


class Device(msgspec.Struct, rename="camel"):
    index: int
    uuid: str = ""
    health: str = ""
    mig_devices: list[Slice] = []


@dataclass(frozen=True, slots=True)
class Seen:
    """One object as the API server sent it: as the auditor's struct and as the struct of tests/oracle."""

    api_object: ApiObject
    read: reference.ApiObject


_api_object = msgspec.json.Decoder(ApiObject)
_read = msgspec.json.Decoder(reference.ApiObject)
_devices = msgspec.json.Decoder(list[Device])


def seen(raw: bytes | msgspec.Raw) -> Seen:
    """Decode one object from JSON."""
    return Seen(_api_object.decode(raw), _read.decode(raw))


def amount(quantity: str) -> Decimal:
    """Return a Kubernetes quantity as a number."""
    for unit in (quantity[-2:], quantity[-1:]):
        if unit in _UNITS:
            return Decimal(quantity.removesuffix(unit)) * _UNITS[unit]
    return Decimal(quantity)


def requests(pod: ApiObject) -> dict[str, Decimal]:
    """Return the pod's resource requests by resource; `pods` is 1."""
    total: dict[str, Decimal] = {}
    peak: dict[str, Decimal] = {}
    for container in pod.spec.init_containers:
        if container.restart_policy == "Always":
            _add(total, container.resources.requests)
            _raise(peak, total)
        else:
            step = dict(total)
            _add(step, container.resources.requests)
            _raise(peak, step)
    for container in pod.spec.containers:
        _add(total, container.resources.requests)
    _raise(total, peak)
    _add(total, pod.spec.overhead)
    _add(total, {"pods": "1"})
    return total


def inventory(node: ApiObject) -> dict[str, tuple[int, str]] | None:
    """Return (device index, MIG slice) for each ID of the node's GPUs; None if the node has no valid list of them."""
    devices = _listed(node)
    if devices is None or len({device.index for device in devices}) < len(devices):
        return None
    ids = {str(device.index): (device.index, "") for device in devices}
    ids |= {device.uuid: (device.index, "") for device in devices if device.uuid}
    return ids | {one.uuid: (device.index, one.uuid) for device in devices for one in device.mig_devices}


def all_healthy(node: ApiObject) -> bool:
    """Return whether no device is unhealthy; True without a monitor, False if its list is invalid."""
    devices = _listed(node)
    return node.given("devices") is None or (
        devices is not None and {device.health for device in devices} <= {"", "healthy"}
    )


def _listed(node: ApiObject) -> list[Device] | None:
    """Return the devices that the node's monitor lists, else those that its device plugin counts."""
    text = node.given("devices")
    if text is None:
        count = int(node.status.capacity.get(DEVICES, "0"))
        return [Device(index) for index in range(count)] if count else None
    try:
        return _devices.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _add(total: dict[str, Decimal], more: dict[str, str]) -> None:
    for name, quantity in more.items():
        total[name] = total.get(name, Decimal(0)) + amount(quantity)


def _raise(total: dict[str, Decimal], least: dict[str, Decimal]) -> None:
    for name, quantity in least.items():
        total[name] = max(total.get(name, Decimal(0)), quantity)
