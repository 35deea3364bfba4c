"""Lists everything that the scheduler watches, with the caller's rights, as inputs of a dry run.

LAW: reads only. What the caller may not read is named, so that no answer seems to be complete without it.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler.cli.installation import missing_right, read_installation
from gpu_scheduler.cli.snapshot import ListedNode, list_objects
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.namespace_limits import parse_limits
from gpu_scheduler.kube.lists import UnlistedError, list_all
from gpu_scheduler.kube.objects.storage import read_claim, read_class, read_volume
from gpu_scheduler.scheduler.dry_run import DryRun
from gpu_scheduler.scheduler.ports import InputKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import msgspec

    from gpu_scheduler.cli.installation import Installation
    from gpu_scheduler.kube.http.client import ApiClient

    Input = tuple[InputKind, Any]

_STORAGE: Final = (
    (InputKind.CLAIM, "persistentvolumeclaims", "/api/v1/persistentvolumeclaims", read_claim),
    (InputKind.VOLUME, "persistentvolumes", "/api/v1/persistentvolumes", read_volume),
    (InputKind.STORAGE_CLASS, "storageclasses.storage.k8s.io", "/apis/storage.k8s.io/v1/storageclasses", read_class),
)


@immutable
class LiveCluster:
    """The cluster as the scheduler reads it."""

    installation: Installation
    inputs: tuple[Input, ...]
    """What a scheduler that starts now would apply, in its order: pods come last."""
    nodes: Mapping[str, ListedNode]
    """The nodes by name, with what their monitors list of each device."""
    silent: Mapping[str, str]
    """The nodes whose monitor has not renewed its Lease in time, and when it last did (RFC 3339)."""
    unread: tuple[str, ...]
    """What the caller may not read, a sentence each."""

    def dry_run(self) -> DryRun:
        """Return a new dry run that has applied all inputs and decided nothing."""
        return dry_run_of(self.installation, self.inputs)


def dry_run_of(installation: Installation, inputs: Iterable[Input]) -> DryRun:
    """Return a new dry run of this installation that has applied `inputs`."""
    dry_run = DryRun(installation.policy)
    for kind, value in inputs:
        dry_run.apply(kind, value)
    return dry_run


async def read_live_cluster(api: ApiClient, system_namespace: str) -> LiveCluster:
    """List what the scheduler of `system_namespace` watches.

    UnlistedError if nodes or pods may not be listed: without them no decision can be repeated. Everything else that may
    not be read is in `unread`.
    """
    installation = await read_installation(api, system_namespace)
    objects, storage = await asyncio.gather(
        list_objects(api, installation.policy, every_foreign_pod=True),
        asyncio.gather(*(_listed_storage(api, *each) for each in _STORAGE)),
    )
    limits, _ = parse_limits(installation.limits or "")
    inputs: list[Input] = [
        *((InputKind.NODE, node) for node in objects.scheduler_nodes()),
        *((InputKind.DEVICE_SLICE, each) for each in objects.published.slices),
        *((InputKind.DEVICE_CLAIM, each) for each in objects.published.claims),
        (InputKind.LIMITS, limits),
        *((InputKind.FOREIGN_POD, foreign_pod) for foreign_pod in objects.foreign_pods),
    ]
    if installation.strategy is not None:
        inputs.append((InputKind.STRATEGY, installation.strategy))
    inputs += chain.from_iterable(found for found, _ in storage)
    inputs += ((InputKind.POD, pod) for pod in objects.pods)
    missing = installation.unread
    lists = (*objects.unread, *(why for _, why in storage))
    unread = (missing.deployment, missing.strategy, missing.limits, *lists)
    by_name = {each.node.name: each for each in objects.nodes}
    return LiveCluster(installation, tuple(inputs), by_name, objects.silent, tuple(filter(None, unread)))


async def _listed_storage(
    api: ApiClient, kind: InputKind, resource: str, path: str, read: Callable[[msgspec.Raw], tuple[str, object]]
) -> tuple[list[Input], str]:
    """Return all objects of a kind; none, and the missing right as a sentence, if they may not be listed."""
    try:
        return [(kind, value) for _, value in await list_all(api, resource, path, read)], ""
    except UnlistedError as error:
        return [], missing_right(error, f"list {resource} -A")
