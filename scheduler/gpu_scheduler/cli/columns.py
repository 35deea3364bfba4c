"""The columns of each table."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler.cli.output import Column, Listing, PrintedTable, cell, flattened, marked, shortened, tabled
from gpu_scheduler.cli.views import POD
from gpu_scheduler.names import EVENT_CONFLICT
from gpu_scheduler.webhook.pod_templates import GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

View = dict[str, Any]

_GIB: Final = 1024


def nodes_listing(items: Sequence[View]) -> Listing:
    """Return the nodes with one row per node, or one row per device in the wide table."""
    table = (
        Column("NAME", lambda node: node["name"]),
        Column("ALIAS", lambda node: node["alias"]),
        Column("STATUS", _node_state),
        Column("GPUS", lambda node: node["gpus"]["total"]),
        Column("HELD", lambda node: node["gpus"]["held"]),
        Column("FREE", lambda node: node["gpus"]["available"]),
        Column("MODEL", lambda node: node["models"]),
        Column("MEMORY", lambda node: _memory(node["memoryUsedMiB"], node["memoryTotalMiB"])),
        Column("UTIL", lambda node: _percent(node["utilization"])),
        Column("HEALTH", lambda node: node["health"]),
        Column("TIER", lambda node: node["tier"]),
    )
    wide = (
        Column("NODE", lambda device: device["node"]),
        Column("GPU", lambda device: device["device"]),
        Column("MODEL", lambda device: device["model"]),
        Column("MEMORY", lambda device: _memory(device["memoryUsedMiB"], device["memoryTotalMiB"])),
        Column("UTIL", lambda device: _percent(device["utilization"])),
        Column("HEALTH", _device_health),
        Column("FREE", lambda device: device["available"]),
        Column("HELD BY", _holders),
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
        Column("UTIL", lambda device: _percent(device["utilization"])),
        Column("STALE", lambda device: device["stale"]),
        Column("WHY", lambda device: device["why"]),
    ]
    more = [
        Column("POWER", lambda device: _unit(device["power"], " W")),
        Column("MEMORY", lambda device: _memory(device["memoryUsedMiB"], device["memoryTotalMiB"])),
        Column("MODEL", lambda device: device["model"]),
        Column("UUID", lambda device: device["uuid"]),
    ]
    name = _device_name
    return Listing("Card", devices, PrintedTable(columns, devices), PrintedTable([*columns, *more], devices), name)


def workloads_listing(items: Sequence[View], *, namespaces: bool, now: datetime) -> Listing:
    """Return the workloads with one row per pod or GPUWorkload; `namespaces` adds a column for the namespace."""
    columns = [
        *[Column("NAMESPACE", lambda item: item["namespace"])] * namespaces,
        Column("NAME", lambda item: item["name"]),
        Column("KIND", lambda item: item["objectKind"]),
        Column("PHASE", lambda item: item["phase"]),
        Column("NODE", lambda item: item["node"]),
        Column("GPUS", lambda item: marked(item, ",".join(item["devices"]))),
        Column("STRATEGY", lambda item: item["strategy"]),
        Column("PRIORITY", lambda item: item["priority"]),
        Column("REASON", lambda item: item["reason"]),
        Column("AGE", lambda item: age(item["createdAt"], now)),
    ]
    more = [Column("WORKLOAD", lambda item: item["workload"]), Column("MESSAGE", lambda item: item["message"])]
    return Listing(
        "Workload", items, PrintedTable(columns, items), PrintedTable([*columns, *more], items), _workload_name
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


def status_screen(view: View, now: datetime, *, wide: bool, headers: bool, coloured: bool) -> str:
    """Return the screen of `status`: one line per fact, then the waiting pods. `wide` prints messages in full."""
    columns = (Column("", lambda row: row["what"]), Column("", lambda row: row["how"]))
    rows = [{"what": what, "how": how} for what, how in _status_lines(view, now)]
    text = tabled(PrintedTable(columns, rows), headers=False, coloured=coloured)
    waiting = view["workloads"]["waiting"]
    columns_of_waiting = (
        Column("NAMESPACE", lambda pod: pod["namespace"]),
        Column("NAME", lambda pod: marked(pod, pod["name"])),
        Column("REASON", lambda pod: pod["reason"]),
        Column("MESSAGE", lambda pod: _message(pod, wide=wide)),
    )
    table = tabled(PrintedTable(columns_of_waiting, waiting), headers=headers, coloured=coloured)
    return f"{text}\n{table}" if table else text


def age(since: str | None, now: datetime) -> str | None:
    """Return the time since `since` (RFC 3339) as whole days, hours, minutes or seconds; None if `since` is empty.

    The unit is the largest with a value of at least 2, else seconds.
    """
    if not since:
        return None
    seconds = max(0, int((now - datetime.fromisoformat(since)).total_seconds()))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _status_lines(view: View, now: datetime) -> Iterator[tuple[str, str]]:
    gpus, nodes, workloads, leader = view["gpus"], view["nodes"], view["workloads"], view["leader"]
    context = f"{view['context']} ({view['server']})" if view["context"] else view["server"]
    yield "Cluster", context
    if leader is None:
        yield "Leader", "none: no pod is placed (kubectl get pods -A -l app.kubernetes.io/name=gpu-scheduler)"
    else:
        since = age(leader["since"], now)
        yield "Leader", leader["holder"] + (f", for {since}" if since else "")
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
        first, second = each["pods"]
        yield EVENT_CONFLICT, f"GPU {each['device']} of {each['node']} is held by {first} and {second}"


def _limit(line: View) -> str:
    """Return how many GPUs one namespace holds, and its limits."""
    most = "any number of" if line["devices"] is None else f"{line['devices']}"
    held = most if line["held"] is None else f"{line['held']} of {most}"
    return f"{held} GPUs" + ("" if line["priority"] is None else f", priority up to {line['priority']}")


def _message(pod: View, *, wide: bool) -> str | None:
    message: str | None = pod["message"]
    if message is None:
        return "not tried yet"
    text = message.removeprefix(f"{pod['reason']}: ")
    return text if wide else shortened(text)


def _node_state(node: View) -> str:
    marks = [mark for mark in ("cordoned", "stale") if node[mark]]
    words = ["Ready" if node["ready"] else "NotReady", *marks]
    return ",".join(words)


def _device_health(device: View) -> str:
    return "stale" if device["stale"] else cell(device["health"])


def _holders(device: View) -> list[str]:
    return [f"{each['namespace']}/{each['name']}" for each in device["holders"]]


def _device_name(device: View) -> str:
    return f"{device['node']}/{device['device']}"


def _workload_name(item: View) -> str:
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
