"""The verb explain: why a pod waits and what frees it, or why it is where it is. It writes nothing."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from gpu_scheduler.cli.cluster import reached
from gpu_scheduler.cli.command_line import PATH
from gpu_scheduler.cli.options import FAILED, Output, RefusedInputError, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_scheduler.cli.explaining.views import View
    from gpu_scheduler.cli.manifests.documents import Manifest
    from gpu_scheduler.cli.options import Options
    from gpu_scheduler.kube.http.client import ApiClient

EXAMPLE: Final = "example: gpu-scheduler explain train-0"


@click.argument("pods", nargs=-1, metavar="[POD]...", help="NAME or NAMESPACE/NAME; also a GPUWorkload.")
@click.option(
    "--filename", "-f", type=PATH, multiple=True, metavar="FILE", help='Manifest or folder; "-" is standard input.'
)
async def explain(options: Options, pods: Sequence[str] = (), filename: Sequence[str] = ()) -> int:
    """Say why a pod waits and what frees it, or why it is where it is.

    With -f, of pods that do not exist yet, as their controllers would make them. Exit code 1 unless all of them are
    placed, or could be now.
    """
    import asyncio

    from gpu_scheduler.cli.explaining.screen import explanation_listing, explanation_screen
    from gpu_scheduler.cli.explaining.views import State
    from gpu_scheduler.cli.manifests.files import read_paths
    from gpu_scheduler.cli.output import colours, render

    if not pods and not filename:
        raise RefusedInputError(f"cannot explain nothing: name a pod, or a manifest with -f ({EXAMPLE})")
    manifests = await asyncio.to_thread(read_paths, filename, EXAMPLE) if filename else []
    async with reached(options) as api:
        items, unread = await _explained(api, options, pods, manifests)
    if options.output in {Output.TABLE, Output.WIDE}:
        now = datetime.now(UTC)
        coloured = colours(sys.stdout.isatty(), os.environ)
        screens = [explanation_screen(each, now, headers=not options.no_headers, coloured=coloured) for each in items]
        text = "\n".join(screens)
    else:
        text = render(explanation_listing(items), options)
    sys.stdout.write(text)
    warn(unread)
    good = {State.PLACED, State.PLACEABLE}
    return 0 if all(each["state"] in good for each in items) else FAILED


async def _explained(
    api: ApiClient, options: Options, given: Sequence[str], manifests: list[Manifest]
) -> tuple[list[View], tuple[str, ...]]:
    """Return the explanations, and what may not be read. The cluster is listed only if a pod awaits a placement."""
    import asyncio

    from gpu_scheduler.cli.explaining.explainer import Explainer
    from gpu_scheduler.cli.explaining.reading import expected_ends, read_pod, split_name
    from gpu_scheduler.cli.explaining.views import settled_view
    from gpu_scheduler.cli.installation import read_installation
    from gpu_scheduler.cli.live_cluster import read_live_cluster
    from gpu_scheduler.cli.planning.controllers import read_default

    namespace = options.namespace or api.namespace or "default"
    wanted = [split_name(each, namespace) for each in given]
    installation = await read_installation(api, options.system_namespace)
    name = installation.policy.scheduler_name
    found = await asyncio.gather(*(read_pod(api, *each, name) for each in wanted))
    settled = [settled_view(each.pod, each.annotations, name) for each in found]
    items = [view for view in settled if view is not None]
    if len(items) == len(settled) and not manifests:
        return items, tuple(filter(None, (installation.unread.deployment,)))
    live = await read_live_cluster(api, options.system_namespace)
    ends, no_workloads = await expected_ends(api, live.dry_run().pods)
    explainer = Explainer(live, ends, await read_default(api) if manifests else "")
    items = []
    for each, view in zip(found, settled, strict=True):
        awaiting = view is None and explainer.explain(each.pod)
        # A pod that was bound meanwhile is read again: only the API object says why it is where it is.
        again = each if view or awaiting else await read_pod(api, each.pod.ref.namespace, each.pod.ref.name, name)
        items.append(view or awaiting or settled_view(again.pod, again.annotations, name) or {})
    items += await explainer.explain_manifests(api, manifests, namespace)
    return items, tuple(filter(None, (*live.unread, no_workloads)))
