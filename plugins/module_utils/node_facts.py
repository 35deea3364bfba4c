"""What of a node and of its pods matters to a placement map, as plain data. Pure functions of API objects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

Json = dict[str, Any]

ALIAS: Final = "gpu-node-name"
DEVICES: Final = "agentaflow.gpu/devices"
MAP: Final = "gpu-scheduling-map"
ASSIGNED: Final = "agentaflow.gpu/assigned-devices"
OBSERVER: Final = "agentaflow.gpu/observer"
KEEP_ENV: Final = "agentaflow.gpu/keep-env"
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
GPU: Final = "nvidia.com/gpu"
SCHEDULER: Final = "gpu-scheduler"
WORN: Final = frozenset({"degraded", "unhealthy"})


def node_facts(body: Json) -> Json:
    """Return a node's name, alias and state, and its devices. `devices` is None where nobody lists them."""
    metadata, spec, status = body["metadata"], body.get("spec", {}), body.get("status", {})
    labels = metadata.get("labels", {})
    return {
        "name": metadata["name"],
        "alias": labels.get(ALIAS) or None,
        "arch": status.get("nodeInfo", {}).get("architecture") or labels.get("kubernetes.io/arch", ""),
        "control_plane": "node-role.kubernetes.io/control-plane" in labels,
        "ready": any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", [])),
        "unschedulable": bool(spec.get("unschedulable")),
        "taints": [
            {"key": taint.get("key", ""), "value": taint.get("value", ""), "effect": taint.get("effect", "")}
            for taint in spec.get("taints", [])
        ],
        "devices": _devices(metadata.get("annotations", {}).get(DEVICES, "")),
        "advertised": _count(status.get("allocatable", {}).get(GPU)),
    }


def _devices(text: str) -> list[Json] | None:
    """Return the devices that a monitor lists; None where it lists none, or the list cannot be read."""
    try:
        return [
            {
                "index": int(device["index"]),
                "uuids": [
                    uuid
                    for uuid in (device.get("uuid"), *(each.get("uuid") for each in device.get("migDevices") or []))
                    if uuid
                ],
                "healthy": device.get("health") not in WORN,
            }
            for device in json.loads(text)
        ]
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _count(text: object) -> int | None:
    """Return how many devices a device plugin advertises; None where there is no plugin."""
    return int(str(text)) if str(text).isdigit() else None


def holders(pods: Iterable[Json]) -> dict[str, list[Json]]:
    """Return, by node, what each pod that holds devices says of them.

    `limit` is how many its limit asks a device plugin for. `values` name its devices as CUDA_VISIBLE_DEVICES does; of
    a pod whose devices nothing else names, `map` is the map.
    """
    found: dict[str, list[Json]] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node and pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}:
            holder = {"limit": _limit(pod["spec"]), **_named(pod)}
            if any(holder.values()):
                found.setdefault(node, []).append(holder)
    return found


def _named(pod: Json) -> Json:
    """Return what names a pod's devices, in the scheduler's order: its annotation, its environment, its map."""
    spec, annotations = pod["spec"], pod["metadata"].get("annotations") or {}
    nothing: Json = {"values": [], "map": ""}
    if spec.get("schedulerName") != SCHEDULER or annotations.get(OBSERVER) == "true":
        return nothing
    kinds = ("containers", "initContainers", "ephemeralContainers")
    entries = [
        entry
        for kind in kinds
        for container in spec.get(kind) or []
        for entry in container.get("env") or []
        if entry["name"] == VISIBLE
    ]
    literals = [entry.get("value") or "" for entry in entries if "valueFrom" not in entry]
    keeps = annotations.get(KEEP_ENV) == "true"
    if ASSIGNED in annotations:
        return {**nothing, "values": [annotations[ASSIGNED], *(literals if keeps else ())]}
    reads_map = len(literals) == len(entries) and (keeps or not literals)
    return {"values": literals, "map": annotations.get(MAP, "") if reads_map else ""}


def _limit(spec: Json) -> int:
    """Return how many devices a pod's limits take of a device plugin: at its start, or while it runs."""
    running, starting = 0, 0
    for container in spec.get("containers") or []:
        running += _asked(container)
    for container in spec.get("initContainers") or []:
        if container.get("restartPolicy") == "Always":
            running += _asked(container)
        else:
            starting = max(starting, _asked(container))
    return max(running, starting)


def _asked(container: Json) -> int:
    return _count((container.get("resources", {}).get("limits") or {}).get(GPU)) or 0
