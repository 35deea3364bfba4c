"""The verb `watch`: a live screen on a terminal, a line for each change on a pipe."""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler.cli.cluster import reached
from gpu_scheduler.cli.options import Options, Output, RefusedInputError, warn
from gpu_scheduler.kube.timestamps import time_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Iterator, Mapping
    from contextlib import AbstractContextManager

    from gpu_scheduler.cli.snapshot import ListedNode, Selectors
    from gpu_scheduler.cli.verbs.watch_state import ClusterFacts, Key, View, WatchState
    from gpu_scheduler.controller.objects import GpuWorkloadObject
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.core.policy import Policy
    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.process.reflectors import Reflectors

    Show = Callable[[Mapping[Key, View], ClusterFacts], None]

# Changes within this time are shown together.
_BATCH_SECONDS: Final = 0.2
# How often the Leases of monitors are checked for expiry, which no watch event reports.
_TICK_SECONDS: Final = 1.0
# How often leader and strategy are read for the screen.
_READ_SECONDS: Final = 5.0
_IDLE: Final = 90.0


async def watch(options: Options) -> int:
    """Watch GPUs and workloads.

    A screen to scroll on a terminal; a line for each change on a pipe, or with -o json an object. q or Ctrl-C ends it.
    """
    from gpu_scheduler.cli.installation import read_installation
    from gpu_scheduler.cli.snapshot import take_snapshot
    from gpu_scheduler.cli.verbs.watch_state import WatchState
    from gpu_scheduler.process.lifecycle import stop_on_signals

    if options.output not in {Output.TABLE, Output.WIDE, Output.JSON}:
        raise RefusedInputError(
            f'cannot watch as "{options.output}": it must be one of table, wide, json '
            "(example: gpu-scheduler watch -o json)"
        )
    gc.enable()
    ended = stop_on_signals()
    async with reached(options) as api:
        installation = await read_installation(api, options.system_namespace)
        # The snapshot fails at once if a list is forbidden; the watches would retry for ever.
        snapshot = await take_snapshot(api, installation.policy)
        warn((installation.unread.deployment, installation.unread.strategy, *snapshot.objects.unread))
        state = WatchState(installation, options.namespace, no_leases=snapshot.objects.no_leases)
        plugins = bool(snapshot.nodes.advertising)
        watches = watches_of(api, state, installation.policy, plugins=plugins)
        cluster = _read_cluster(api, state, options.system_namespace)
        return await show_changes(state, watches, _showing(options, ended), ended, cluster)


async def show_changes(
    state: WatchState,
    watches: Reflectors,
    showing: AbstractContextManager[Show],
    ended: asyncio.Event,
    *more: Coroutine[Any, Any, Any],
) -> int:
    """Run the watches and show each state until `ended` is set, or the reader of the output is gone; return 0.

    `more` runs beside them.
    """
    import asyncio

    from gpu_scheduler.process.lifecycle import cancel

    parts: list[Coroutine[Any, Any, Any]] = [ended.wait(), *more, *watches.parts().values()]
    tasks = {asyncio.create_task(part) for part in parts}
    try:
        with showing as show:
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
    import asyncio

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
            show(state.view(), state.facts)


async def _read_cluster(api: ApiClient, state: WatchState, namespace: str) -> None:
    """Read leader and strategy again and again; never returns. What cannot be read is unknown."""
    import asyncio

    from gpu_scheduler.cli.columns import leader_text
    from gpu_scheduler.cli.installation import read_installation, read_leader
    from gpu_scheduler.cli.views import leader_view
    from gpu_scheduler.kube.http.client import NoResponseError
    from gpu_scheduler.kube.lists import UnlistedError

    while True:
        now = datetime.now(UTC)
        with suppress(NoResponseError):
            installation = await read_installation(api, namespace)
            try:
                leader = leader_text(leader_view(await read_leader(api, namespace, now)), now)
            except UnlistedError:
                leader = "unknown"
            state.set_cluster(installation, leader)
        await asyncio.sleep(_READ_SECONDS)


def watches_of(
    api: ApiClient, state: WatchState, policy: Policy, *, plugins: bool, chosen: Selectors | None = None
) -> Reflectors:
    """Create the watches of the chosen nodes, and of what holds their devices.

    `plugins`: watch pods of other schedulers too, because a node has a GPU device plugin.
    """
    from gpu_scheduler.cli.published import CLAIMS, SLICES
    from gpu_scheduler.cli.snapshot import ALL, LEASES, others, read_node
    from gpu_scheduler.kube.objects.agentaflow import API
    from gpu_scheduler.kube.objects.allocated_claims import read_allocated_claim
    from gpu_scheduler.kube.objects.cordons import read_node_cordons
    from gpu_scheduler.kube.objects.leases import read_monitor_lease
    from gpu_scheduler.kube.objects.pods import read_foreign_pod
    from gpu_scheduler.kube.objects.resource_slices import read_slice
    from gpu_scheduler.kube.resource import DENIED_OR_NOT_SERVED, ReflectorTimings, Resource
    from gpu_scheduler.process.reflectors import Reflectors, by_name, by_uid

    def node(raw: Any) -> tuple[str, ListedNode]:
        listed = read_node(raw)
        return listed.node.name, listed

    nodes = chosen or ALL
    ours, foreign = f"spec.schedulerName={policy.scheduler_name}", others(policy.scheduler_name)
    watches = Reflectors(api, ReflectorTimings(idle_limit=_IDLE))
    watches.watch(
        Resource("nodes", "/api/v1/nodes", nodes.fields, node, by_name, label_selector=nodes.labels),
        state.nodes.handler,
    )
    watches.watch(Resource("pods", "/api/v1/pods", ours, _pod, by_uid), state.pods.handler)
    watches.watch(
        Resource("leases", LEASES, None, read_monitor_lease, by_name, empty_if=DENIED_OR_NOT_SERVED), state.monitors
    )
    watches.watch(
        Resource("gpunodes", f"{API}/gpunodes", None, read_node_cordons, by_name, empty_if=DENIED_OR_NOT_SERVED),
        state.cordons,
    )
    if plugins:
        foreign_pods = Resource("foreign_pods", "/api/v1/pods", foreign, read_foreign_pod, by_uid)
        watches.watch(foreign_pods, state.foreign_pods.handler)
    if policy.reads_claims:
        unless = DENIED_OR_NOT_SERVED
        slices = Resource("resourceslices", SLICES, None, read_slice, by_name, empty_if=unless)
        claims = Resource("resourceclaims", CLAIMS, None, read_allocated_claim, by_uid, empty_if=unless)
        watches.watch(slices, state.slices.handler)
        watches.watch(claims, state.claims.handler)
    return watches


def workload_watches_of(
    api: ApiClient, state: WatchState, scheduler_name: str, namespace: str | None, chosen: Selectors
) -> Reflectors:
    """Create the watches of the chosen pods and GPUWorkloads; of pods only if they are chosen by fields."""
    from gpu_scheduler.cli.snapshot import read_workload
    from gpu_scheduler.kube.http.client import segment
    from gpu_scheduler.kube.objects.agentaflow import API
    from gpu_scheduler.kube.resource import DENIED_OR_NOT_SERVED, ReflectorTimings, Resource
    from gpu_scheduler.process.reflectors import Reflectors, by_uid

    def workload(raw: Any) -> tuple[str, GpuWorkloadObject]:
        read = read_workload(raw)
        return read.metadata.uid or "", read

    part = f"/namespaces/{segment(namespace)}" if namespace else ""
    fields = ",".join(filter(None, (f"spec.schedulerName={scheduler_name}", chosen.fields)))
    watches = Reflectors(api, ReflectorTimings(idle_limit=_IDLE))
    pods = Resource("pods", f"/api/v1{part}/pods", fields, _pod, by_uid, label_selector=chosen.labels)
    watches.watch(pods, state.pods.handler)
    if not chosen.fields:
        kinds = Resource(
            "gpuworkloads",
            f"{API}{part}/gpuworkloads",
            None,
            workload,
            by_uid,
            empty_if=DENIED_OR_NOT_SERVED,
            label_selector=chosen.labels,
        )
        watches.watch(kinds, state.workloads.handler)
    return watches


def _pod(raw: Any) -> tuple[str, Pod]:
    from gpu_scheduler.cli.snapshot import read_pod

    pod = read_pod(raw)
    return pod.ref.uid, pod


@contextmanager
def _showing(options: Options, ended: asyncio.Event) -> Iterator[Show]:
    """Yield the function that shows a view: as lines on a pipe or for JSON, else on a live screen.

    The screen sets `ended` when the user ends it.
    """
    if options.output is Output.JSON or not sys.stdout.isatty():
        yield _printer(as_json=options.output is Output.JSON)
        return
    import asyncio

    from gpu_scheduler.cli.verbs.watch_screen import live_screen

    with live_screen(ended, wide=options.output is Output.WIDE) as screen:
        on_resize = asyncio.get_running_loop().add_signal_handler
        for number in (signal.SIGWINCH, signal.SIGCONT):
            on_resize(number, screen.draw)
        yield screen.show


def _printer(*, as_json: bool) -> Show:
    """Return a function that prints one line per change, with its time; with `as_json`, one JSON object per line."""
    from gpu_scheduler.cli.output import as_json as json_of
    from gpu_scheduler.cli.output import item_of
    from gpu_scheduler.cli.verbs.watch_state import changes, line_of

    before: Mapping[Key, View] = {}
    printed: dict[Key, str] = {}

    def show(after: Mapping[Key, View], _: ClusterFacts) -> None:
        nonlocal before
        now = time_of(datetime.now(UTC))
        for change, key, view in changes(before, after):
            event = {"type": change, "time": now, "object": item_of(key[0], view)}
            line = line_of(change, key, view)
            if as_json or printed.get(key) != line:
                sys.stdout.write(f"{json_of(event) if as_json else f'{now}  {line}'}\n")
            printed[key] = line
        sys.stdout.flush()
        before = after

    return show
