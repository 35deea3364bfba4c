"""Builds API objects: pods as controllers and the webhook leave them, nodes, storage and Leases."""

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


def first_lines(lines: str, most: int) -> str:
    """Return the first of these lines, at most so many characters."""
    return lines[: lines.rfind("\n", 0, most) + 1]


def literal(devices: str) -> list[Object]:
    """Return the variables that the webhook writes when it knows the index."""
    return [{"name": "CUDA_VISIBLE_DEVICES", "value": devices}, _ORDER]


def reading() -> list[Object]:
    """Return the variables that the webhook writes when the scheduler chooses the devices later."""
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
    """Return a pod with one container and these fields. Without `env`, it is a pod that no webhook has reviewed.

    `owner` is (kind, name). Options have any type, so that a test can pass on the options of its rows.
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
    """Return a pod of a Deployment, with its ReplicaSet's hash in owner, label and generated name."""
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


def in_stateful_set(owner: str, ordinal: int | str) -> Object:
    """Return the options of `pod` that make it one of this StatefulSet, as its controller of Kubernetes 1.36 does.

    The name is given, and there is a generateName all the same.
    """
    labels = {
        "apps.kubernetes.io/pod-index": str(ordinal),
        "controller-revision-hash": f"{owner}-8c4f485b4",
        "statefulset.kubernetes.io/pod-name": f"{owner}-{ordinal}",
    }
    return {"owner": ("StatefulSet", owner), "generate_name": f"{owner}-", "labels": labels}


def in_indexed_job(owner: str, index: int) -> Object:
    """Return the options of `pod` that make it the one of an Indexed Job with this index."""
    mark = {"batch.kubernetes.io/job-completion-index": str(index)}
    labels = {**mark, "batch.kubernetes.io/job-name": owner, "job-name": owner}
    return {"owner": ("Job", owner), "generate_name": f"{owner}-{index}-", "labels": labels, "annotations": mark}


def child(kind: str, name: str, text: str, **more: Any) -> Object:
    """Return a pod of a controller `train` that gives its pods no index."""
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
    """Return a node with the resources ROOM; `room` changes or adds some."""
    resources = {**ROOM, **(room or {})}
    return {
        "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
        "spec": {"unschedulable": unschedulable, "taints": list(taints)},
        "status": {"conditions": [ready_condition(ready=ready)], "capacity": resources, "allocatable": resources},
    }


def ready_condition(*, ready: bool) -> Object:
    """Return the node condition Ready, as a kubelet writes it."""
    return {"type": "Ready", "status": "True" if ready else "False"}


def device(index: int, *mig_devices: str) -> Object:
    """Return a healthy device with these MIG slices, as the monitor writes it."""
    return {
        "index": index,
        "uuid": gpu(index),
        "health": "healthy",
        "migDevices": [{"uuid": one} for one in mig_devices],
    }


def inventory(*devices: Object) -> dict[str, str]:
    """Return the node annotation that lists `devices`."""
    return {"agentaflow.gpu/devices": json.dumps(devices)}


def gpu(number: int) -> str:
    """Return the UUID of a GPU."""
    return f"GPU-{number:08x}-0000-4000-8000-000000000000"


def mig(number: int) -> str:
    """Return the UUID of a MIG slice."""
    return f"MIG-{number:08x}-0000-4000-8000-000000000000"


def claim(name: str, storage_class: str, volume: str | None = None) -> Object:
    """Return a PersistentVolumeClaim, bound to `volume` if given."""
    spec: Object = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": storage_class,
    }
    return {"metadata": {"name": name}, "spec": spec if volume is None else {**spec, "volumeName": volume}}


def volume(name: str, storage_class: str, *nodes: str) -> Object:
    """Return a PersistentVolume that only these nodes can use; without nodes, all can."""
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
    """Return a patch of annotations."""
    return {"metadata": {"annotations": annotations}}


def binding(name: str, annotations: Object | None = None) -> Object:
    """Return a Binding of the pod to node1."""
    metadata: Object = {"name": name} if annotations is None else {"name": name, "annotations": annotations}
    return {"metadata": metadata, "target": {"kind": "Node", "name": "node1"}}


def null_pod(name: str) -> Object:
    """Return a pod with null in place of maps and lists, as some clients send it."""
    container = {"name": "main", "image": IMAGE, "env": None, "ports": None}
    return {
        "metadata": {"name": name, "annotations": None, "labels": None, "ownerReferences": None},
        "spec": {"containers": [container], "initContainers": None, "tolerations": None},
    }


def pod_template(annotations: dict[str, str] | None = None, **container: Any) -> Object:
    """Return a pod template with one container."""
    spec = {"containers": [{"name": "main", "image": IMAGE, **container}]}
    return {"metadata": {"annotations": annotations or {}}, "spec": spec}


def gpu_workload(name: str, template: Object | None = None, **spec: Any) -> Object:
    """Return a GPUWorkload; without `template`, its pod has one container."""
    return {
        "apiVersion": "agentaflow.io/v1",
        "kind": "GPUWorkload",
        "metadata": {"name": name},
        "spec": {"podTemplate": template or pod_template(), **spec},
    }


def review(body: object, **more: Any) -> Object:
    """Return an AdmissionReview as the API server sends it."""
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
