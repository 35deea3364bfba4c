"""The verb `verify`, which compares what map, Binding and ledger say with what containers have."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from gpu_scheduler.cli.cluster import namespace_of, reached
from gpu_scheduler.cli.options import FAILED, FailedError, Output, print_message, warn
from gpu_scheduler.core.text import natural, number_of, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpu_scheduler.cli.options import Options
    from gpu_scheduler.cli.output import View
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.core.policy import Policy
    from gpu_scheduler.kube.http.client import ApiClient

UNSEEN: Final = 3
"""The exit code if nothing differs, but not everything could be read: neither a proof nor a refutation."""


@click.argument("pods", nargs=-1, metavar="[POD]...", help="Names of pods; all that are bound otherwise.")
async def verify(options: Options, pods: Sequence[str] = ()) -> int:
    """Compare map, Binding and ledger with the environment inside each container.

    Exit code 0 if every container is ok, 1 if one differs, 3 if none differs but some could not be read.
    """
    from gpu_scheduler.cli.columns import verify_listing
    from gpu_scheduler.cli.installation import read_installation
    from gpu_scheduler.cli.output import render

    async with reached(options) as api:
        namespace = namespace_of(options, api)
        installation = await read_installation(api, options.system_namespace)
        views, unread = await _views(api, installation.policy, namespace, frozenset(pods))
    warn((installation.unread.deployment, *unread))
    listing = verify_listing(views, namespaces=namespace is None)
    sys.stdout.write(render(listing, options))
    if not views and options.output in {Output.TABLE, Output.WIDE}:
        print_message(f"No pods found in {namespace or 'any namespace'} that have a node")
    return _exit_code(views)


async def _views(
    api: ApiClient, policy: Policy, namespace: str | None, chosen: frozenset[str]
) -> tuple[list[View], list[str]]:
    """Return a view for each container of the chosen pods, and what the user may not read.

    FailedError if a chosen pod does not exist.
    """
    from gpu_scheduler.cli.container_environments import pod_states, read_containers
    from gpu_scheduler.cli.snapshot import take_snapshot
    from gpu_scheduler.cli.verification import Records, pod_views, sort_out

    snapshot = await take_snapshot(api, policy)
    states = await pod_states(api, policy.scheduler_name, namespace)
    records = Records(snapshot.nodes, snapshot.ledger)
    pods = _chosen((pod for pod in snapshot.pods if pod.ref.uid in states), chosen, namespace)
    unseen, readable = sort_out(pods, states, records)
    read, unread = await read_containers(api, readable, {pod.ref.uid for pod in pods if pod.isolated})
    readings = {**unseen, **read}
    return [view for pod in pods for view in pod_views(pod, states[pod.ref.uid].index, records, readings)], unread


def _chosen(pods: Iterable[Pod], chosen: frozenset[str], namespace: str | None) -> list[Pod]:
    """Return the pods with these names or, if there are none, all that have a node and have not finished."""
    found = [pod for pod in pods if pod.ref.name in chosen or (not chosen and pod.bound and not pod.finished)]
    missing = chosen.difference(pod.ref.name for pod in found)
    if missing:
        where = f"namespace {namespace}" if namespace else "any namespace"
        raise FailedError(
            f"cannot find pod {quote(min(missing))} of this scheduler in {where}; "
            "see which there are (example: gpu-scheduler workloads -A)"
        )
    return sorted(found, key=lambda pod: (pod.ref.namespace, natural(pod.ref.name)))


def _exit_code(views: Sequence[View]) -> int:
    """Return the exit code, and print how many containers could not be read."""
    from gpu_scheduler.cli.verification import Verdict

    verdicts = [view["verdict"] for view in views]
    unseen = verdicts.count(Verdict.UNSEEN)
    if unseen:
        warn((f"{unseen} of {number_of(len(verdicts), 'container')} unseen: nothing is proved about them",))
    return FAILED if Verdict.DIFFERS in verdicts else UNSEEN if unseen else 0
