"""Builds the objects of a simulated cluster as controllers, kubelets, monitors and the webhook write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from gpu_scheduler import names

if TYPE_CHECKING:
    from simulator.api_server.store import Object

NAMESPACE: Final = "default"
OWNER_UID: Final = "owner"
"""The uid of each controller: the name of a claim depends on it."""
DEVICES: Final = 8
DEVICE_MEMORY: Final = 16384
ROOM: Final = 64
"""CPUs of a node."""

_ORDER: Final = {"name": names.DEVICE_ORDER, "value": names.PCI_BUS_ID}
BY_FIELD: Final[list[Object]] = [
    {"name": names.VISIBLE_DEVICES, "valueFrom": {"fieldRef": {"fieldPath": names.DEVICES_FIELD}}},
    _ORDER,
]


def literal(devices: str) -> list[Object]:
    """Give the environment that the webhook writes for a known line."""
    return [{"name": names.VISIBLE_DEVICES, "value": devices}, _ORDER]


def pod(  # noqa: PLR0913 - the parts of a pod that a scheduler reads
    name: str,
    uid: str,
    annotations: dict[str, str],
    env: list[Object] | None,
    *,
    labels: dict[str, str] | None = None,
    owner: tuple[str, str] | None = None,
    generate_name: str | None = None,
    scheduler: str = names.SCHEDULER_NAME,
    node: str | None = None,
    cpu: int = 1,
    claims: tuple[str, ...] = (),
) -> Object:
    """Build a pending pod with one container."""
    container: Object = {"name": "main", "image": "registry.invalid/none", "resources": {"requests": {"cpu": str(cpu)}}}
    if env is not None:
        container["env"] = env
    meta: Object = {"name": name, "namespace": NAMESPACE, "uid": uid, "annotations": annotations}
    if labels:
        meta["labels"] = labels
    if owner is not None:
        version = "batch/v1" if owner[0] == "Job" else "apps/v1"
        reference = {"apiVersion": version, "kind": owner[0], "name": owner[1], "uid": OWNER_UID, "controller": True}
        meta["ownerReferences"] = [reference]
    if generate_name is not None:
        meta["generateName"] = generate_name
    spec: Object = {"schedulerName": scheduler, "containers": [container]}
    if claims:
        entries = [{"name": f"{names.CLAIM}{number}", "resourceClaimName": each} for number, each in enumerate(claims)]
        spec["resourceClaims"] = entries
        container["resources"]["claims"] = [{"name": each["name"]} for each in entries]
    if node is not None:
        spec["nodeName"] = node
    return {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}


def node(name: str, count: int, *, ready: bool = True, cordoned: bool = False) -> Object:
    """Build a node with the devices that its monitor lists."""
    devices = [
        {"index": index, "uuid": _uuid(name, index), "memoryTotalMiB": DEVICE_MEMORY, "health": "healthy"}
        for index in range(count)
    ]
    resources = {"cpu": str(ROOM), "memory": "256Gi", "pods": "110"}
    return {
        "metadata": {"name": name, "annotations": {names.DEVICES: msgspec.json.encode(devices).decode()}},
        "spec": {"unschedulable": cordoned},
        "status": {
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "allocatable": resources,
            "capacity": resources,
        },
    }


def resource_slice(node_name: str, count: int, generation: int) -> Object:
    """Build the slice in which a driver publishes the devices of a node."""
    memory = {"memory": {"value": f"{DEVICE_MEMORY}Mi"}}
    devices = [
        {"name": f"gpu-{index}", "attributes": {"uuid": {"string": _uuid(node_name, index)}}, "capacity": memory}
        for index in range(count)
    ]
    pool = {"name": node_name, "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": names.DRA_DRIVER, "nodeName": node_name, "pool": pool, "devices": devices}
    return {"metadata": {"name": node_name}, "spec": spec}


def claim_of_others(name: str) -> Object:
    """Build a claim that another scheduler allocates."""
    exactly = {"deviceClassName": names.DRA_DRIVER, "allocationMode": "ExactCount", "count": 1}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    return {"metadata": {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}"}, "spec": spec}


def _uuid(node_name: str, index: int) -> str:
    return f"GPU-{ord(node_name[-1]):04x}{index:04x}-0000-4000-8000-000000000000"


def lease_of_another(name: str, namespace: str, wall: str) -> Object:
    """Build a Lease that another client has taken."""
    spec = {"holderIdentity": "another", "leaseDurationSeconds": 15, "renewTime": wall, "leaseTransitions": 99}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
