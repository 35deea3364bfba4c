"""The verb `watch`: a live screen on a terminal, a line for each change on a pipe."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler.cli.cluster import reached
from gpu_scheduler.cli.options import Options, Output, RefusedInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gpu_scheduler.cli.snapshot import ListedNode, ListedPod
    from gpu_scheduler.cli.verbs.watch_state import Key, View, WatchState
    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.process.reflectors import Reflectors

    Show = Callable[[Mapping[Key, View]], None]

# Changes that come together are shown together.
_BREATH: Final = 0.2
# How often the clock alone is a reason to look: monitors fall silent without a word.
_TICK: Final = 1.0
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
        # What may not be listed is told now, and not tried for ever.
        first = await take_snapshot(api, installation.policy)
        scene = WatchState(installation, options.namespace)
        watches = _watches(api, scene, installation.policy.scheduler_name, plugins=bool(first.nodes.advertising))
        tasks: set[asyncio.Task[Any]] = {stop, *(asyncio.create_task(part) for part in watches.parts().values())}
        try:
            with _showing(options) as show:
                tasks.add(asyncio.create_task(_follow(scene, watches, show)))
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        except BrokenPipeError:
            # Whoever read has gone; what is buffered for him goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        finally:
            await cancel(tasks)
    return 0


async def _follow(scene: WatchState, watches: Reflectors, show: Show) -> None:
    """Show what there is once all is listed, and then whatever changes."""
    while True:
        try:
            async with asyncio.timeout(_TICK):
                await scene.changed.wait()
        except TimeoutError:
            scene.tick()
            continue
        await asyncio.sleep(_BREATH)
        if watches.unlisted() is None:
            scene.changed.clear()
            show(scene.view())


def _watches(api: ApiClient, scene: WatchState, scheduler_name: str, *, plugins: bool) -> Reflectors:
    """Others' pods are watched only where device plugins give them cards."""
    from gpu_scheduler.cli.snapshot import LEASES, others, read_node, read_pod
    from gpu_scheduler.kube.objects.leases import read_sighting
    from gpu_scheduler.kube.objects.pods import read_resident
    from gpu_scheduler.kube.resource import Resource
    from gpu_scheduler.process.reflectors import Reflectors, by_name, by_uid

    def node(raw: Any) -> tuple[str, ListedNode]:
        seen = read_node(raw)
        return seen.node.name, seen

    def pod(raw: Any) -> tuple[str, ListedPod]:
        seen = read_pod(raw)
        return seen.pod.ref.uid, seen

    ours, strangers = f"spec.schedulerName={scheduler_name}", others(scheduler_name)
    watches = Reflectors(api, _IDLE)
    watches.watch(Resource("nodes", "/api/v1/nodes", None, node, by_name), scene.nodes.handler)
    watches.watch(Resource("pods", "/api/v1/pods", ours, pod, by_uid), scene.pods.handler)
    watches.watch(Resource("leases", LEASES, None, read_sighting, by_name, optional=True), scene.monitors)
    if plugins:
        residents = Resource("residents", "/api/v1/pods", strangers, read_resident, by_uid)
        watches.watch(residents, scene.residents.handler)
    return watches


@contextmanager
def _showing(options: Options) -> Iterator[Show]:
    """What becomes of facts that are shown."""
    if options.output is Output.JSON or not sys.stdout.isatty():
        yield _printer(as_json=options.output is Output.JSON)
        return
    from gpu_scheduler.cli.verbs.watch_screen import live_screen

    with live_screen(wide=options.output is Output.WIDE) as show:
        yield show


def _printer(*, as_json: bool) -> Show:
    """A line for each change, with its time; as JSON, an object a line."""
    from gpu_scheduler.cli.output import item_of
    from gpu_scheduler.cli.verbs.watch_state import changes, line_of

    before: Mapping[Key, View] = {}
    told: dict[Key, str] = {}

    def show(after: Mapping[Key, View]) -> None:
        nonlocal before
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for change, key, view in changes(before, after):
            event = {"type": change, "time": now, "object": item_of(key[0], view)}
            line = line_of(change, key, view)
            if as_json or told.get(key) != line:
                sys.stdout.write(f"{json.dumps(event, ensure_ascii=False) if as_json else f'{now}  {line}'}\n")
            told[key] = line
        sys.stdout.flush()
        before = after

    return show
