"""Objects as they are sent to an API server: pods as controllers and webhook leave them, nodes, storage, Leases."""

from __future__ import annotations

import json
import uuid
from typing import Any, Final

Object = dict[str, Any]

MAP: Final = "gpu-scheduling-map"
ASSIGNED: Final = "agentaflow.gpu/assigned-devices"
FIELD: Final = f"metadata.annotations['{ASSIGNED}']"
ROOM: Final = {"cpu": "64", "memory": "256Gi", "pods": "250", "ephemeral-storage": "1Ti"}
IMAGE: Final = "registry.invalid/none"
_ORDER: Final = {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"}


def literal(devices: str) -> list[Object]:
    """What the webhook writes where it knows the index."""
    return [{"name": "CUDA_VISIBLE_DEVICES", "value": devices}, _ORDER]


def reading() -> list[Object]:
    """What the webhook writes where the scheduler decides later."""
    return [
        {"name": "CUDA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": FIELD}}},
        _ORDER,
    ]


def pod(  # noqa: PLR0913 - each has its test
    name: str,
    text: str | None = None,
    env: list[Object] | None = None,
    /,
    *,
    annotations: Any = None,
    labels: Any = None,
    owner: Any = None,
    generate_name: Any = None,
    scheduler: Any = "gpu-scheduler",
    requests: Any = None,
    limits: Any = None,
    port: Any = None,
    claims: Any = (),
    **spec: Any,
) -> Object:
    """One container and what the test is about; `env` None is a pod that no webhook saw.

    `owner` is kind and name. Options are of any type, so that a test can pass on those of its rows.
    """
    container: Object = {"name": "main", "image": IMAGE}
    if env is not None:
        container["env"] = env
    if requests or limits:
        container["resources"] = {"requests": requests or {}, "limits": limits or {}}
    if port is not None:
        container["ports"] = [{"containerPort": port, "hostPort": port}]
    metadata: Object = {"name": name, "labels": labels or {}}
    metadata["annotations"] = {**({} if text is None else {MAP: text}), **(annotations or {})}
    if generate_name is not None:
        metadata["generateName"] = generate_name
    if owner is not None:
        metadata["ownerReferences"] = [_reference(*owner)]
    body: Object = {"schedulerName": scheduler, "containers": [container], **spec}
    if claims:
        body["volumes"] = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return {"metadata": metadata, "spec": body}


def replica(deployment: str, template: str, suffix: str, text: str, **more: Any) -> Object:
    """A Deployment's pod: its ReplicaSet's hash in owner, label and generated name."""
    owner = f"{deployment}-{template}"
    return pod(
        f"{owner}-{suffix}",
        text,
        reading(),
        owner=("ReplicaSet", owner),
        labels={"pod-template-hash": template},
        generate_name=f"{owner}-",
        **more,
    )


def child(kind: str, name: str, text: str, **more: Any) -> Object:
    """Make the pod of a controller `train` that brings no index along."""
    return pod(name, text, reading(), owner=(kind, "train"), generate_name="train-", **more)


def node(  # noqa: PLR0913 - each has its test
    name: str,
    *,
    ready: bool = True,
    unschedulable: bool = False,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    taints: tuple[Object, ...] = (),
    room: dict[str, str] | None = None,
) -> Object:
    """A node with room; `room` changes or adds resources."""
    resources = {**ROOM, **(room or {})}
    return {
        "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
        "spec": {"unschedulable": unschedulable, "taints": list(taints)},
        "status": {"conditions": [ready_condition(ready=ready)], "capacity": resources, "allocatable": resources},
    }


def ready_condition(*, ready: bool) -> Object:
    """What a kubelet says of its node."""
    return {"type": "Ready", "status": "True" if ready else "False"}


def card(index: int, *slices: str) -> Object:
    """A card as the monitor writes it."""
    return {"index": index, "uuid": gpu(index), "health": "healthy", "migDevices": [{"uuid": one} for one in slices]}


def inventory(*cards: Object) -> dict[str, str]:
    """The node annotation that lists `cards`."""
    return {"agentaflow.gpu/devices": json.dumps(cards)}


def gpu(number: int) -> str:
    """A GPU's UUID."""
    return f"GPU-{number:08x}-0000-4000-8000-000000000000"


def mig(number: int) -> str:
    """A MIG slice's UUID."""
    return f"MIG-{number:08x}-0000-4000-8000-000000000000"


def claim(name: str, storage_class: str, volume: str | None = None) -> Object:
    """A PersistentVolumeClaim."""
    spec: Object = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": storage_class,
    }
    return {"metadata": {"name": name}, "spec": spec if volume is None else {**spec, "volumeName": volume}}


def volume(name: str, storage_class: str, *nodes: str) -> Object:
    """A PersistentVolume that these nodes reach; without any, all do."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}]}
    reach = {"required": {"nodeSelectorTerms": [term]}} if nodes else None
    return {
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "storageClassName": storage_class,
            "csi": {"driver": "example.com", "volumeHandle": name},
            "nodeAffinity": reach,
        },
    }


def annotated(annotations: Object) -> Object:
    """A patch of annotations."""
    return {"metadata": {"annotations": annotations}}


def binding(name: str, annotations: Object | None = None) -> Object:
    """A Binding to node1."""
    metadata: Object = {"name": name} if annotations is None else {"name": name, "annotations": annotations}
    return {"metadata": metadata, "target": {"kind": "Node", "name": "node1"}}


def null_pod(name: str) -> Object:
    """What a client in a hurry sends: null where maps and lists belong."""
    container = {"name": "main", "image": IMAGE, "env": None, "ports": None}
    return {
        "metadata": {"name": name, "annotations": None, "labels": None, "ownerReferences": None},
        "spec": {"containers": [container], "initContainers": None, "tolerations": None},
    }


def pod_template(annotations: dict[str, str] | None = None, **container: Any) -> Object:
    """A template of one container."""
    spec = {"containers": [{"name": "main", "image": IMAGE, **container}]}
    return {"metadata": {"annotations": annotations or {}}, "spec": spec}


def gpu_workload(name: str, template: Object | None = None, **spec: Any) -> Object:
    """A GPUWorkload; of one container where no template is given."""
    return {
        "apiVersion": "agentaflow.io/v1",
        "kind": "GPUWorkload",
        "metadata": {"name": name},
        "spec": {"podTemplate": template or pod_template(), **spec},
    }


def review(body: object, **more: Any) -> Object:
    """An AdmissionReview as the API server sends it."""
    request = {
        "uid": "review-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "namespace": "default",
        "object": body,
        "oldObject": None,
        "options": {"kind": "CreateOptions"},
        **more,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def _reference(kind: str, name: str) -> Object:
    versions = {"Job": "batch/v1", "Pod": "v1"}
    uid = str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{kind}/{name}"))
    return {"apiVersion": versions.get(kind, "apps/v1"), "kind": kind, "name": name, "uid": uid, "controller": True}
