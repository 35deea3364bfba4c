"""The verb strategy: shows or sets the strategy of the cluster."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Final

import click

from gpu_scheduler import names
from gpu_scheduler.cli.cluster import reached
from gpu_scheduler.cli.options import FailedError, RefusedInputError
from gpu_scheduler.cli.verbs.submit import message_of

if TYPE_CHECKING:
    from gpu_scheduler.cli.options import Options
    from gpu_scheduler.kube.http.client import ApiClient

CHOOSER: Final = "gpu-scheduler-strategy"


def _strategies(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the words for shell completion."""
    from gpu_scheduler.core.pods.count_request import Strategy

    return [each for each in Strategy if each.startswith(incomplete)]


@click.argument(
    "name",
    required=False,
    help="The strategy from now on; without it, the present one is shown.",
    shell_complete=_strategies,
)
async def strategy(options: Options, name: str | None = None) -> int:
    """Show or set the cluster's strategy.

    Pods that name no strategy are placed by it. The running scheduler follows within 2 s, and keeps it over restarts.
    Exit code 1 if it may not be read.
    """
    from gpu_scheduler.cli.columns import strategy_listing
    from gpu_scheduler.cli.installation import read_installation
    from gpu_scheduler.cli.output import render
    from gpu_scheduler.core.pods.count_request import Strategy

    if name is not None and name not in tuple(Strategy):
        known = ", ".join(Strategy)
        raise RefusedInputError(
            f'cannot use strategy "{name}": it must be one of {known} (example: gpu-scheduler strategy best_fit)'
        )
    async with reached(options) as api:
        if name is not None:
            await _set_strategy(api, options.system_namespace, name)
            listing = strategy_listing(name, f"ConfigMap {names.SETTINGS}")
        else:
            found = await read_installation(api, options.system_namespace)
            if found.strategy is None:
                raise FailedError(found.unread.strategy)
            listing = strategy_listing(found.strategy, found.source)
    sys.stdout.write(render(listing, options))
    return 0


async def _set_strategy(api: ApiClient, namespace: str, name: str) -> None:
    """Apply the one key under a field manager of its own, so that the playbook that installs does not overwrite it.

    FailedError if the API server refuses.
    """
    from gpu_scheduler.kube.http.client import APPLY, segment

    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.SETTINGS, "namespace": namespace},
        "data": {names.SETTINGS_STRATEGY: name},
    }
    answer = await api.call(
        "PATCH",
        f"/api/v1/namespaces/{segment(namespace)}/configmaps/{names.SETTINGS}",
        query={"fieldManager": CHOOSER, "force": "true"},
        body=json.dumps(body).encode(),
        content_type=APPLY,
    )
    if not answer.ok:
        remedy = "name the namespace where it is installed (example: --system-namespace gpu-scheduler-system)"
        raise FailedError(f"cannot set the strategy in namespace {namespace}: {message_of(answer)}; {remedy}")
