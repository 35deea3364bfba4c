"""The verbs that take GPUs out of service and put them back: cordon, uncordon, drain."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING

import click

from gpu_scheduler.cli import live_names
from gpu_scheduler.cli.cluster import reached
from gpu_scheduler.cli.options import FAILED, FailedError, Output, RefusedInputError, print_message, warn
from gpu_scheduler.core.text import printable, quote
from gpu_scheduler.kube.timestamps import time_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_scheduler.cli.cordoning.targets import Target
    from gpu_scheduler.cli.options import Options
    from gpu_scheduler.core.nodes.cordons import Cordon, NodeCordons
    from gpu_scheduler.core.nodes.nodes import Node
    from gpu_scheduler.core.refs import PodRef
    from gpu_scheduler.kube.http.client import ApiClient

_target = click.argument(
    "target", metavar="NODE[:DEVICE,…]", help="A node, or GPUs of it.", shell_complete=live_names.nodes
)
_until = click.option("--until", metavar="WHEN", help="When the cordon ends by itself: a time, or a duration from now.")
_confirmed_within = click.option(
    "--timeout", "at_most", metavar="DURATION", help="How long to wait for the scheduler's confirmation."
)
_dry_run = click.option(
    "--dry-run", type=click.Choice(("none", "server")), help="server: the API server checks, and stores nothing."
)


@_target
@click.option("--reason", required=True, metavar="TEXT", help="Why: whoever waits for the GPU reads it.")
@_until
@_confirmed_within
@_dry_run
async def cordon(  # noqa: PLR0913 - its options
    options: Options, target: str, *, reason: str, until: str | None = None, at_most: str = "30s", dry_run: str = "none"
) -> int:
    """Take GPUs out of service: no new pod gets them. Pods that hold them go on; drain moves those.

    The cordon is kept over restarts, and when the node is made anew. When the command ends, no bind to these GPUs can
    come any more: exit code 1 if the scheduler has not confirmed that in time.
    """
    from gpu_scheduler.cli.cordoning.targets import read_reason, read_target, read_until
    from gpu_scheduler.cli.options import read_duration

    meant = read_target(target, "cordon")
    why, ends, seconds = (
        read_reason(reason),
        read_until(until or "", datetime.now(UTC)),
        read_duration(at_most, "--timeout"),
    )
    trial = dry_run == "server"
    async with reached(options) as api:
        node, made, written = await _cordoned(api, meant, why, ends, dry_run=trial)
        if not trial:
            await _confirmed(api, written, seconds)
    _print(node.name, made, "cordoned", options, trial=trial)
    return 0


@_target
@_confirmed_within
@_dry_run
async def uncordon(options: Options, target: str, *, at_most: str = "30s", dry_run: str = "none") -> int:
    """Put GPUs back into service.

    A node alone means the cordon of the whole node: GPUs that are cordoned one by one stay so.
    """
    from gpu_scheduler.cli.cordoning.gpu_nodes import change_cordons, find_node, read_cordons
    from gpu_scheduler.cli.cordoning.targets import read_target, split
    from gpu_scheduler.cli.options import read_duration

    meant, seconds, trial = read_target(target, "uncordon"), read_duration(at_most, "--timeout"), dry_run == "server"
    async with reached(options) as api:
        # The node may be gone: its cordons are kept then.
        node = await find_node(api, meant.node)
        name, inventory = (meant.node, None) if node is None else (node.name, node.inventory)
        before = await read_cordons(api, name)
        if before is None and node is None:
            raise _no_node(meant, "uncordon")
        removed, left = split(() if before is None else before.cordons, meant, inventory)
        if removed:
            written = await change_cordons(
                api, name, lambda cordons: split(cordons, meant, inventory)[1], dry_run=trial
            )
            if not trial:
                await _confirmed(api, written, seconds)
    _print(name, removed, "uncordoned", options, trial=trial)
    if not removed:
        print_message(f"Nothing to do: {meant} is not cordoned")
    for each in left:
        print_message(f"Still cordoned on {name}: {_shown(each)} {each.by_whom}")
    return 0


@_target
@click.option("--reason", metavar="TEXT", help="Why; not needed where the GPUs are cordoned already.")
@_until
@click.option("--force", is_flag=True, help="Evict pods too that no controller makes anew.")
@click.option("--timeout", "at_most", metavar="DURATION", help="How long to wait until all pods are gone.")
@_dry_run
async def drain(  # noqa: PLR0913 - its options
    options: Options,
    target: str,
    *,
    reason: str | None = None,
    until: str | None = None,
    force: bool = False,
    at_most: str = "10m",
    dry_run: str = "none",
) -> int:
    """Cordon GPUs, and evict the pods that use them: who they are is printed first, with where each comes back.

    Evictions go through the API, so disruption budgets are kept. Exit code 1 if a pod is still there in the end.
    """
    from gpu_scheduler.cli.cordoning.drained import drain_listing, drain_view, plan_drain
    from gpu_scheduler.cli.cordoning.targets import read_reason, read_target, read_until
    from gpu_scheduler.cli.options import read_duration
    from gpu_scheduler.cli.output import render

    meant, trial = read_target(target, "drain"), dry_run == "server"
    why = read_reason(reason) if reason else ""
    ends, seconds = read_until(until or "", datetime.now(UTC)), read_duration(at_most, "--timeout")
    async with reached(options) as api:
        node, cordons, written = await _cordoned(api, meant, why, ends, dry_run=trial)
        planned, unknown, unread = await plan_drain(api, options.system_namespace, node, cordons)
        views = [drain_view(*each) for each in planned]
        lost = [each["name"] for each in views if each["outcome"] == "lost"]
        sys.stdout.write(render(drain_listing(views), options))
        sys.stdout.flush()
        warn(unread)
        if unknown:
            warn([_unknown(node, len(unknown))])
        if trial:
            return 0
        await _confirmed(api, written, seconds)
        if lost and not force:
            raise FailedError(
                f"cannot evict {', '.join(map(quote, lost))}: no controller makes them anew; the GPUs are cordoned, "
                f"and nothing is evicted (example: gpu-scheduler drain {meant} --force)"
            )
        stayed = await _evict_all(api, [pod.ref for pod, _ in planned], seconds)
    for each in stayed:
        print_message(f"{each} is still there after {seconds:g} s; see what keeps it (example: kubectl describe pod)")
    if not views:
        print_message(f"No pod uses the cordoned GPUs of {node.name}")
    return FAILED if stayed else 0


async def _cordoned(
    api: ApiClient, meant: Target, reason: str, until: str, *, dry_run: bool
) -> tuple[Node, tuple[Cordon, ...], NodeCordons | None]:
    """Write the cordons; return the node, its cordons that `meant` means, and the GPUNode after the write.

    Without a reason the devices must be cordoned already.
    """
    from gpu_scheduler.cli.cordoning.gpu_nodes import change_cordons, find_node, read_cordons, read_user
    from gpu_scheduler.cli.cordoning.targets import cordons_of, split
    from gpu_scheduler.core.nodes.cordons import ALL_DEVICES, Cordon

    node = await find_node(api, meant.node)
    if node is None:
        raise _no_node(meant, "cordon")
    if not reason:
        found = await read_cordons(api, node.name)
        there, _ = split(() if found is None else found.cordons, meant, node.inventory)
        if not there:
            raise RefusedInputError(
                f"cannot drain {quote(str(meant))}: it is not cordoned yet, so --reason must say why "
                f'(example: gpu-scheduler drain {meant} --reason "Xid 79, ticket 4711")'
            )
        return node, tuple(there), found
    since = time_of(datetime.now(UTC))
    whole = Cordon(ALL_DEVICES, None, reason, await read_user(api), since, until)
    made = cordons_of(meant, node, whole)

    def change(cordons: tuple[Cordon, ...]) -> Sequence[Cordon]:
        _, others = split(cordons, meant, node.inventory)
        return [*others, *made]

    return node, made, await change_cordons(api, node.name, change, dry_run=dry_run)


async def _confirmed(api: ApiClient, written: NodeCordons | None, seconds: float) -> None:
    from gpu_scheduler.cli.cordoning.gpu_nodes import wait_confirmed

    if written is not None and written.unconfirmed:
        await wait_confirmed(api, written, seconds)


async def _evict_all(api: ApiClient, pods: Sequence[PodRef], seconds: float) -> list[str]:
    """Evict the pods, all at once. Return those that are still there at the end."""
    import asyncio

    from gpu_scheduler.cli.cordoning.eviction import evict

    left = set(map(str, pods))

    async def one(pod: PodRef) -> None:
        await evict(api, pod, print_message)
        left.discard(str(pod))
        print_message(f"{pod} is gone")

    tasks = [asyncio.create_task(one(pod)) for pod in pods]
    try:
        async with asyncio.timeout(seconds):
            await asyncio.gather(*tasks)
    except TimeoutError:
        return sorted(left)
    finally:
        for task in tasks:
            task.cancel()
    return []


def _unknown(node: Node, pods: int) -> str:
    return (
        f"nobody knows which GPUs of {node.name} the device plugin gave to {pods} of its pods: they are left alone; "
        f"drain the whole node to move them (example: gpu-scheduler drain {node.name})"
    )


def _no_node(meant: Target, verb: str) -> RefusedInputError:
    return RefusedInputError(
        f"cannot {verb} {quote(str(meant))}: no node, or more than one, has the name or the label gpu-node-name "
        f"{quote(meant.node)}; name one (example: kubectl get nodes -L gpu-node-name)"
    )


def _shown(cordon: Cordon) -> str:
    from gpu_scheduler.core.nodes.cordons import ALL_DEVICES

    if cordon.device == ALL_DEVICES:
        return "all GPUs"
    number = "" if cordon.index is None or cordon.device == str(cordon.index) else f" (index {cordon.index})"
    return f"GPU {cordon.device}{number}"


def _print(node: str, cordons: Sequence[Cordon], word: str, options: Options, *, trial: bool) -> None:
    from gpu_scheduler.cli.output import Column, Listing, PrintedTable, render

    items = [
        {
            "node": node,
            "device": each.device,
            "index": each.index,
            "reason": each.reason,
            "by": each.by,
            "since": each.since,
            "until": each.until or None,
            "result": word,
        }
        for each in cordons
    ]
    if options.output is Output.TABLE:
        server = " (server dry run)" if trial else ""
        lines = (f"gpunode.agentaflow.io/{node} {word}: {_shown(each)}{server}" for each in cordons)
        sys.stdout.writelines(f"{printable(line)}\n" for line in lines)
        return
    shown = ("node", "device", "reason", "by", "since", "until", "result")
    columns = tuple(Column(name.upper(), itemgetter(name)) for name in shown)
    table = PrintedTable(columns, items)
    listing = Listing("Cordon", items, table, table, lambda item: f"gpunode.agentaflow.io/{item['node']}")
    sys.stdout.write(render(listing, options))
