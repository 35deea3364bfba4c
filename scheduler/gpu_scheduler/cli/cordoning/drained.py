"""Who holds the devices that are drained, and what becomes of each: a dry run of the scheduler decides."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gpu_scheduler.cli.live_cluster import read_live_cluster
from gpu_scheduler.cli.output import Column, Listing, PrintedTable, marked
from gpu_scheduler.cli.planning.controllers import add_returning, read_default
from gpu_scheduler.cli.planning.planner import Outcome, Planner
from gpu_scheduler.cli.views import devices_of
from gpu_scheduler.core.nodes.cordons import ALL_DEVICES
from gpu_scheduler.core.text import natural
from gpu_scheduler.kube.timestamps import time_of
from gpu_scheduler.scheduler.ports import InputKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpu_scheduler.cli.planning.planner import PlannedPod
    from gpu_scheduler.core.nodes.cordons import Cordon
    from gpu_scheduler.core.nodes.nodes import Node
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.kube.http.client import ApiClient

View = dict[str, Any]


def users_of(pods: Iterable[Pod], node: Node, cordons: Sequence[Cordon]) -> tuple[list[Pod], list[Pod]]:
    """Return the pods that hold or see the cordoned devices of the node, and those of which that is unknown.

    It is unknown which devices a device plugin gave, unless all of the node are cordoned.
    """
    found: list[Pod] = []
    unknown: list[Pod] = []
    whole = any(cordon.device == ALL_DEVICES for cordon in cordons)
    for pod in sorted(pods, key=lambda pod: (pod.ref.namespace, natural(pod.ref.name))):
        devices = devices_of(pod)
        if pod.node != node.name or pod.finished or not (devices or pod.gpu_limits):
            continue
        if whole:
            found.append(pod)
        elif node.advertised is not None and pod.gpu_limits:
            unknown.append(pod)
        elif any(cordon.covers(device, node.inventory) for cordon in cordons for device in devices):
            found.append(pod)
    return found, unknown


async def plan_drain(
    api: ApiClient, system_namespace: str, node: Node, cordons: Sequence[Cordon]
) -> tuple[list[tuple[Pod, PlannedPod]], list[Pod], tuple[str, ...]]:
    """Return the users of the devices with what becomes of each, the pods that may be users, and what was not read."""
    live = await read_live_cluster(api, system_namespace)
    dry_run = live.dry_run()
    known = next((each for kind, each in live.inputs if kind is InputKind.NODE and each.name == node.name), node)
    # In a trial the cordons are not written, so the live cluster does not have them.
    dry_run.apply(InputKind.NODE, replace(known, cordons=(*known.cordons, *cordons)))
    evicted, unknown = users_of(dry_run.pods, node, cordons)
    for pod in evicted:
        dry_run.evict(pod)
    planner = Planner(dry_run, live.inputs, time_of(datetime.now(UTC)), await read_default(api))
    planner.decide_waiting()
    await add_returning(api, planner, evicted, set())
    return list(zip(evicted, planner.pods, strict=True)), unknown, live.unread


def drain_view(left: Pod, planned: PlannedPod) -> View:
    """Return what becomes of one pod, as plain data."""
    return {
        "namespace": left.ref.namespace,
        "name": left.ref.name,
        "uid": left.ref.uid,
        "devices": list(devices_of(left)),
        "observer": left.request.observer,
        "outcome": planned.outcome.value,
        "successor": None if planned.outcome is Outcome.LOST else planned.name,
        "newNode": planned.node or None,
        "newDevices": list(planned.devices),
        "reason": planned.reason,
        "message": planned.message,
    }


def drain_listing(items: list[View]) -> Listing:
    """Return the pods that are evicted, and where each comes back."""
    columns = (
        Column("NAMESPACE", lambda item: item["namespace"]),
        Column("POD", lambda item: item["name"]),
        Column("GPUS", lambda item: marked(item, ",".join(item["devices"]))),
        Column("COMES BACK", _comes_back),
        Column("WHY NOT", lambda item: None if item["newNode"] else item["message"], wraps=20),
    )
    table = PrintedTable(columns, items)
    return Listing("Drain", items, table, table, lambda item: f"pod/{item['name']}")


def _comes_back(item: View) -> str:
    if item["newNode"]:
        return f"{item['newNode']}:{','.join(item['newDevices'])}"
    return "no" if item["outcome"] == Outcome.LOST else "waits"
