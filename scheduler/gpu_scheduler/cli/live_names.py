"""Names of what exists, for completion: namespaces, nodes and workloads of the cluster, contexts of the kubeconfig.

A shell waits for them, so each is one request with a time-out; if it fails, there are no names. LAW: only names that a
shell reads as one plain word are returned.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler.cli.options import FailedError, Options
from gpu_scheduler.names import SCHEDULER_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable

    import click

_SECONDS: Final = 3.0
_MOST: Final = 500
_PLAIN: Final = re.compile(r"[\w.:/@-]+", re.ASCII)


def namespaces(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the namespaces."""
    return _plain(_listed(ctx, "/api/v1/namespaces"), incomplete)


def nodes(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the nodes."""
    return _plain(_listed(ctx, "/api/v1/nodes"), incomplete)


def nodes_of_list(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the nodes, each behind those that stand before the last comma."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in nodes(ctx, param, last)]


def workloads(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the pods of ours and the GPUWorkloads of the namespace."""
    from gpu_scheduler.kube.objects.agentaflow import API

    part = "" if ctx.params.get("all_namespaces") else "/namespaces/{namespace}"
    pods = _listed(ctx, f"/api/v1{part}/pods", f"spec.schedulerName={SCHEDULER_NAME}")
    return _plain((*pods, *_listed(ctx, f"{API}{part}/gpuworkloads")), incomplete)


def contexts(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the contexts of the kubeconfig."""
    import os
    from pathlib import Path

    import yaml

    from gpu_scheduler.cli.cluster import kubeconfig_of

    found: list[str] = []
    with suppress(FailedError, OSError, ValueError, TypeError, KeyError, yaml.YAMLError):
        files = (kubeconfig_of(ctx.params.get("kubeconfig"), os.environ) or "").split(os.pathsep)
        for file in filter(None, files):
            content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
            found += [str(each["name"]) for each in content["contexts"]]
    return _plain(found, incomplete)


def _plain(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete) and _PLAIN.fullmatch(name)})


def _listed(ctx: click.Context, path: str, fields: str = "") -> list[str]:
    """Return the names in one page of a list, with the options that stand before the word to complete."""
    import asyncio

    given: dict[str, Any] = {
        key: ctx.params[key] for key in ("kubeconfig", "context", "namespace") if ctx.params.get(key)
    }
    try:
        return asyncio.run(_names(Options(**given), path, fields))
    except (FailedError, OSError):
        return []


async def _names(options: Options, path: str, fields: str) -> list[str]:
    import asyncio

    import msgspec

    from gpu_scheduler.cli.cluster import namespace_of, reached
    from gpu_scheduler.kube.http.client import segment
    from gpu_scheduler.kube.objects.meta import Identified, ObjectList

    query = {"limit": str(_MOST), **({"fieldSelector": fields} if fields else {})}
    async with asyncio.timeout(_SECONDS), reached(options) as api:
        namespace = segment(namespace_of(options, api) or "default")
        answer = await api.call("GET", path.format(namespace=namespace), query=query)
    if not answer.ok:
        return []
    items = msgspec.json.decode(answer.body, type=ObjectList).items or ()
    return [msgspec.json.decode(item, type=Identified).metadata.name or "" for item in items]
