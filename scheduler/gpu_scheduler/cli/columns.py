"""The columns of each table."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler.cli.options import Output
from gpu_scheduler.cli.output import Column, Listing, PrintedTable, cell, flattened, marked, on_terminal
from gpu_scheduler.cli.views import CLAIM, POD, holder_name
from gpu_scheduler.core.text import natural, number_of
from gpu_scheduler.names import EVENT_CONFLICT
from gpu_scheduler.webhook.pod_templates import GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpu_scheduler.cli.options import Options

View = dict[str, Any]

_GIB: Final = 1024
_MOST_NODES: Final = 20
"""Most nodes of the grid that have a row of their own, unless all are asked for."""
_MOST_COLUMNS: Final = 16
"""Most devices of a node that have a column of their own."""


def nodes_listing(items: Sequence[View], now: datetime | None = None) -> Listing:
    """Return the nodes with one row per node, or one row per device in the wide table, which needs `now`."""
    table = (
        Column("NAME", lambda node: node["name"], wraps=16),
        Column("ALIAS", lambda node: node["alias"], spare=2),
        Column("STATUS", _node_state),
        Column("GPUS", lambda node: node["gpus"]["total"]),
        Column("HELD", lambda node: node["gpus"]["held"]),
        Column("FREE", lambda node: node["gpus"]["available"]),
        Column("MODEL", lambda node: node["models"], spare=3, wraps=10),
        Column("MEMORY", lambda node: _memory(node["memoryUsedMiB"], node["memoryTotalMiB"]), spare=4),
        Column("UTIL", lambda node: _percent(node["utilization"]), spare=5),
        Column("HEALTH", lambda node: node["health"]),
        Column("TIER", lambda node: node["tier"], spare=6),
        Column("TAINTS", lambda node: list(map(_taint, node["taints"])), spare=1, wraps=12),
        Column("WHY NOT FREE", lambda node: node["why"], wraps=15),
    )
    wide = (
        Column("NODE", lambda device: device["node"]),
        Column("GPU", lambda device: device["device"]),
        Column("MODEL", lambda device: device["model"], wraps=10),
        Column("MEMORY", lambda device: _memory(device["memoryUsedMiB"], device["memoryTotalMiB"])),
        Column("UTIL", lambda device: _percent(device["utilization"])),
        Column("HEALTH", _device_health),
        Column("FREE", lambda device: device["available"]),
        Column(
            "HELD BY",
            lambda device: [holder_name(each) for each in device["holders"]],
            wraps=16,
        ),
        Column("SINCE", lambda device: [age(each["since"], now) or "-" for each in device["holders"]]),
        Column("OBSERVER", lambda device: list(map(_pod_name, device["observers"])), wraps=16),
        Column("WHY", lambda device: device["why"], wraps=20),
        Column("UUID", lambda device: device["uuid"]),
    )
    devices = flattened(items, "cards")
    return Listing(
        "Node", items, PrintedTable(table, items), PrintedTable(wide, devices), lambda node: f"node/{node['name']}"
    )


def health_listing(devices: Sequence[View]) -> Listing:
    """Return the devices with one row per device."""
    columns = [
        Column("NODE", lambda device: device["node"]),
        Column("GPU", lambda device: device["device"]),
        Column("HEALTH", lambda device: device["health"]),
        Column("TEMP", lambda device: _unit(device["temperature"], " °C")),
        Column("UTIL", lambda device: _percent(device["utilization"]), spare=1),
        Column("STALE", lambda device: device["stale"]),
        Column("WHY", lambda device: device["why"], wraps=20),
    ]
    more = [
        Column("POWER", lambda device: _unit(device["power"], " W")),
        Column("MEMORY", lambda device: _memory(device["memoryUsedMiB"], device["memoryTotalMiB"])),
        Column("MODEL", lambda device: device["model"], wraps=10),
        Column("UUID", lambda device: device["uuid"]),
    ]
    name = _device_name
    return Listing("Card", devices, PrintedTable(columns, devices), PrintedTable([*columns, *more], devices), name)


def workloads_listing(items: Sequence[View], *, namespaces: bool, now: datetime) -> Listing:
    """Return the workloads with one row per pod or GPUWorkload; `namespaces` adds a column for the namespace."""
    columns = [
        *[Column("NAMESPACE", lambda item: item["namespace"])] * namespaces,
        Column("NAME", lambda item: item["name"], wraps=16),
        Column("KIND", lambda item: item["objectKind"], spare=1),
        Column("PHASE", lambda item: item["phase"]),
        Column("NODE", lambda item: item["node"]),
        Column("GPUS", lambda item: marked(item, ",".join(item["devices"]))),
        Column("STRATEGY", lambda item: item["strategy"], spare=2),
        Column("PRIORITY", lambda item: item["priority"], spare=3),
        Column("REASON", lambda item: item["reason"]),
        Column("AGE", lambda item: age(item["createdAt"], now)),
    ]
    more = [
        Column("OBSERVER", lambda item: item["observer"]),
        Column("SINCE", lambda item: age(item["since"], now)),
        Column("WORKLOAD", lambda item: item["workload"], wraps=16),
        Column("WHY", lambda item: item["why"], wraps=20),
    ]
    return Listing(
        "Workload", items, PrintedTable(columns, items), PrintedTable([*columns, *more], items), workload_name
    )


def verify_listing(items: Sequence[View], *, namespaces: bool) -> Listing:
    """Return the containers with one row per container; `namespaces` adds a column for the namespace."""
    columns = [
        *[Column("NAMESPACE", lambda item: item["namespace"])] * namespaces,
        Column("NAME", lambda item: item["name"]),
        Column("CONTAINER", lambda item: item["container"]),
        Column("NODE", lambda item: item["node"]),
        Column("EXPECTED", lambda item: marked(item, _visible(item["expected"]["visibleDevices"], "unknown"))),
        Column("ACTUAL", _actual_devices),
        Column("VERDICT", lambda item: item["verdict"]),
    ]
    more = [
        Column("HELD", _held_devices),
        Column("ORDER", lambda item: item["actual"] and item["actual"]["deviceOrder"]),
        Column("FROM", lambda item: item["expected"]["source"]),
    ]
    why = Column("WHY", lambda item: item["why"], wraps=20)
    return Listing(
        "Verification",
        items,
        PrintedTable([*columns, why], items),
        PrintedTable([*columns, *more, why], items),
        lambda item: f"pod/{item['name']}/{item['container']}",
    )


def strategy_listing(name: str, source: str | None) -> Listing:
    """Return the cluster's strategy as a listing of one item."""
    items = [{"name": name, "source": source}]
    table = PrintedTable(
        (Column("STRATEGY", lambda item: item["name"]), Column("FROM", lambda item: item["source"])), items
    )
    return Listing("Strategy", items, table, table, lambda item: item["name"])


def status_listing(view: View) -> Listing:
    """Return the status as a listing of one item. Its tables are empty: `status_screen` prints it for people."""
    return Listing("Status", [view], PrintedTable((), ()), PrintedTable((), ()))


def status_screen(view: View, now: datetime, options: Options) -> str:
    """Return the screen of `status`: one line per fact, the grid of nodes and devices, then the waiting pods."""
    columns = (Column("", lambda row: row["what"]), Column("", lambda row: row["how"], wraps=20))
    rows = [{"what": what, "how": how} for what, how in _status_lines(view, now)]
    facts = on_terminal(PrintedTable(columns, rows), replace(options, no_headers=True))
    shown, others = (view["grid"], "") if options.output is Output.WIDE else summed(view["grid"])
    grid = on_terminal(grid_table(shown), options) + f"{others}\n" * bool(others)
    waiting = (
        Column("NAMESPACE", lambda pod: pod["namespace"]),
        Column("NAME", lambda pod: marked(pod, pod["name"]), wraps=16),
        Column("REASON", lambda pod: pod["reason"]),
        Column("SINCE", lambda pod: age(pod["since"], now)),
        Column("MESSAGE", _message, wraps=20),
    )
    table = on_terminal(PrintedTable(waiting, view["workloads"]["waiting"]), options)
    return "\n".join(filter(None, (facts, grid, table)))


def grid_table(grid: Sequence[View]) -> PrintedTable:
    """Return one row per node and one cell per device: its holders, or a word for its state."""
    names = sorted({each["device"] for node in grid for each in node["devices"]}, key=natural)
    indices = [name for name in names if name.isdecimal()][:_MOST_COLUMNS]

    def device(index: str) -> Column:
        return Column(index, lambda node: _cell(node, index), wraps=6)

    others = Column("OTHER", lambda node: list(_others(node, indices)), wraps=12)
    other = len(indices) < len(names) or any(node["unnamed"] for node in grid)
    return PrintedTable((Column("NODE", lambda node: node["node"]), *map(device, indices), *[others] * other), grid)


def summed(grid: Sequence[View]) -> tuple[list[View], str]:
    """Return the nodes to show one by one, and a sentence about the others; empty if there are none.

    Few nodes are all shown. Of many, those whose devices are all free or all held are only counted.
    """
    if len(grid) <= _MOST_NODES:
        return list(grid), ""
    states = [{each["state"] for each in node["devices"]} for node in grid]
    rest = [node for node, words in zip(grid, states, strict=True) if words not in ({"free"}, {"held"})]
    counts = (
        (states.count({"free"}), "with all GPUs free"),
        (states.count({"held"}), "with all GPUs held"),
        (max(0, len(rest) - _MOST_NODES), "of which GPUs are held or cannot be used"),
    )
    words = ", ".join(f"{number_of(count, 'node')} {what}" for count, what in counts if count)
    return rest[:_MOST_NODES], f"Not shown: {words}; -o wide shows all" if words else ""


def _cell(node: View, index: str) -> str | None:
    """Return who holds the device, or the word for its state; None if the node has no such device."""
    for each in node["devices"]:
        if each["device"] == index:
            return ",".join(each["holders"]) or str(each["state"])
    return None


def _others(node: View, indices: Sequence[str]) -> Iterator[str]:
    """Yield what a node has besides the devices that have a column."""
    for each in node["devices"]:
        if each["device"] not in indices:
            yield f"{each['device']}: {','.join(each['holders']) or each['state']}"
    if node["unnamed"]:
        yield f"{node['unnamed']} by a device plugin"


def age(since: str | None, now: datetime | None) -> str | None:
    """Return the time since `since` (RFC 3339) as whole days, hours, minutes or seconds; None if one is unknown.

    The unit is the largest with a value of at least 2, else seconds.
    """
    if not since or now is None:
        return None
    seconds = max(0, int((now - datetime.fromisoformat(since)).total_seconds()))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def leader_text(leader: View | None, now: datetime) -> str:
    """Return who leads, and for how long."""
    if leader is None:
        return "none: no pod is placed (kubectl get pods -A -l app.kubernetes.io/name=gpu-scheduler)"
    since = age(leader["since"], now)
    return f"{leader['holder']}, for {since}" if since else str(leader["holder"])


def _status_lines(view: View, now: datetime) -> Iterator[tuple[str, str]]:
    gpus, nodes, workloads, leader = view["gpus"], view["nodes"], view["workloads"], view["leader"]
    context = f"{view['context']} ({view['server']})" if view["context"] else view["server"]
    yield "Cluster", context
    yield "Leader", leader_text(leader, now)
    strategy = view["strategy"]
    yield "Strategy", "unknown" if strategy["name"] is None else f"{strategy['name']} ({strategy['source']})"
    unhealthy = f", {gpus['unhealthy']} unhealthy" if gpus["unhealthy"] else ""
    yield "GPUs", f"{gpus['total']} known, {gpus['held']} held, {gpus['available']} free{unhealthy}"
    yield "Nodes", f"{nodes['total']}, {nodes['ready']} ready, {nodes['withGpus']} with GPUs"
    if nodes["stale"] is None:
        yield "Monitors", "unknown"
    elif nodes["stale"]:
        yield "Monitors", f"silent on {', '.join(nodes['stale'])}: no pod is placed there by strategy"
    lines = view["limits"]["lines"]
    if lines is None:
        yield "Limits", "unknown"
    elif lines:
        yield "Limits", "; ".join(f"{each['namespace']}: {_limit(each)}" for each in lines)
    if view["limits"]["faults"]:
        yield "Limits", f"{len(view['limits']['faults'])} wrong: {view['limits']['faults'][0]}"
    yield "Workloads", f"{workloads['pending']} pending, {workloads['running']} running"
    for each in view["conflicts"]:
        first, second = map(_conflicting, each["kinds"], each["pods"])
        yield EVENT_CONFLICT, f"GPU {each['device']} of {each['node']} is held by {first} and {second}"


def _conflicting(kind: str, name: str) -> str:
    return f"{kind} {name}" if kind == CLAIM else name


def _limit(line: View) -> str:
    """Return how many GPUs one namespace holds, and its limits."""
    most = "any number of" if line["devices"] is None else f"{line['devices']}"
    held = most if line["held"] is None else f"{line['held']} of {most}"
    return f"{held} GPUs" + ("" if line["priority"] is None else f", priority up to {line['priority']}")


def _message(pod: View) -> str:
    message: str | None = pod["message"]
    return "not tried yet" if message is None else message.removeprefix(f"{pod['reason']}: ")


def _node_state(node: View) -> str:
    if node["ready"] is None:
        return "Deleted"
    marks = [mark for mark in ("cordoned", "stale") if node[mark]]
    return ",".join(["Ready" if node["ready"] else "NotReady", *marks])


def _device_health(device: View) -> str:
    return "stale" if device["stale"] else cell(device["health"])


def _pod_name(pod: View) -> str:
    return f"{pod['namespace']}/{pod['name']}"


def _taint(taint: View) -> str:
    return f"{taint['key']}{'=' * bool(taint['value'])}{taint['value'] or ''}:{taint['effect']}"


def _visible(value: str | None, missing: str) -> str:
    """Return a value of CUDA_VISIBLE_DEVICES as a cell."""
    return missing if value is None else value or "none"


def _actual_devices(item: View) -> str | None:
    """Return what the container's first process has; None if it was not read."""
    return _visible(item["actual"]["visibleDevices"], "(not set)") if item["actual"] else None


def _held_devices(item: View) -> str:
    held = item["held"]
    return f"{held['unnamed']} unnamed" if held["unnamed"] else ",".join(held["devices"]) or "none"


def _device_name(device: View) -> str:
    return f"{device['node']}/{device['device']}"


def workload_name(item: View) -> str:
    """Return a workload's name as kubectl prints it with `-o name`."""
    kind = item["objectKind"]
    group = "" if kind == POD else f".{GROUPS.get(kind, 'agentaflow.io')}"
    return f"{kind.lower()}{group}/{item['name']}"


def _memory(used: int | None, total: int | None) -> str | None:
    if total is None:
        return None
    return f"{(used or 0) / _GIB:.1f}/{total / _GIB:.0f}Gi"


def _percent(value: int | None) -> str | None:
    return _unit(value, "%")


def _unit(value: int | None, unit: str) -> str | None:
    return None if value is None else f"{value}{unit}"
