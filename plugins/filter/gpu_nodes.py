"""Compares a placement map with the nodes of a cluster, and writes one of the nodes that exist.

Pure functions of what modules cluster_access and cluster_nodes read. The scheduler's own parser reads the map, and its
own code says which node a name means, which devices exist, and which taints are tolerated.
"""

from __future__ import annotations

import difflib
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# The scheduler's package is not installed in the tool environment; its core needs nothing but Python.
PAYLOAD: Final = Path(__file__).resolve().parents[2] / "scheduler"
sys.path.append(str(PAYLOAD))

from gpu_scheduler.core.nodes.inventory import Device, Inventory, counted  # noqa: E402 - found just now
from gpu_scheduler.core.nodes.nodes import Node, Nodes  # noqa: E402 - likewise
from gpu_scheduler.core.pods.constraints import SchedulingConstraints, Taint, Toleration  # noqa: E402 - likewise
from gpu_scheduler.core.pods.placement_map import MapError, Slot, parse_placement_map  # noqa: E402 - likewise
from gpu_scheduler.core.pods.visible_devices import devices_in  # noqa: E402 - likewise
from gpu_scheduler.core.text import natural  # noqa: E402 - likewise

Facts = dict[str, Any]

# Cordoned and not ready nodes have these too; a sentence of its own names each of those.
OWN_SENTENCE: Final = frozenset({"node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready"})
MOST_NAMED: Final = 5
MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def node_of(facts: Facts) -> Node:
    """Return a node as the scheduler sees it."""
    listed, advertised = facts["devices"], facts["advertised"]
    inventory = None
    if listed is not None:
        inventory = Inventory(tuple(_device(each) for each in listed))
    elif advertised:
        inventory = counted(advertised)
    return Node(
        name=facts["name"],
        ready=facts["ready"],
        unschedulable=facts["unschedulable"],
        alias=facts["alias"],
        taints=tuple(Taint(**taint) for taint in facts["taints"]),
        inventory=inventory,
        advertised=advertised,
    )


def _device(given: Facts) -> Device:
    spelled = [uuid[:4] + uuid[4:].lower() for uuid in given["uuids"]]
    uuids = {uuid[:3]: uuid for uuid in spelled}
    parts = tuple(uuid for uuid in spelled if uuid.startswith("MIG"))
    return Device(given["index"], uuids.get("GPU"), parts)


def constraints_of(tolerations: list[dict[str, Any]]) -> SchedulingConstraints:
    """Return the tolerations of the check pods as the scheduler reads them."""
    return SchedulingConstraints(
        tolerations=tuple(
            Toleration(
                str(each.get("key", "")),
                str(each.get("operator", "Equal")),
                str(each.get("value", "")),
                str(each.get("effect", "")),
            )
            for each in tolerations
        )
    )


def repelling(node: Node, constraints: SchedulingConstraints) -> list[Taint]:
    """Return the taints for which the check pods cannot run on the node."""
    return [
        taint
        for taint in node.taints
        if taint.effect in {"NoSchedule", "NoExecute"}
        and taint.key not in OWN_SENTENCE
        and not constraints.tolerates(taint)
    ]


def unknown_devices(node: Node, slot: Slot) -> list[str]:
    """Return the devices of a line that the node does not have, as far as its devices are known."""
    inventory = node.inventory
    if inventory is None:
        return []
    return [each for each in slot.devices if not inventory.find(each) and (each.isdigit() or inventory.has_uuids)]


def few(words: list[str]) -> str:
    """Return the first words, and how many more there are."""
    more = len(words) - MOST_NAMED
    return ", ".join(words[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def map_problems(text: str, cluster: Facts, tolerations: list[dict[str, Any]], machine: str = "") -> list[str]:
    """Return a sentence for whatever of the map does not fit the nodes.

    `machine` is that of the host on which the images are built; empty where they are not built here.
    """
    slots = parse_placement_map(text).slots
    nodes = Nodes()
    for each in cluster["nodes"]:
        nodes.apply(node_of(each))
    resolved = {name: nodes.resolve(name) for name in dict.fromkeys(slot.node for slot in slots)}
    found = {name: node for name, node in resolved.items() if isinstance(node, Node)}
    problems = list(_name_problems(resolved, cluster))
    problems += _state_problems(found, tolerations)
    for slot in slots:
        strange = unknown_devices(found[slot.node], slot) if slot.node in found else []
        if strange:
            known = [str(device.index) for device in getattr(found[slot.node].inventory, "devices", ())]
            problems.append(
                f"gpu_scheduling_map has the line {slot}, and node"
                f" {found[slot.node].name} has no GPU {', '.join(strange)}: it has {few(known) or 'none'}."
            )
    archs = {each["name"]: each["arch"] for each in cluster["nodes"]}
    built = MACHINES.get(machine, "")
    for name, node in found.items():
        if built and archs[node.name] not in ("", built):
            problems.append(
                f"gpu_scheduling_map names {name}, a node for {archs[node.name]}, and the images are built on this host"
                f" for {built}: install from a host of that kind, or give scheduler_image and check_image with digests"
                " of images for both."
            )
    return problems


def _name_problems(resolved: dict[str, Any], cluster: Facts) -> Iterator[str]:
    ambiguous = {name for name, node in resolved.items() if not isinstance(node, Node) and _aliased(name, cluster)}
    missing = [name for name, node in resolved.items() if not isinstance(node, Node) and name not in ambiguous]
    if missing:
        names = sorted(cluster["node_names"], key=natural)
        one = len(missing) == 1
        yield (
            f"gpu_scheduling_map names {few(missing)}, and no node has {'that name' if one else 'these names'} or"
            f" label gpu-node-name with {'it' if one else 'them'}: the cluster has {few(names) or 'no node'}."
        )
    for name in sorted(ambiguous):
        nodes = sorted(_aliased(name, cluster), key=natural)
        yield (
            f"gpu_scheduling_map names {name}, and label gpu-node-name={name} is on {few(nodes)}: leave it on one"
            f" (kubectl label node {nodes[-1]} gpu-node-name-)."
        )


def _aliased(name: str, cluster: Facts) -> list[str]:
    return [each["name"] for each in cluster["nodes"] if each["alias"] == name]


def _state_problems(found: dict[str, Node], tolerations: list[dict[str, Any]]) -> Iterator[str]:
    constraints = constraints_of(tolerations)
    for name, node in found.items():
        named = f"gpu_scheduling_map names {name}, and "
        if not node.ready:
            yield f"{named}node {node.name} is not Ready: see why (kubectl describe node {node.name})."
        if node.unschedulable:
            yield f"{named}node {node.name} is cordoned: kubectl uncordon {node.name}."
        for taint in repelling(node, constraints):
            asked = f"operator: Equal, value: {taint.value}" if taint.value else "operator: Exists"
            yield (
                f"{named}check_tolerations does not tolerate the taint {taint} of node {node.name}: add it"
                f" (example: check_tolerations: [{{key: {taint.key}, {asked}, effect: {taint.effect}}}])."
            )


def map_warnings(cluster: Facts) -> list[str]:
    """Return what cannot be known of images that are not built here: whether they suit the nodes of the map."""
    archs = sorted({each["arch"] for each in cluster["nodes"]} - {"", "amd64"})
    warning = (
        f"The map has nodes for {', '.join(archs)}: scheduler_image and check_image must be images for that too, which"
        " shows only when their pods start."
    )
    return [warning] if archs else []


class _Free:
    """A node that takes check pods, with the devices that no pod holds, in order."""

    def __init__(self, node: Node, devices: list[str]) -> None:
        self.node = node
        self.devices = devices
        self.rest = list(devices)
        """Those that no line of the map has either."""


def map_of_nodes(nodes: list[Facts], present: str, replicas: int, tolerations: list[dict[str, Any]]) -> Facts:
    """Return a map of the nodes that exist, and what to say about it.

    A line of the present map that can be fulfilled stays. Each other line gets as many GPUs as it has, or fewer, of the
    node with the most free ones. It has at most `replicas` lines; 0 means as many as the present map. `change` are the
    lines of both maps, marked with - and +; `error` is a sentence where no map can be made.
    """
    unchanged = {"map": present, "differs": False, "change": [], "notes": [], "error": ""}
    try:
        slots = list(parse_placement_map(present).slots)
    except MapError as error:
        return {**unchanged, "error": f"gpu_scheduling_map: {error}"}
    known = Nodes()
    for each in nodes:
        known.apply(node_of(each))
    constraints = constraints_of(tolerations)
    free = dict(_free(nodes, constraints))
    notes = []
    if all(node.inventory is None for node in known):
        free = dict(_workers(nodes, constraints))
        notes = [
            "No node says which GPUs it has, by a monitor or a device plugin: one line for each worker, with GPU 0."
        ]
    wanted = slots[: replicas or None]
    wanted += [Slot(0, "", ("0",))] * (max(replicas, 1) - len(wanted))
    kept = {position: line for position, slot in enumerate(wanted) if (line := _kept(slot, known, free, constraints))}
    lines = []
    for position, slot in enumerate(wanted):
        line = kept.get(position) or _chosen(len(slot.devices), free)
        if line:
            lines.append(line)
    if not lines:
        return {**unchanged, "error": _why_none(nodes, constraints)}
    text = "".join(f"{index}={name}:{','.join(devices)}\n" for index, (name, devices) in enumerate(lines))
    parse_placement_map(text)
    if len(lines) < len(wanted):
        notes.append(f"There are free GPUs for {len(lines)} lines; {len(wanted)} were asked for.")
    same = parse_placement_map(text) == parse_placement_map(present)
    if same:
        return {**unchanged, "notes": notes}
    compared = difflib.ndiff(str(parse_placement_map(present)).splitlines(), text.splitlines())
    change = [line for line in compared if not line.startswith("?")]
    return {**unchanged, "map": text, "differs": True, "change": change, "notes": notes}


def _free(nodes: list[Facts], constraints: SchedulingConstraints) -> Iterator[tuple[str, _Free]]:
    """Yield the nodes that take check pods, with the devices that are healthy and that no pod holds."""
    for facts in sorted(nodes, key=lambda each: (natural(each["name"]), each["name"])):
        node = node_of(facts)
        if node.inventory is None or not _takes_pods(node, constraints):
            continue
        held = set(_held(facts["holders"], node))
        ill = {each["index"] for each in facts["devices"] or () if not each["healthy"]}
        devices = [device.index for device in node.inventory.devices if device.index not in held | ill]
        if node.advertised is not None:
            # Which ones the device plugin has handed out is unknown.
            handed_out = sum(each["limit"] for each in facts["holders"])
            devices = devices[: max(0, min(len(devices), node.advertised) - handed_out)]
        yield node.name, _Free(node, [str(index) for index in devices])


def _held(holders: list[Facts], node: Node) -> Iterator[int]:
    """Yield the devices that pods hold by name. A name that cannot be found may mean any of them."""
    inventory = node.inventory or Inventory(())
    for holder in holders:
        if holder["limit"] and node.advertised is not None:
            continue
        for name in chain(*map(devices_in, holder["values"]), _on_node(holder["map"], node)):
            part = inventory.find(name)
            if part is not None:
                yield part.index
            elif not name.isdigit() and not inventory.has_uuids:
                yield from (device.index for device in inventory.devices)


def _on_node(text: str, node: Node) -> Iterator[str]:
    """Yield the devices that a map names on a node: which of its lines is the pod's is not asked."""
    try:
        slots = parse_placement_map(text).slots
    except MapError:
        return
    yield from (device for slot in slots if slot.node in {node.name, node.alias} for device in slot.devices)


def _takes_pods(node: Node, constraints: SchedulingConstraints) -> bool:
    return node.ready and not node.unschedulable and not repelling(node, constraints)


def _workers(nodes: list[Facts], constraints: SchedulingConstraints) -> Iterator[tuple[str, _Free]]:
    """Yield the nodes of whose devices nothing is known, as if each had GPU 0."""
    for facts in sorted(nodes, key=lambda each: (natural(each["name"]), each["name"])):
        node = node_of(facts)
        if not facts["control_plane"] and node.advertised is None and _takes_pods(node, constraints):
            yield node.name, _Free(node, ["0"])


def _kept(
    slot: Slot, known: Nodes, free: dict[str, _Free], constraints: SchedulingConstraints
) -> tuple[str, tuple[str, ...]] | None:
    """Return a line as it stands if its node can take it, and use its devices up."""
    node = known.resolve(slot.node)
    if isinstance(node, Node) and not slot.devices and _takes_pods(node, constraints):
        return slot.node, ()
    if not isinstance(node, Node) or node.name not in free:
        return None
    on_node = free[node.name]
    if node.inventory is None:
        # Nothing contradicts the line.
        on_node.rest = []
        return slot.node, slot.devices
    parts = [node.inventory.find(device) for device in slot.devices]
    indices = [str(part.index) for part in parts if part is not None]
    if None in parts or not set(indices) <= set(on_node.devices):
        return None
    on_node.rest = [each for each in on_node.rest if each not in indices]
    return slot.node, slot.devices


def _chosen(count: int, free: dict[str, _Free]) -> tuple[str, tuple[str, ...]] | None:
    """Return a line with so many GPUs, or as many as there are, of the node with the most free ones."""
    if not free:
        return None
    name, on_node = max(free.items(), key=lambda each: len(each[1].rest))
    devices, on_node.rest = on_node.rest[:count], on_node.rest[count:]
    return (name, tuple(devices)) if devices or not count else None


def _why_none(nodes: list[Facts], constraints: SchedulingConstraints) -> str:
    states = []
    for facts in sorted(nodes, key=lambda each: natural(each["name"])):
        node = node_of(facts)
        taints = ", ".join(map(str, repelling(node, constraints)))
        state = "cordoned" if node.unschedulable else f"tainted {taints}" if taints else "without a free GPU"
        states.append(f"{node.name} is {state if node.ready else 'not Ready'}")
    return (
        f"Cannot write a map: no node can take a check pod ({few(states) or 'the cluster has none'}). Free a GPU, or"
        " let check_tolerations tolerate the taint of your GPU nodes"
        " (example: check_tolerations: [{key: nvidia.com/gpu, operator: Exists}])."
    )


class FilterModule:
    """The filters as Ansible finds them."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Return name → filter."""
        return {"map_problems": map_problems, "map_warnings": map_warnings, "map_of_nodes": map_of_nodes}
