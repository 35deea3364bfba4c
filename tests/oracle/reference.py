"""Derives the holders of devices from a fresh list of pods and nodes, independently of the ledger.

LAW: imports nothing of the scheduler. An error in shared code would be the same in both, and no test would find it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX = "agentaflow.gpu/"
MAP = "gpu-scheduling-map"
SUFFIX = frozenset("bcdfghjklmnpqrstvwxz2456789")


class Owner(msgspec.Struct):
    kind: str
    name: str
    controller: bool = False


class Metadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    generate_name: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[Owner] = []


class Variable(msgspec.Struct, rename="camel"):
    name: str
    value: str = ""
    value_from: object = None


class Resources(msgspec.Struct):
    limits: dict[str, str] = {}


class Container(msgspec.Struct):
    name: str
    env: list[Variable] = []
    resources: Resources = msgspec.field(default_factory=Resources)


class Spec(msgspec.Struct, rename="camel"):
    scheduler_name: str = ""
    node_name: str = ""
    containers: list[Container] = []


class Status(msgspec.Struct):
    phase: str = ""
    capacity: dict[str, str] = {}


class ApiObject(msgspec.Struct):
    """A pod or a node, with the fields that this module needs."""

    metadata: Metadata
    spec: Spec = msgspec.field(default_factory=Spec)
    status: Status = msgspec.field(default_factory=Status)


class ObjectList(msgspec.Struct):
    items: list[ApiObject]


_objects = msgspec.json.Decoder(ObjectList)


@dataclass(frozen=True, slots=True)
class Hold:
    """What one pod holds. `unnamed` counts devices of a device plugin; `workload` is None without a map."""

    pod: str
    node: str
    devices: tuple[str, ...]
    unnamed: int
    index: int | None
    workload: str | None


def objects_of(body: bytes) -> list[ApiObject]:
    """Decode the API server's answer to a list."""
    return _objects.decode(body).items


def holds(pods: Iterable[ApiObject], plugins: frozenset[str]) -> dict[str, Hold]:
    """Return by uid what each bound, unfinished pod of ours holds. `plugins` are the nodes with a device plugin."""
    return {pod.metadata.uid: _hold(pod, plugins) for pod in pods if _lives(pod)}


def plugins(nodes: Iterable[ApiObject]) -> frozenset[str]:
    """Return the names of the nodes on which a device plugin advertises devices."""
    return frozenset(node.metadata.name for node in nodes if node.status.capacity.get("nvidia.com/gpu", "0") != "0")


def line_of(pod: ApiObject) -> tuple[str, tuple[str, ...]] | None:
    """Return node and devices of the pod's line: the assigned line, or else the requested one. None without a line."""
    line = _line(pod.metadata.annotations.get(MAP, ""), _index(pod))
    return None if line is None else (line[0].strip(), tuple(device.strip() for device in line[1]))


def workload(pod: ApiObject) -> tuple[str, str, frozenset[str]]:
    """Return the workload of the pod: pods with an equal value share the lines of one map."""
    return pod.metadata.namespace, _owner(pod), frozenset(pod.metadata.annotations.get(MAP, "").splitlines())


def _lives(pod: ApiObject) -> bool:
    ours = pod.spec.scheduler_name == "gpu-scheduler" and pod.spec.node_name
    return bool(ours) and pod.status.phase not in {"Succeeded", "Failed"}


def _hold(pod: ApiObject, plugins: frozenset[str]) -> Hold:
    given = pod.metadata.annotations
    index, node = _index(pod), pod.spec.node_name
    observes = given.get(f"{PREFIX}observer") == "true"
    return Hold(
        f"{pod.metadata.namespace}/{pod.metadata.name}",
        node,
        () if observes else _devices(pod, index),
        _limit(pod) if node in plugins else 0,
        index,
        _owner(pod) if MAP in given else None,
    )


def _devices(pod: ApiObject, index: int | None) -> tuple[str, ...]:
    given = pod.metadata.annotations
    values = [entry for entry in pod.spec.containers[0].env if entry.name == "CUDA_VISIBLE_DEVICES"]
    literal = next((_ids(entry.value) for entry in values if entry.value_from is None), None)
    line = _line(given.get(MAP, ""), index)
    agrees = line is not None and line[0] == pod.spec.node_name
    assigned = given.get(f"{PREFIX}assigned-devices")
    if assigned is not None:
        held = _ids(assigned)
    elif literal is not None and given.get(f"{PREFIX}keep-env") != "true":
        held = literal
    elif line is not None and agrees and not any(entry.value_from for entry in values):
        held = line[1]
    else:
        held = ()
    if given.get(f"{PREFIX}keep-env") == "true":
        held += tuple(one for one in literal or () if one not in held)
    return held


def _line(text: str, index: int | None) -> tuple[str, tuple[str, ...]] | None:
    for line in text.splitlines():
        number, _, rest = line.partition("=")
        if index is not None and number == str(index):
            node, _, devices = rest.partition(":")
            return node, _ids(devices)
    return None


def _ids(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _index(pod: ApiObject) -> int | None:
    """Return the assigned or static index; None without a map, since an index is the index of a line."""
    given = pod.metadata.annotations
    if MAP not in given:
        return None
    return int(given[f"{PREFIX}assigned-index"]) if f"{PREFIX}assigned-index" in given else _static_index(pod)


def _static_index(pod: ApiObject) -> int | None:
    given, labels = pod.metadata.annotations, pod.metadata.labels
    if f"{PREFIX}index" in given:
        return int(given[f"{PREFIX}index"])
    if "training.kubeflow.org/replica-type" in labels:
        return None
    completion = "batch.kubernetes.io/job-completion-index"
    for written in (labels.get("apps.kubernetes.io/pod-index"), labels.get(completion), given.get(completion)):
        if written is not None:
            return int(written)
    _, dash, tail = pod.metadata.name.rpartition("-")
    return int(tail) if dash and tail.isdigit() and not _generated(pod) else None


def _generated(pod: ApiObject) -> bool:
    prefix, name = pod.metadata.generate_name, pod.metadata.name
    suffix = name.removeprefix(prefix)
    of_set = any(owner.kind == "StatefulSet" for owner in pod.metadata.owner_references)
    return bool(prefix) and not of_set and suffix != name and len(suffix) == 5 and set(suffix) <= SUFFIX


def _owner(pod: ApiObject) -> str:
    for owner in pod.metadata.owner_references:
        if owner.controller:
            made_for = pod.metadata.labels.get("pod-template-hash", "")
            if owner.kind == "ReplicaSet" and made_for and owner.name.endswith(f"-{made_for}"):
                return f"Deployment/{owner.name.removesuffix(f'-{made_for}')}"
            return f"{owner.kind}/{owner.name}"
    return ""


def _limit(pod: ApiObject) -> int:
    return int(pod.spec.containers[0].resources.limits.get("nvidia.com/gpu", "0"))
