"""The verbs that only read: status, nodes, workloads, health."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gpu_scheduler.cli.cluster import namespace_of, reached
from gpu_scheduler.cli.options import FAILED, Output, print_message, warn

if TYPE_CHECKING:
    from gpu_scheduler.cli.options import Options
    from gpu_scheduler.cli.output import Listing, View


async def status(options: Options) -> int:
    """Show GPUs, workloads, strategy and leader.

    Exit code 1 if no replica leads, a GPU is held twice against the rules, or something may not be read. With -n, only
    that namespace's workloads.
    """
    import asyncio

    from gpu_scheduler.cli import output
    from gpu_scheduler.cli.columns import status_listing, status_screen
    from gpu_scheduler.cli.installation import read_installation, read_leader
    from gpu_scheduler.cli.snapshot import take_snapshot
    from gpu_scheduler.cli.views import limits_view, status_view

    now = datetime.now(UTC)
    async with reached(options) as api:
        installation = await read_installation(api, options.system_namespace)
        snapshot, leader = await asyncio.gather(
            take_snapshot(api, installation.policy), read_leader(api, options.system_namespace, now)
        )
        view = status_view(
            api=(api.context, api.host),
            installation=installation,
            leader=leader,
            node_devices=snapshot.node_devices,
            pods=[pod for pod in snapshot.pods if options.namespace in {None, pod.ref.namespace}],
            conflicts=snapshot.ledger.conflicts(),
            limits=limits_view(installation.limits, snapshot.ledger.devices.usage, options.namespace),
            leases_read=not snapshot.unread,
        )
    if options.output in {Output.TABLE, Output.WIDE}:
        text = status_screen(
            view,
            now,
            wide=options.output is Output.WIDE,
            headers=not options.no_headers,
            coloured=output.colours(sys.stdout.isatty(), os.environ),
        )
    else:
        text = output.render(status_listing(view), options)
    sys.stdout.write(text)
    missing = installation.unread
    unread = (missing.deployment, missing.strategy, missing.limits, snapshot.unread)
    warn(unread)
    return FAILED if leader is None or view["conflicts"] or any(unread) else 0


async def nodes(options: Options) -> int:
    """List nodes and their GPUs.

    With -o wide, one row for each GPU, with the pods that hold it. Nodes have no namespace: -n changes nothing.
    """
    from gpu_scheduler.cli.columns import nodes_listing

    items, _ = await _nodes(options)
    return _print(nodes_listing(items), options, "No nodes found")


async def workloads(options: Options) -> int:
    """List our pods and GPUWorkloads, and controllers whose pods are refused.

    Where they run and with which GPUs, or why they wait.
    """
    import asyncio

    from gpu_scheduler.cli.columns import workloads_listing
    from gpu_scheduler.cli.installation import read_installation
    from gpu_scheduler.cli.refused_workloads import refused_workloads
    from gpu_scheduler.cli.snapshot import pods_of, workloads_of
    from gpu_scheduler.cli.views import pod_view, workload_view

    async with reached(options) as api:
        namespace = namespace_of(options, api)
        installation = await read_installation(api, options.system_namespace)
        pods, gpu_workloads = await asyncio.gather(
            pods_of(api, installation.policy.scheduler_name, namespace), workloads_of(api, namespace)
        )
        refused, unlisted = await refused_workloads(api, installation.policy.scheduler_name, namespace)
    items = [
        *(workload_view(each, installation.strategy) for each in gpu_workloads),
        *(pod_view(each, installation.strategy) for each in pods),
        *refused,
    ]
    warn((installation.unread.deployment, installation.unread.strategy, unlisted))
    items.sort(key=lambda item: (item["namespace"], item["objectKind"], item["name"]))
    listing = workloads_listing(items, namespaces=namespace is None, now=datetime.now(UTC))
    return _print(listing, options, f"No workloads found in {namespace or 'any namespace'}")


async def health(options: Options) -> int:
    """List the GPUs that monitors read, and what is wrong with them.

    Exit code 1 if one is not healthy, its monitor's Lease has expired, or the Leases may not be listed.
    """
    from gpu_scheduler.cli.columns import health_listing

    items, leases_read = await _nodes(options)
    devices = [device for node in items for device in node["cards"] if device["health"] is not None]
    _print(health_listing(devices), options, "No GPUs found that a monitor reads")
    bad = any(device["health"] != "healthy" or device["stale"] for device in devices)
    return FAILED if bad or not leases_read else 0


async def _nodes(options: Options) -> tuple[list[View], bool]:
    """Return the nodes, and whether the monitors' Leases could be listed. Print what the user may not read."""
    from gpu_scheduler.cli.installation import read_installation
    from gpu_scheduler.cli.snapshot import take_snapshot
    from gpu_scheduler.cli.views import node_view

    async with reached(options) as api:
        installation = await read_installation(api, options.system_namespace)
        snapshot = await take_snapshot(api, installation.policy)
    warn((installation.unread.deployment, snapshot.unread))
    leases_read = not snapshot.unread
    items = [
        node_view(
            states,
            snapshot.listed[states.node.name],
            leases_read=leases_read,
            renewed=snapshot.silent.get(states.node.name, ""),
        )
        for states in snapshot.node_devices
    ]
    return items, leases_read


def _print(listing: Listing, options: Options, nothing: str) -> int:
    """Print the listing. If a table is empty, print `nothing` on standard error. Return exit code 0."""
    from gpu_scheduler.cli.output import render

    sys.stdout.write(render(listing, options))
    if not listing.items and options.output in {Output.TABLE, Output.WIDE}:
        print_message(nothing)
    return 0
