"""Which facts stand in which column."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler.cli.output import Column, Listing, PrintedTable, cell, flattened, marked, shortened, tabled
from gpu_scheduler.cli.views import POD
from gpu_scheduler.names import EVENT_CONFLICT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

View = dict[str, Any]

_GIB: Final = 1024


def nodes_listing(items: Sequence[View]) -> Listing:
    """One row a node; wide, one row a card."""
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
        Column("NODE", lambda card: card["node"]),
        Column("GPU", lambda card: card["device"]),
        Column("MODEL", lambda card: card["model"]),
        Column("MEMORY", lambda card: _memory(card["memoryUsedMiB"], card["memoryTotalMiB"])),
        Column("UTIL", lambda card: _percent(card["utilization"])),
        Column("HEALTH", _card_health),
        Column("FREE", lambda card: card["available"]),
        Column("HELD BY", _holders),
        Column("UUID", lambda card: card["uuid"]),
    )
    cards = flattened(items, "cards")
    return Listing(
        "Node", items, PrintedTable(table, items), PrintedTable(wide, cards), lambda node: f"node/{node['name']}"
    )


def health_listing(cards: Sequence[View]) -> Listing:
    """One row a card."""
    columns = [
        Column("NODE", lambda card: card["node"]),
        Column("GPU", lambda card: card["device"]),
        Column("HEALTH", lambda card: card["health"]),
        Column("TEMP", lambda card: _unit(card["temperature"], " °C")),
        Column("UTIL", lambda card: _percent(card["utilization"])),
        Column("STALE", lambda card: card["stale"]),
    ]
    more = [
        Column("POWER", lambda card: _unit(card["power"], " W")),
        Column("MEMORY", lambda card: _memory(card["memoryUsedMiB"], card["memoryTotalMiB"])),
        Column("MODEL", lambda card: card["model"]),
        Column("UUID", lambda card: card["uuid"]),
    ]
    name = _card_name
    return Listing("Card", cards, PrintedTable(columns, cards), PrintedTable([*columns, *more], cards), name)


def workloads_listing(items: Sequence[View], *, namespaces: bool, now: datetime) -> Listing:
    """One row a pod or GPUWorkload; `namespaces` where they are of several."""
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


def strategy_listing(name: str, source: str) -> Listing:
    """The one strategy."""
    items = [{"name": name, "source": source}]
    sheet = PrintedTable(
        (Column("STRATEGY", lambda item: item["name"]), Column("FROM", lambda item: item["source"])), items
    )
    return Listing("Strategy", items, sheet, sheet, lambda item: item["name"])


def status_listing(view: View) -> Listing:
    """The one item; its table is a screen of its own."""
    return Listing("Status", [view], PrintedTable((), ()), PrintedTable((), ()))


def status_screen(view: View, now: datetime, *, wide: bool, headers: bool, coloured: bool) -> str:
    """The screen of `status`: a line for each thing, then who waits; a message is cut unless `wide`."""
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
    """How long ago, in the largest unit that is not zero."""
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
        yield "Leader", "nobody: no pod is placed (kubectl get pods -A -l app.kubernetes.io/name=gpu-scheduler)"
    else:
        since = age(leader["since"], now)
        yield "Leader", leader["holder"] + (f", for {since}" if since else "")
    yield "Strategy", f"{view['strategy']['name']} ({view['strategy']['source']})"
    unhealthy = f", {gpus['unhealthy']} unhealthy" if gpus["unhealthy"] else ""
    yield "GPUs", f"{gpus['total']} known, {gpus['held']} held, {gpus['available']} free{unhealthy}"
    yield "Nodes", f"{nodes['total']}, {nodes['ready']} ready, {nodes['withGpus']} with GPUs"
    if nodes["stale"]:
        yield "Monitors", f"silent on {', '.join(nodes['stale'])}: no pod is placed there by strategy"
    limits = [f"{each['namespace']}: {_limit(each)}" for each in view["limits"]["lines"]]
    if limits:
        yield "Limits", "; ".join(limits)
    if view["limits"]["faults"]:
        yield "Limits", f"{len(view['limits']['faults'])} wrong: {view['limits']['faults'][0]}"
    yield "Workloads", f"{workloads['pending']} pending, {workloads['running']} running"
    for each in view["conflicts"]:
        first, second = each["pods"]
        yield EVENT_CONFLICT, f"GPU {each['device']} of {each['node']} is held by {first} and {second}"


def _limit(line: View) -> str:
    """What one namespace holds and may hold."""
    most = "any number of" if line["devices"] is None else f"{line['devices']}"
    held = most if line["held"] is None else f"{line['held']} of {most}"
    return f"{held} GPUs" + ("" if line["priority"] is None else f", priority up to {line['priority']}")


def _message(pod: View, *, wide: bool) -> str | None:
    message: str | None = pod["message"]
    if message is None:
        return "not looked at yet"
    text = message.removeprefix(f"{pod['reason']}: ")
    return text if wide else shortened(text)


def _node_state(node: View) -> str:
    words = ["Ready" if node["ready"] else "NotReady", *["cordoned"] * node["cordoned"], *["stale"] * node["stale"]]
    return ",".join(words)


def _card_health(card: View) -> str:
    return "stale" if card["stale"] else cell(card["health"])


def _holders(card: View) -> list[str]:
    return [f"{each['namespace']}/{each['name']}" for each in card["holders"]]


def _card_name(card: View) -> str:
    return f"{card['node']}/{card['device']}"


def _workload_name(item: View) -> str:
    return f"pod/{item['name']}" if item["objectKind"] == POD else f"gpuworkload.agentaflow.io/{item['name']}"


def _memory(used: int | None, total: int | None) -> str | None:
    if total is None:
        return None
    return f"{(used or 0) / _GIB:.1f}/{total / _GIB:.0f}Gi"


def _percent(value: int | None) -> str | None:
    return _unit(value, "%")


def _unit(value: int | None, unit: str) -> str | None:
    return None if value is None else f"{value}{unit}"
