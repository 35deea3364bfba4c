"""The ResourceSlices of the driver's pool, as JSON of resource.k8s.io/v1. A pure module.

LAW: an equal input gives an equal spec, in the form in which the API server stores it, so that only changes are
written.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpu_scheduler import names
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.driver.devices import OwnDevice

Spec = dict[str, Any]

PLAIN: Final = 128
"""Most devices of a ResourceSlice; Kubernetes 1.36 refuses more."""
TAINTED: Final = 64
"""Most devices of a ResourceSlice in which a device has a taint, likewise."""
_LONGEST_TEXT: Final = 64
"""Most bytes of an attribute's text, likewise."""
_LONGEST_NODE: Final = 200
"""Most characters of a node's name that is part of a ResourceSlice's name, which has at most 253."""
_BINARY: Final = ("Mi", "Gi", "Ti", "Pi", "Ei")


@immutable
class ObservedSlice:
    """A ResourceSlice of the node, of any driver."""

    name: str
    uid: str
    version: int
    driver: str
    generation: int = 0
    """The generation of its pool."""
    spec: Spec | None = None
    """Without the times of taints, which the API server adds; None for the ResourceSlice of another driver."""


def specs_of(node: str, devices: Sequence[OwnDevice], generation: int) -> dict[str, Spec]:
    """Return the specs of the pool's ResourceSlices by name; none if there are no devices."""
    size = TAINTED if any(device.cordon for device in devices) else PLAIN
    parts = [devices[start : start + size] for start in range(0, len(devices), size)]
    pool = {"name": node, "generation": generation, "resourceSliceCount": len(parts)}
    return {
        slice_name(node, number): {
            "driver": names.DRA_DRIVER,
            "pool": pool,
            "nodeName": node,
            "devices": [_device(device) for device in part],
        }
        for number, part in enumerate(parts)
    }


def slice_name(node: str, number: int) -> str:
    """Return the name of a ResourceSlice of the node. No two nodes have one in common."""
    short = node if len(node) <= _LONGEST_NODE else hashlib.sha256(node.encode()).hexdigest()
    return f"{short}-{names.DRA_DRIVER}-{number}"


def slice_object(name: str, node: str, uid: str, spec: Spec) -> dict[str, Any]:
    """Return a ResourceSlice that is deleted with its node, which has this name and uid."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": True}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name, "ownerReferences": [owner]},
        "spec": spec,
    }


def without_times(spec: Spec) -> Spec:
    """Return a spec as it was read, without the times that the API server adds to taints."""
    devices = [
        {**device, "taints": [_without_time(taint) for taint in device["taints"]]} if device.get("taints") else device
        for device in spec.get("devices") or ()
    ]
    return {**spec, "devices": devices}


def _without_time(taint: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in taint.items() if key != "timeAdded"}


def _device(device: OwnDevice) -> dict[str, Any]:
    attributes: dict[str, Any] = {"uuid": {"string": device.uuid}, "index": {"int": device.index}}
    if device.model:
        cut = device.model.encode()[:_LONGEST_TEXT].decode(errors="ignore")
        attributes["productName"] = {"string": cut}
    if device.bus:
        attributes[names.PCI_BUS_ATTRIBUTE] = {"string": device.bus}
    described: dict[str, Any] = {"name": device.name, "attributes": attributes}
    if device.memory:
        described["capacity"] = {"memory": {"value": _quantity(device.memory)}}
    if device.cordon:
        described["taints"] = [{"key": names.CORDONED_TAINT, "value": device.cordon, "effect": "NoSchedule"}]
    return described


def _quantity(mib: int) -> str:
    """Return a quantity in its canonical form, with the largest unit that gives a whole number."""
    power = 0
    while mib % 1024 == 0 and power < len(_BINARY) - 1:
        mib, power = mib // 1024, power + 1
    return f"{mib}{_BINARY[power]}"
