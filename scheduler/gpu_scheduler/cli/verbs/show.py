"""The verbs that only read: status, nodes, workloads, health."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from gpu_scheduler.cli import live_names
from gpu_scheduler.cli.cluster import namespace_of, reached
from gpu_scheduler.cli.options import FAILED, FailedError, Output, RefusedInputError, print_message, warn
from gpu_scheduler.core.text import natural, quote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpu_scheduler.cli.options import Options
    from gpu_scheduler.cli.output import Listing, View
    from gpu_scheduler.cli.snapshot import Selectors
    from gpu_scheduler.cli.verbs.watch_state import Key
    from gpu_scheduler.controller.objects import GpuWorkloadObject
    from gpu_scheduler.kube.http.client import ApiClient

_NOT_FOUND: Final = 404

_node_names = click.argument(
    "names", nargs=-1, metavar="[NODE]...", help="Only these, by name or alias.", shell_complete=live_names.nodes
)


async def status(options: Options) -> int:
    """Show GPUs, workloads, strategy and leader.

    Also a grid of nodes and devices with their holders, limits of namespaces, conflicts, monitors whose Leases have
    expired, and the whole message of each pod that waits.

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
            leases_read=not snapshot.objects.no_leases,
        )
        if options.namespace and not view["workloads"]["pending"] + view["workloads"]["running"]:
            await check_namespace(api, options.namespace)
    if options.output in {Output.TABLE, Output.WIDE}:
        text = status_screen(view, now, options)
    else:
        text = output.render(status_listing(view), options)
    sys.stdout.write(text)
    missing = installation.unread
    unread = (missing.deployment, missing.strategy, missing.limits, *snapshot.objects.unread)
    warn(unread)
    return FAILED if leader is None or view["conflicts"] or any(unread) else 0


@_node_names
async def nodes(options: Options, names: Sequence[str] = ()) -> int:
    """List nodes and their GPUs.

    Each row says why the next pod cannot have some of the GPUs. With -o wide, one row for each GPU, with the pods that
    hold it. Nodes have no namespace: -n changes nothing.
    """
    from gpu_scheduler.cli.columns import nodes_listing

    if options.watch:
        return await _follow_nodes(options, names, devices=False)
    items, _, missing = await _nodes(options, names)
    return _print(nodes_listing(items, datetime.now(UTC)), options, "No nodes found", missing)


@click.argument("names", nargs=-1, metavar="[NAME]...", help="Only these.", shell_complete=live_names.workloads)
async def workloads(options: Options, names: Sequence[str] = ()) -> int:
    """List our pods and GPUWorkloads, and controllers whose pods are refused.

    Where they run and with which GPUs, or why they wait. With -o wide also the whole message, since when, and whether a
    pod is an observer.
    """
    import asyncio

    from gpu_scheduler.cli.columns import workloads_listing
    from gpu_scheduler.cli.installation import read_installation
    from gpu_scheduler.cli.refused_workloads import refused_workloads
    from gpu_scheduler.cli.snapshot import ALL, pods_of
    from gpu_scheduler.cli.views import pod_view, workload_view

    chosen = _selection(options, names)
    if options.watch:
        return await _follow_workloads(options, names)
    async with reached(options) as api:
        namespace = namespace_of(options, api)
        installation = await read_installation(api, options.system_namespace)
        pods, (gpu_workloads, left_out) = await asyncio.gather(
            pods_of(api, installation.policy.scheduler_name, namespace, chosen), _gpu_workloads(api, namespace, chosen)
        )
        # Controllers are not what a selector of pods means.
        refused, unlisted = (
            await refused_workloads(api, installation.policy.scheduler_name, namespace) if chosen == ALL else ([], "")
        )
        if not pods and not gpu_workloads and not refused and namespace is not None:
            await check_namespace(api, namespace)
    items = [
        *(workload_view(each, installation.strategy) for each in gpu_workloads),
        *(pod_view(each, installation.strategy) for each in pods),
        *refused,
    ]
    warn((installation.unread.deployment, installation.unread.strategy, left_out, unlisted))
    items.sort(key=lambda item: (item["namespace"], item["objectKind"], natural(item["name"])))
    where = f"in {namespace or 'any namespace'}"
    items, missing = _named(items, names, workload_names, f"workload {where}", "workloads")
    listing = workloads_listing(items, namespaces=namespace is None, now=datetime.now(UTC))
    return _print(listing, options, f"No workloads found {where}", missing)


@_node_names
async def health(options: Options, names: Sequence[str] = ()) -> int:
    """List the GPUs that monitors read, and what is wrong with them.

    Exit code 1 if one is not healthy, its monitor's Lease has expired, or the Leases may not be listed.
    """
    from gpu_scheduler.cli.columns import health_listing

    if options.watch:
        return await _follow_nodes(options, names, devices=True)
    items, leases_read, missing = await _nodes(options, names)
    devices = [device for node in items for device in node["cards"] if device["health"] is not None]
    code = _print(health_listing(devices), options, "No GPUs found that a monitor reads", missing)
    bad = any(device["health"] != "healthy" or device["stale"] for device in devices)
    return FAILED if bad or not leases_read else code


async def _follow_nodes(options: Options, names: Sequence[str], *, devices: bool) -> int:
    """Print nodes, or devices that monitors read, and then each change."""
    from gpu_scheduler.cli.columns import health_listing, nodes_listing
    from gpu_scheduler.cli.verbs.follow import Followed, follow_nodes
    from gpu_scheduler.cli.verbs.watch_state import NODE

    def items(view: Mapping[Key, View]) -> Mapping[Key, View]:
        chosen = {
            key: node for key, node in view.items() if key[0] == NODE and (not names or node_names(node) & set(names))
        }
        if not devices:
            return chosen
        read = (each for node in chosen.values() for each in node["cards"] if each["health"] is not None)
        return {(NODE, each["node"], each["device"]): each for each in read}

    followed = (
        Followed(items, health_listing, {"health": "Deleted"})
        if devices
        else Followed(items, lambda found: nodes_listing(found, datetime.now(UTC)), {"ready": None})
    )
    return await follow_nodes(options, _selection(options, names), followed)


async def _follow_workloads(options: Options, names: Sequence[str]) -> int:
    """Print pods and GPUWorkloads, and then each change."""
    from gpu_scheduler.cli.columns import workloads_listing
    from gpu_scheduler.cli.verbs.follow import Followed, follow_workloads
    from gpu_scheduler.cli.verbs.watch_state import NODE

    def items(view: Mapping[Key, View]) -> Mapping[Key, View]:
        return {
            key: item
            for key, item in view.items()
            if key[0] != NODE and (not names or workload_names(item) & set(names))
        }

    followed = Followed(
        items,
        lambda found: workloads_listing(found, namespaces=options.all_namespaces, now=datetime.now(UTC)),
        {"phase": "Deleted"},
    )
    return await follow_workloads(options, _selection(options, names), followed)


async def _gpu_workloads(
    api: ApiClient, namespace: str | None, chosen: Selectors
) -> tuple[list[GpuWorkloadObject], str]:
    """List the GPUWorkloads. If the API server cannot select them by these fields, return none, and a sentence."""
    from gpu_scheduler.cli.snapshot import workloads_of
    from gpu_scheduler.kube.lists import UnlistedError

    try:
        return await workloads_of(api, namespace, chosen), ""
    except UnlistedError as error:
        if not (error.invalid and chosen.fields):
            raise
        return [], f"GPUWorkloads are not listed: {error}"


async def check_namespace(api: ApiClient, namespace: str) -> None:
    """Check that the namespace exists, as far as the user may know. FailedError if it does not."""
    from gpu_scheduler.kube.http.client import segment

    answer = await api.call("GET", f"/api/v1/namespaces/{segment(namespace)}")
    if answer.status == _NOT_FOUND:
        raise FailedError(
            f"cannot list workloads of namespace {quote(namespace)}: there is no such namespace; "
            "name one that exists (example: kubectl get namespaces)"
        )


def _selection(options: Options, names: Sequence[str]) -> Selectors:
    """Return what the options select. RefusedInputError if there are names too, as of kubectl."""
    from gpu_scheduler.cli.snapshot import Selectors

    if names and (options.selector or options.field_selector):
        raise RefusedInputError(
            f"cannot list {quote(names[0])} by name and by a selector; leave one of them out (example: -l app=train)"
        )
    return Selectors(options.selector, options.field_selector)


def _named(
    items: list[View], names: Sequence[str], names_of: Callable[[View], set[str]], what: str, command: str
) -> tuple[list[View], list[str]]:
    """Return the items with these names, or all if there are no names, and a sentence for each name of no item."""
    if not names:
        return items, []
    known: set[str] = set().union(*map(names_of, items))
    missing = [
        f"cannot find {quote(name)}: there is no such {what}; list them all (example: gpu-scheduler {command})"
        for name in names
        if name not in known
    ]
    return [item for item in items if names_of(item) & set(names)], missing


def node_names(node: View) -> set[str]:
    """Return the words that mean this node: name, alias, and as `-o name` prints it."""
    return {node["name"], f"node/{node['name']}", node["alias"] or node["name"]}


def workload_names(item: View) -> set[str]:
    """Return the words that mean this workload, with and without its kind."""
    from gpu_scheduler.cli.columns import workload_name

    return {item["name"], f"{item['objectKind'].lower()}/{item['name']}", workload_name(item)}


async def _nodes(options: Options, names: Sequence[str]) -> tuple[list[View], bool, list[str]]:
    """Return the nodes, whether the monitors' Leases could be listed, and a sentence for each name of no node.

    Print what the user may not read.
    """
    from gpu_scheduler.cli.installation import read_installation
    from gpu_scheduler.cli.snapshot import take_snapshot
    from gpu_scheduler.cli.views import node_views

    chosen = _selection(options, names)
    async with reached(options) as api:
        installation = await read_installation(api, options.system_namespace)
        snapshot = await take_snapshot(api, installation.policy, chosen)
    warn((installation.unread.deployment, *snapshot.objects.unread))
    items, missing = _named(node_views(snapshot), names, node_names, "node", "nodes")
    return items, not snapshot.objects.no_leases, missing


def _print(listing: Listing, options: Options, nothing: str, missing: Sequence[str] = ()) -> int:
    """Print the listing, and what is missing on standard error. If a table is empty, print `nothing` there.

    Return exit code 1 if something is missing.
    """
    from gpu_scheduler.cli.output import render

    sys.stdout.write(render(listing, options))
    for sentence in missing:
        print_message(sentence)
    if not listing.items and not missing and options.output in {Output.TABLE, Output.WIDE}:
        print_message(nothing)
    return FAILED if missing else 0
