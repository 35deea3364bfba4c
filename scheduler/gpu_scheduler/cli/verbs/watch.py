"""The verb `watch`: a live screen on a terminal, a line for each change on a pipe."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler.cli.cluster import reached
from gpu_scheduler.cli.options import Options, Output, RefusedInputError, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gpu_scheduler.cli.snapshot import ListedNode, ListedPod
    from gpu_scheduler.cli.verbs.watch_state import Key, View, WatchState
    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.process.reflectors import Reflectors

    Show = Callable[[Mapping[Key, View]], None]

# Changes within this time are shown together.
_BATCH_SECONDS: Final = 0.2
# How often the Leases of monitors are checked for expiry, which no watch event reports.
_TICK_SECONDS: Final = 1.0
_IDLE: Final = 90.0


async def watch(options: Options) -> int:
    """Watch GPUs and workloads.

    A live screen on a terminal; a line for each change on a pipe, or with -o json an object. Ctrl-C ends it.
    """
    from gpu_scheduler.cli.installation import read_installation
    from gpu_scheduler.cli.snapshot import take_snapshot
    from gpu_scheduler.cli.verbs.watch_state import WatchState
    from gpu_scheduler.process.lifecycle import cancel, stop_on_signals

    if options.output in {Output.YAML, Output.NAME}:
        raise RefusedInputError(
            f'cannot watch as "{options.output}": it must be one of table, wide, json '
            "(example: gpu-scheduler watch -o json)"
        )
    gc.enable()
    stop = asyncio.create_task(stop_on_signals().wait())
    async with reached(options) as api:
        installation = await read_installation(api, options.system_namespace)
        # The snapshot fails at once if a list is forbidden; the watches would retry for ever.
        snapshot = await take_snapshot(api, installation.policy)
        warn((installation.unread.deployment, installation.unread.strategy, snapshot.unread))
        state = WatchState(installation, options.namespace, leases_read=not snapshot.unread)
        watches = _watches(api, state, installation.policy.scheduler_name, plugins=bool(snapshot.nodes.advertising))
        tasks: set[asyncio.Task[Any]] = {stop, *(asyncio.create_task(part) for part in watches.parts().values())}
        try:
            with _showing(options) as show:
                tasks.add(asyncio.create_task(_follow(state, watches, show)))
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        except BrokenPipeError:
            # The reader of the pipe has closed it. Discard the buffered output, so that its flush at exit cannot fail.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        finally:
            await cancel(tasks)
    return 0


async def _follow(state: WatchState, watches: Reflectors, show: Show) -> None:
    """Show the state when all resources have been listed, and then each time it changes; never returns."""
    while True:
        try:
            async with asyncio.timeout(_TICK_SECONDS):
                await state.changed.wait()
        except TimeoutError:
            state.tick()
            continue
        await asyncio.sleep(_BATCH_SECONDS)
        if watches.unlisted() is None:
            state.changed.clear()
            show(state.view())


def _watches(api: ApiClient, state: WatchState, scheduler_name: str, *, plugins: bool) -> Reflectors:
    """Create the watches. `plugins`: watch pods of other schedulers too, because a node has a GPU device plugin."""
    from gpu_scheduler.cli.snapshot import LEASES, others, read_node, read_pod
    from gpu_scheduler.kube.objects.leases import read_monitor_lease
    from gpu_scheduler.kube.objects.pods import read_foreign_pod
    from gpu_scheduler.kube.resource import Resource
    from gpu_scheduler.process.reflectors import Reflectors, by_name, by_uid

    def node(raw: Any) -> tuple[str, ListedNode]:
        listed = read_node(raw)
        return listed.node.name, listed

    def pod(raw: Any) -> tuple[str, ListedPod]:
        listed = read_pod(raw)
        return listed.pod.ref.uid, listed

    ours, foreign = f"spec.schedulerName={scheduler_name}", others(scheduler_name)
    watches = Reflectors(api, _IDLE)
    watches.watch(Resource("nodes", "/api/v1/nodes", None, node, by_name), state.nodes.handler)
    watches.watch(Resource("pods", "/api/v1/pods", ours, pod, by_uid), state.pods.handler)
    watches.watch(Resource("leases", LEASES, None, read_monitor_lease, by_name, optional=True), state.monitors)
    if plugins:
        foreign_pods = Resource("foreign_pods", "/api/v1/pods", foreign, read_foreign_pod, by_uid)
        watches.watch(foreign_pods, state.foreign_pods.handler)
    return watches


@contextmanager
def _showing(options: Options) -> Iterator[Show]:
    """Yield the function that shows a view: as lines on a pipe or for JSON, else on a live screen."""
    if options.output is Output.JSON or not sys.stdout.isatty():
        yield _printer(as_json=options.output is Output.JSON)
        return
    from gpu_scheduler.cli.verbs.watch_screen import live_screen

    with live_screen(wide=options.output is Output.WIDE) as show:
        yield show


def _printer(*, as_json: bool) -> Show:
    """Return a function that prints one line per change, with its time; with `as_json`, one JSON object per line."""
    from gpu_scheduler.cli.output import as_json as json_of
    from gpu_scheduler.cli.output import item_of
    from gpu_scheduler.cli.verbs.watch_state import changes, line_of

    before: Mapping[Key, View] = {}
    printed: dict[Key, str] = {}

    def show(after: Mapping[Key, View]) -> None:
        nonlocal before
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for change, key, view in changes(before, after):
            event = {"type": change, "time": now, "object": item_of(key[0], view)}
            line = line_of(change, key, view)
            if as_json or printed.get(key) != line:
                sys.stdout.write(f"{json_of(event) if as_json else f'{now}  {line}'}\n")
            printed[key] = line
        sys.stdout.flush()
        before = after

    return show
