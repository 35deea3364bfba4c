"""The verbs that look: status, nodes, workloads, health."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gpu_scheduler.cli.cluster import namespace_of, reached
from gpu_scheduler.cli.options import FAILED, Output

if TYPE_CHECKING:
    from gpu_scheduler.cli.options import Options
    from gpu_scheduler.cli.output import Listing, View


async def status(options: Options) -> int:
    """Show GPUs, workloads, strategy and leader.

    Exit code 1 where nobody leads, or a GPU is held twice against the rules. With -n, only that namespace's workloads.
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
        seen, leader = await asyncio.gather(
            take_snapshot(api, installation.policy), read_leader(api, options.system_namespace, now)
        )
        view = status_view(
            api=(api.context, api.host),
            installation=installation,
            leader=leader,
            racks=seen.racks,
            pods=[pod for pod in seen.pods if options.namespace in {None, pod.ref.namespace}],
            conflicts=seen.ledger.conflicts(),
            limits=limits_view(installation.limits, seen.ledger.devices.usage, options.namespace),
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
    return FAILED if leader is None or view["conflicts"] else 0


async def nodes(options: Options) -> int:
    """List nodes and their GPUs.

    With -o wide, one row for each GPU and who holds it. Nodes have no namespace: -n changes nothing.
    """
    from gpu_scheduler.cli.columns import nodes_listing

    return _print(nodes_listing(await _nodes(options)), options, "No nodes found")


async def workloads(options: Options) -> int:
    """List our pods and GPUWorkloads.

    Where they run and with which GPUs, or why they wait.
    """
    import asyncio

    from gpu_scheduler.cli.columns import workloads_listing
    from gpu_scheduler.cli.installation import read_installation
    from gpu_scheduler.cli.snapshot import pods_of, workloads_of
    from gpu_scheduler.cli.views import pod_view, workload_view

    async with reached(options) as api:
        namespace = namespace_of(options, api)
        installation = await read_installation(api, options.system_namespace)
        pods, wished = await asyncio.gather(
            pods_of(api, installation.policy.scheduler_name, namespace), workloads_of(api, namespace)
        )
    items = [
        *(workload_view(each, installation.strategy) for each in wished),
        *(pod_view(each, installation.strategy) for each in pods),
    ]
    items.sort(key=lambda item: (item["namespace"], item["objectKind"], item["name"]))
    listing = workloads_listing(items, namespaces=namespace is None, now=datetime.now(UTC))
    return _print(listing, options, f"No workloads found in {namespace or 'any namespace'}")


async def health(options: Options) -> int:
    """List the GPUs that monitors read.

    Exit code 1 where one is not healthy, or its monitor is silent.
    """
    from gpu_scheduler.cli.columns import health_listing

    cards = [card for node in await _nodes(options) for card in node["cards"] if card["health"] is not None]
    _print(health_listing(cards), options, "No GPUs found that a monitor reads")
    return FAILED if any(card["health"] != "healthy" or card["stale"] for card in cards) else 0


async def _nodes(options: Options) -> list[View]:
    from gpu_scheduler.cli.installation import read_installation
    from gpu_scheduler.cli.snapshot import take_snapshot
    from gpu_scheduler.cli.views import node_view

    async with reached(options) as api:
        installation = await read_installation(api, options.system_namespace)
        seen = await take_snapshot(api, installation.policy)
    return [node_view(states, seen.devices.get(states.node.name, {})) for states in seen.racks]


def _print(listing: Listing, options: Options, nothing: str) -> int:
    """Print what was found; for people also that nothing was."""
    from gpu_scheduler.cli.output import render

    sys.stdout.write(render(listing, options))
    if not listing.items and options.output in {Output.TABLE, Output.WIDE}:
        print(nothing, file=sys.stderr)  # noqa: T201 - not part of the output
    return 0
