"""Compares the state of a cluster with the map; pure functions, which read no cluster.

These lines parse the map themselves, without the scheduler's parser: a bug in that parser must not hide from the proof.
Arguments and results are plain dictionaries, because Ansible passes them on.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from ansible.errors import AnsibleFilterError  # type: ignore[import-untyped]  # Ansible ships no types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Json = dict[str, Any]

CHECK: Final = "gpu-scheduler-check"
# The users' guide has three bare pods.
TESTS: Final = ("webhook-test-0", "webhook-test-1", "webhook-test-2")
ALIAS_LABEL: Final = "gpu-node-name"
ROLE_LABEL: Final = "node-role.kubernetes.io/"
ORDER: Final = "PCI_BUS_ID"
# Role check labels the pods that it makes; one of the guide's names without the label is a user's.
OWN_LABEL: Final = "pod-revision"
MAP: Final = "gpu-scheduling-map"
DEVICES: Final = "agentaflow.gpu/devices"
INDEX: Final = "agentaflow.gpu/index"
NOT_PROVED: Final = "not proved"

_LINE: Final = re.compile(r"\s*(?P<index>\d+)\s*=\s*(?P<node>[^\s:]+)\s*:(?P<devices>.*)")
_UID_CELL: Final = re.compile(r"\| [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12} \|")


def read_map(text: str) -> dict[int, tuple[str, str]]:
    """Return index → node and devices, as in the inventory's map."""
    slots = {}
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if not found:
            raise AnsibleFilterError(f'cannot read "{line}" in the map to prove (example: 1=node2:0,1)')
        slots[int(found["index"])] = (found["node"], re.sub(r"\s", "", found["devices"]))
    return slots


def expectations(text: str, check_namespace: str, tests_namespace: str, isolation: str = "env") -> list[Json]:
    """Return the expected pods: a check pod for each line, and the guide's pods for the first three.

    With isolation `dra` no pod can stand beside another on its GPUs, so there are no guide's pods.
    """
    slots = sorted(read_map(text).items())
    named = [(check_namespace, f"{CHECK}-{index}", slot) for index, slot in slots]
    if isolation == "env":
        named += [(tests_namespace, TESTS[index], slot) for index, slot in slots if index < len(TESTS)]
    return [
        {"namespace": namespace, "name": name, "node": node, "devices": devices}
        for namespace, name, (node, devices) in named
    ]


def containers(cluster: Json, expected: Iterable[Json]) -> list[Json]:
    """Return the containers whose environment must be read: all containers of each expected pod that exists."""
    pods = _pods(cluster)
    return [
        {"namespace": wanted["namespace"], "pod": wanted["name"], "container": container["name"]}
        for wanted in expected
        if (pod := pods.get(_key(wanted)))
        for container in pod["spec"]["containers"]
    ]


def proof(cluster: Json, expected: Iterable[Json], answers: Iterable[Json], scheduler: str) -> list[Json]:
    """Return a row for each expected pod: its uid, expected, actual, and the verdict.

    The verdict is `ok`, what is wrong, or why a user's pod proves nothing. A user's pod is compared with its own map.
    `answers` are the results of reading /proc/1/environ in each container, as Ansible's loop returns them.
    """
    pods = _pods(cluster)
    asked: dict[tuple[str, str], list[Json]] = defaultdict(list)
    for answer in answers:
        asked[answer["item"]["namespace"], answer["item"]["pod"]].append(answer)
    return [
        {
            "namespace": wanted["namespace"],
            "name": wanted["name"],
            "expected": f"{wanted['node']}:{wanted['devices']}",
            **(
                _verdict_on_users(cluster, wanted, pod, asked[_key(wanted)], scheduler)
                if pod and _is_users(pod)
                else _verdict(cluster, wanted, pod, asked[_key(wanted)], scheduler)
            ),
        }
        for wanted in expected
        for pod in [pods.get(_key(wanted))]
    ]


def wrong(rows: Iterable[Json]) -> list[Json]:
    """Return the rows that refute the placement."""
    return [row for row in rows if row["verdict"] != "ok" and not row["verdict"].startswith(NOT_PROVED)]


def _is_users(pod: Json) -> bool:
    metadata = pod["metadata"]
    return metadata["name"] in TESTS and OWN_LABEL not in metadata.get("labels", {})


def _verdict_on_users(cluster: Json, wanted: Json, pod: Json, answers: list[Json], scheduler: str) -> Json:
    """Compare a user's pod with the line of its own map. Without one to compare with, it proves nothing."""
    slot = _own_line(pod)
    unproved = {
        "it has another scheduler": pod["spec"].get("schedulerName") != scheduler,
        "its map has no line for it": not slot,
        "it does not run": pod["status"].get("phase") != "Running",
        "its environment cannot be read": any(answer.get("rc") != 0 for answer in answers),
    }
    reason = next((reason for reason, holds in unproved.items() if holds), "")
    if reason or not slot:
        uid, verdict = pod["metadata"]["uid"], f"{NOT_PROVED}: {reason}"
        return {"uid": uid, "expected": "nothing", "actual": "a user's pod", "verdict": verdict}
    node, devices = slot
    own = {**wanted, "node": node, "devices": devices}
    row = _verdict(cluster, own, pod, answers, scheduler)
    return {"expected": f"{node}:{devices} (its own map: a user's pod)", **row}


def _own_line(pod: Json) -> tuple[str, str] | None:
    """Return node and devices of the pod's own line, if its map has one that can be read."""
    annotations = pod["metadata"].get("annotations", {})
    index = annotations.get(INDEX, pod["metadata"]["name"].rpartition("-")[2])
    try:
        return read_map(annotations.get(MAP, "")).get(int(index))
    except (AnsibleFilterError, ValueError):
        return None


def _verdict(cluster: Json, wanted: Json, pod: Json | None, answers: list[Json], scheduler: str) -> Json:
    if pod is None:
        return {"uid": "none", "actual": "no such pod", "verdict": "missing"}
    node = _real_node(cluster, wanted["node"])
    actual_node = pod["spec"].get("nodeName", "")
    placed_by = pod["spec"].get("schedulerName")
    # A container with ResourceClaims finds its devices by UUID; the line may name them by index.
    names = (
        _indices(cluster, actual_node) if pod["spec"].get("resourceClaims") and "GPU-" not in wanted["devices"] else {}
    )
    seen = [(_in_words(devices, names), order) for devices, order in map(_seen, answers)]
    devices = list(dict.fromkeys(device for device, _ in seen))
    # An alias is shown as it is in the map, if it belongs to the right node.
    shown = wanted["node"] if actual_node == node else actual_node or "no node"
    faults = {
        "wrong node": actual_node != node,
        "wrong devices": devices != [wanted["devices"]],
        f"CUDA_DEVICE_ORDER is not {ORDER}": any(order != ORDER for _, order in seen),
        f"placed by {placed_by}": placed_by != scheduler,
    }
    return {
        "uid": pod["metadata"]["uid"],
        "actual": f"{shown}:{' '.join(devices)}",
        "verdict": ", ".join(fault for fault, found in faults.items() if found) or "ok",
    }


def _seen(answer: Json) -> tuple[str, str]:
    """Return the devices and their order in the environment of a container's first process."""
    if answer.get("rc") != 0:
        return "(not readable)", ORDER
    variables = dict(entry.split("=", 1) for entry in answer["stdout"].split("\0") if "=" in entry)
    return variables.get("CUDA_VISIBLE_DEVICES", "(not set)"), variables.get("CUDA_DEVICE_ORDER", "(not set)")


def _indices(cluster: Json, name: str) -> dict[str, str]:
    """Return UUID → index of the node's devices, as its monitor lists them."""
    for item in cluster["items"]:
        if item["kind"] == "Node" and item["metadata"]["name"] == name:
            devices = json.loads(item["metadata"].get("annotations", {}).get(DEVICES, "[]"))
            return {device["uuid"]: str(device["index"]) for device in devices if "uuid" in device}
    return {}


def _in_words(devices: str, names: dict[str, str]) -> str:
    """Return a list of devices with other names for those that have one."""
    return ",".join(names.get(device, device) for device in devices.split(","))


def _key(pod: Json) -> tuple[str, str]:
    return pod["namespace"], pod["name"]


def _pods(cluster: Json) -> dict[tuple[str, str], Json]:
    return {_key(item["metadata"]): item for item in cluster["items"] if item["kind"] == "Pod"}


def _real_node(cluster: Json, name: str) -> str:
    """Return the node of that name, else the one whose alias it is, else the name itself."""
    found = [item["metadata"] for item in cluster["items"] if item["kind"] == "Node"]
    aliased = [node["name"] for node in found if node.get("labels", {}).get(ALIAS_LABEL) == name]
    return name if any(node["name"] == name for node in found) else "".join(aliased[:1]) or name


def system_pods(cluster: Json, namespace: str) -> list[Json]:
    """Return a row for each pod of the namespace: name, ready containers, uid."""
    return [
        {
            "name": name,
            "ready": f"{sum(status['ready'] for status in statuses)}/{len(pod['spec']['containers'])}",
            "uid": pod["metadata"]["uid"],
        }
        for (place, name), pod in sorted(_pods(cluster).items())
        for statuses in [pod["status"].get("containerStatuses", [])]
        if place == namespace
    ]


def images(cluster: Json, expected: Iterable[Json], namespace: str) -> list[Json]:
    """Return a row for each image of the expected pods and the namespace's: its name and its ID on the nodes."""
    proved = {_key(wanted) for wanted in expected}
    found = {
        (status["image"].removeprefix("docker.io/library/"), status["imageID"].rpartition("@")[2])
        for key, pod in _pods(cluster).items()
        if key in proved or key[0] == namespace
        for status in pod["status"].get("containerStatuses", [])
    }
    return [{"image": image, "id": identity} for image, identity in sorted(found)]


def nodes(cluster: Json) -> list[Json]:
    """Return a row for each node: name, role, readiness and kubelet."""
    found = [item for item in cluster["items"] if item["kind"] == "Node"]
    return [
        {
            "name": node["metadata"]["name"],
            "role": ", ".join(_roles(node)) or "worker",
            "status": "Ready" if any(map(_is_ready, node["status"].get("conditions", []))) else "NotReady",
            "version": node["status"]["nodeInfo"]["kubeletVersion"],
        }
        for node in sorted(found, key=lambda node: str(node["metadata"]["name"]))
    ]


def _roles(node: Json) -> list[str]:
    labels = node["metadata"].get("labels", {})
    return [label.removeprefix(ROLE_LABEL) for label in labels if label.startswith(ROLE_LABEL)]


def _is_ready(condition: Json) -> bool:
    return bool(condition["type"] == "Ready" and condition["status"] == "True")


def last_nodes(text: str) -> list[str]:
    """Return the last two nodes of the map, in the order of its indices."""
    return list(dict.fromkeys(node for _, (node, _) in sorted(read_map(text).items())))[-2:]


def on_nodes(cluster: Json, expected: Iterable[Json], names: Iterable[str]) -> dict[str, list[Json]]:
    """Return node, as the map names it → the check pods on it, for their logs."""
    pods = _pods(cluster)
    checks = [_key(wanted) for wanted in expected if wanted["name"].startswith(CHECK)]
    return {
        name: [
            {"namespace": namespace, "name": pod}
            for namespace, pod in checks
            if pods.get((namespace, pod), {"spec": {}})["spec"].get("nodeName") == _real_node(cluster, name)
        ]
        for name in names
    }


def table(rows: Iterable[Json], columns: Iterable[str]) -> list[str]:
    """Return the rows as lines of aligned columns, under their names."""
    names = tuple(columns)
    lines = [names, *(tuple(str(row[column]) for column in names) for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def markdown(rows: Iterable[Json], columns: Iterable[str]) -> list[str]:
    """Return the rows as the lines of a Markdown table, without its head."""
    names = tuple(columns)
    return [f"| {' | '.join(str(row[column]) for column in names)} |" for row in rows]


def tells(report: str, lines: Iterable[str]) -> bool:
    """Whether the report has exactly these rows of pods."""
    return {line for line in report.splitlines() if _UID_CELL.search(line)} == set(lines)


class FilterModule:
    """The filters as Ansible finds them."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Return name → filter."""
        functions = (
            containers,
            expectations,
            images,
            last_nodes,
            markdown,
            nodes,
            on_nodes,
            proof,
            system_pods,
            table,
            tells,
            wrong,
        )
        return {f"evidence_{function.__name__}": function for function in functions}
