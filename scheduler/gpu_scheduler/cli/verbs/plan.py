"""The verb plan: says where pods would run that do not exist yet, and where others would go. It writes nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from gpu_scheduler.cli.cluster import reached
from gpu_scheduler.cli.command_line import PATH
from gpu_scheduler.cli.options import FAILED, Output, RefusedInputError, print_message, warn
from gpu_scheduler.kube.timestamps import time_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_scheduler.cli.manifests.documents import Manifest
    from gpu_scheduler.cli.options import Options
    from gpu_scheduler.cli.planning.planner import Planner
    from gpu_scheduler.cli.planning.what_ifs import WhatIfs
    from gpu_scheduler.kube.http.client import ApiClient

EXAMPLE: Final = "example: gpu-scheduler plan -f train.yaml"


@click.option(
    "--filename", "-f", type=PATH, multiple=True, metavar="FILE", help='Manifest or folder; "-" is standard input.'
)
@click.option("--drain", multiple=True, metavar="NODE", help="As if this node were drained.")
@click.option(
    "--without", multiple=True, metavar="NODE:DEVICE,…", help="As if these GPUs were broken, and their pods evicted."
)
@click.option("--assume-gone", multiple=True, metavar="POD", help="As if this pod were gone.")
@click.option(
    "--scale", multiple=True, metavar="NAME=N", help="With so many replicas, of a manifest or of the cluster."
)
async def plan(  # noqa: PLR0913 - its options
    options: Options,
    *,
    filename: Sequence[str] = (),
    drain: Sequence[str] = (),
    without: Sequence[str] = (),
    assume_gone: Sequence[str] = (),
    scale: Sequence[str] = (),
) -> int:
    """Say where pods would run, or why not: those of manifests, and those that a change would move.

    Nothing is written. Each option may be repeated. Exit code 1 if a pod would wait, be refused or not come back.
    """
    import asyncio
    import shutil

    from gpu_scheduler.cli.manifests.files import read_paths
    from gpu_scheduler.cli.output import render
    from gpu_scheduler.cli.planning.columns import plan_listing, plan_screen, plan_view
    from gpu_scheduler.cli.planning.what_ifs import WhatIfs, read_what_ifs

    what_ifs = read_what_ifs(drain, without, assume_gone, scale)
    if not filename and what_ifs == WhatIfs():
        raise RefusedInputError(f"cannot plan nothing: name a manifest, or a change of the cluster ({EXAMPLE})")
    manifests = await asyncio.to_thread(read_paths, filename, EXAMPLE) if filename else []
    async with reached(options) as api:
        planner, left_out, unread = await planned(api, options, manifests, what_ifs)
    of_waiting = not (filename or what_ifs.drained or what_ifs.without or what_ifs.scales)
    view = plan_view(planner.pods, list(planner.waiting.values()), left_out, of_waiting=of_waiting)
    if options.output in {Output.TABLE, Output.WIDE}:
        text = plan_screen(
            view,
            width=shutil.get_terminal_size().columns if sys.stdout.isatty() else None,
            wide=options.output is Output.WIDE,
            headers=not options.no_headers,
        )
    else:
        text = render(plan_listing(view), options)
    sys.stdout.write(text)
    if left_out:
        print_message(f"Left out, because they make no pods of this scheduler: {', '.join(left_out)}")
    warn(unread)
    return 0 if view["fits"] else FAILED


async def planned(
    api: ApiClient, options: Options, manifests: list[Manifest], what_ifs: WhatIfs
) -> tuple[Planner, list[str], tuple[str, ...]]:
    """Return the decisions, the objects that were left out, and what may not be read.

    First the pods that wait already are decided, then those that come back, then those of the manifests: the scheduler
    tries older pods first.
    """
    from datetime import UTC, datetime

    from gpu_scheduler.cli.live_cluster import read_live_cluster
    from gpu_scheduler.cli.planning.changes import break_devices, drain, forget_pod
    from gpu_scheduler.cli.planning.controllers import add_returning, read_default
    from gpu_scheduler.cli.planning.objects import PlannedObjects
    from gpu_scheduler.cli.planning.planner import Planner

    namespace = options.namespace or api.namespace or "default"
    objects = PlannedObjects(manifests, namespace, strict=options.namespace is not None)
    live = await read_live_cluster(api, options.system_namespace)
    for scale in what_ifs.scales:
        await objects.scale(api, scale)
    await objects.read_templates(api)
    dry_run = live.dry_run()
    evicted = [pod for name in what_ifs.drained for pod in drain(dry_run, name)]
    evicted += [pod for name, devices in what_ifs.without for pod in break_devices(dry_run, name, devices)]
    for given, name in what_ifs.gone:
        forget_pod(dry_run, given or namespace, name)
    default_class = await read_default(api) if objects.needs_default_class() else ""
    planner = Planner(dry_run, live.inputs, time_of(datetime.now(UTC)), default_class)
    objects.add_storage(planner)
    asked, left_out = objects.admit(planner)
    planner.decide_waiting()
    await add_returning(api, planner, evicted, objects.makers)
    for each in asked:
        planner.add(each)
    return planner, left_out, live.unread
