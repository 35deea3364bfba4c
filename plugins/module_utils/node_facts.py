"""What of a node and of its pods matters to a placement map, as plain data. Pure functions of API objects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

Json = dict[str, Any]

ALIAS: Final = "gpu-node-name"
DEVICES: Final = "agentaflow.gpu/devices"
ASSIGNED: Final = "agentaflow.gpu/assigned-devices"
OBSERVER: Final = "agentaflow.gpu/observer"
GPU: Final = "nvidia.com/gpu"
SCHEDULER: Final = "gpu-scheduler"


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
                "healthy": device.get("health") != "unhealthy",
            }
            for device in json.loads(text)
        ]
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _count(text: object) -> int | None:
    """Return how many devices a device plugin advertises; None where there is no plugin."""
    return int(str(text)) if str(text).isdigit() else None


def held_devices(pods: Iterable[Json]) -> dict[str, Json]:
    """Return, by node, the devices that pods hold: their names, and how many a device plugin has handed out."""
    found: dict[str, Json] = {}
    for pod in pods:
        spec, annotations = pod["spec"], pod["metadata"].get("annotations", {})
        if not spec.get("nodeName") or pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
            continue
        on_node = found.setdefault(spec["nodeName"], {"names": [], "unnamed": 0})
        limits = (
            _count(container.get("resources", {}).get("limits", {}).get(GPU)) or 0
            for container in spec.get("containers", [])
        )
        unnamed = sum(limits)
        on_node["unnamed"] += unnamed
        if not unnamed and spec.get("schedulerName") == SCHEDULER and annotations.get(OBSERVER) != "true":
            on_node["names"] += [each for each in annotations.get(ASSIGNED, "").split(",") if each]
    return found
