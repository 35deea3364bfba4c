"""The option `--watch` of the verbs that list: the table, then a row for each object that changes."""

from __future__ import annotations

import gc
import sys
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gpu_scheduler.cli.cluster import namespace_of, reached
from gpu_scheduler.cli.options import Output, RefusedInputError, warn
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.kube.timestamps import time_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpu_scheduler.cli.options import Options
    from gpu_scheduler.cli.output import Listing
    from gpu_scheduler.cli.snapshot import Selectors
    from gpu_scheduler.cli.verbs.watch import Show
    from gpu_scheduler.cli.verbs.watch_state import ClusterFacts, Key

View = dict[str, Any]


@immutable
class Followed:
    """What a verb lists: its items by key, as a listing, and the fields of an item that has been deleted."""

    items: Callable[[Mapping[Key, View]], Mapping[Key, View]]
    listing: Callable[[Sequence[View]], Listing]
    gone: View


async def follow_nodes(options: Options, chosen: Selectors, followed: Followed) -> int:
    """Print the chosen nodes, or what `followed` takes from them, and then each change until Ctrl-C."""
    from gpu_scheduler.cli.installation import read_installation
    from gpu_scheduler.cli.snapshot import take_snapshot
    from gpu_scheduler.cli.verbs.watch import show_changes, watches_of
    from gpu_scheduler.cli.verbs.watch_state import WatchState
    from gpu_scheduler.process.lifecycle import stop_on_signals

    show = _printer(options, followed)
    gc.enable()
    ended = stop_on_signals()
    async with reached(options) as api:
        installation = await read_installation(api, options.system_namespace)
        # The snapshot fails at once if a list is refused; the watches would retry for ever.
        snapshot = await take_snapshot(api, installation.policy, chosen)
        warn((installation.unread.deployment, *snapshot.objects.unread))
        state = WatchState(installation, no_leases=snapshot.objects.no_leases)
        plugins = bool(snapshot.nodes.advertising)
        watches = watches_of(api, state, installation.policy, plugins=plugins, chosen=chosen)
        return await show_changes(state, watches, nullcontext(show), ended)


async def follow_workloads(options: Options, chosen: Selectors, followed: Followed) -> int:
    """Print the chosen pods and GPUWorkloads, and then each change until Ctrl-C."""
    from gpu_scheduler.cli.installation import read_installation
    from gpu_scheduler.cli.snapshot import pods_of
    from gpu_scheduler.cli.verbs.watch import show_changes, workload_watches_of
    from gpu_scheduler.cli.verbs.watch_state import WatchState
    from gpu_scheduler.process.lifecycle import stop_on_signals

    show = _printer(options, followed)
    gc.enable()
    ended = stop_on_signals()
    async with reached(options) as api:
        namespace = namespace_of(options, api)
        installation = await read_installation(api, options.system_namespace)
        name = installation.policy.scheduler_name
        # This list fails at once if it is refused; the watches would retry for ever.
        await pods_of(api, name, namespace, chosen)
        no_workloads = "GPUWorkloads are not watched: the API server selects only pods by fields" * bool(chosen.fields)
        warn((installation.unread.deployment, installation.unread.strategy, no_workloads))
        state = WatchState(installation)
        watches = workload_watches_of(api, state, name, namespace, chosen)
        return await show_changes(state, watches, nullcontext(show), ended)


def _printer(options: Options, followed: Followed) -> Show:
    """Return the function that prints what has changed. RefusedInputError for an output that has an end."""
    from gpu_scheduler.cli.output import as_json, item_of, on_terminal
    from gpu_scheduler.cli.verbs.watch_state import changes
    from gpu_scheduler.core.text import printable

    if options.output not in {Output.TABLE, Output.WIDE, Output.JSON, Output.NAME} or options.sort_by:
        raise RefusedInputError(
            "cannot watch a list that has an end: the output must be one of table, wide, json, name, without --sort-by "
            "(example: gpu-scheduler nodes --watch)"
        )
    before: Mapping[Key, View] = {}
    headers = not options.no_headers
    widths: dict[str, int] = {}

    def show(view: Mapping[Key, View], _: ClusterFacts) -> None:
        nonlocal before, headers
        after = followed.items(view)
        events = list(changes(before, after))
        before = after
        items = [{**item, **followed.gone} if change == "DELETED" else item for change, _key, item in events]
        listing = followed.listing(items)
        if options.output is Output.JSON:
            now = time_of(datetime.now(UTC))
            for change, _key, item in events:
                sys.stdout.write(as_json({"type": change, "time": now, "object": item_of(listing.kind, item)}) + "\n")
        elif options.output is Output.NAME:
            sys.stdout.writelines(f"{printable(listing.name(item))}\n" for item in items if listing.name is not None)
        else:
            table = listing.wide if options.output is Output.WIDE else listing.table
            sys.stdout.write(on_terminal(table, replace(options, no_headers=not headers), widths))
            headers = headers and not items
        sys.stdout.flush()

    return show
