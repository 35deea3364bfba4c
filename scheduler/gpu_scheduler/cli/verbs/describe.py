"""The verb describe: everything that is known of one node, GPU, pod or GPUWorkload, and its events."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import click

from gpu_scheduler import names
from gpu_scheduler.cli import live_names
from gpu_scheduler.cli.cluster import namespace_of, reached
from gpu_scheduler.cli.options import FailedError, Output, RefusedInputError, warn
from gpu_scheduler.core.text import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_scheduler.cli.installation import Installation
    from gpu_scheduler.cli.options import Options
    from gpu_scheduler.kube.http.client import ApiClient

View = dict[str, Any]
Kind = Literal["node", "gpu", "pod", "workload"]

_KINDS: Final = {"node": "Node", "gpu": "Card", "pod": "Workload", "workload": "Workload"}
_NAME: Final = re.compile(r"[a-z0-9.-]+")
_WORDS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])(?!B$)")
_ABBREVIATIONS: Final = {"mib": "MiB", "uid": "UID", "uuid": "UUID", "gpus": "GPUs"}
_INDENT: Final = "  "
_COLUMN: Final = 20


def _of_kind(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of this kind for completion."""
    complete = live_names.nodes if ctx.params.get("kind") in {"node", "gpu"} else live_names.workloads
    return complete(ctx, param, incomplete)


@click.argument("kind", type=click.Choice(get_args(Kind)), metavar="node|gpu|pod|workload", help="What it is.")
@click.argument("name", help="Its name; of a GPU as NODE:DEVICE.", shell_complete=_of_kind)
async def describe(options: Options, kind: Kind, name: str) -> int:
    """Show everything about a node, GPU, pod or GPUWorkload.

    With its events, as long as the API server keeps them.
    """
    from gpu_scheduler.cli.installation import missing_right, read_installation
    from gpu_scheduler.cli.output import Listing, PrintedTable, render
    from gpu_scheduler.kube.lists import UnlistedError

    async with reached(options) as api:
        installation = await read_installation(api, options.system_namespace)
        find = _workload if kind in {"pod", "workload"} else _node
        view = await find(api, options, installation, kind, name)
        unread, view["events"] = installation.unread.deployment, None
        try:
            view["events"] = await _events(api, kind, view)
        except UnlistedError as error:
            unread = missing_right(error, f"list events -n {view.get('namespace', 'default')}")
    if options.output in {Output.TABLE, Output.WIDE}:
        sys.stdout.write("".join(f"{line}\n" for line in described(view)))
    else:
        table = PrintedTable((), ())
        sys.stdout.write(render(Listing(_KINDS[kind], [view], table, table, lambda item: _called(kind, item)), options))
    warn((unread,))
    return 0


def described(value: View, depth: int = 0) -> Iterator[str]:
    """Yield an object as lines `Title: value`; what is inside of it is indented."""
    from gpu_scheduler.cli.output import cell

    for key, each in value.items():
        if key == "message" and each == value.get("why"):
            continue
        title = f"{_INDENT * depth}{_title(key)}:"
        inner = [each] if isinstance(each, dict) else each if isinstance(each, list) else []
        if inner and all(isinstance(item, dict) for item in inner):
            yield title
            for number, item in enumerate(inner):
                if number:
                    yield f"{_INDENT * (depth + 1)}--"
                yield from described(item, depth + 1)
        else:
            yield f"{title:<{_COLUMN}} {cell(each)}"


def _title(key: str) -> str:
    """Return the words of a field's name; abbreviations keep their letters."""
    words = _WORDS.sub(" ", key).capitalize().split(" ")
    return " ".join(_ABBREVIATIONS.get(word.lower(), word) for word in words)


async def _node(api: ApiClient, _: Options, installation: Installation, kind: Kind, name: str) -> View:
    """Return a node, or one device of it."""
    from gpu_scheduler.cli.snapshot import take_snapshot
    from gpu_scheduler.cli.verbs.show import node_names
    from gpu_scheduler.cli.views import node_views

    node_name, colon, device = name.partition(":")
    if kind == "gpu" and not (node_name and colon and device):
        raise RefusedInputError(
            f"cannot describe GPU {quote(name)}: its name must be NODE:DEVICE "
            "(example: gpu-scheduler describe gpu node1:0)"
        )
    wanted = node_name if kind == "gpu" else name
    items = node_views(await take_snapshot(api, installation.policy))
    for node in items:
        if wanted in node_names(node):
            found: View | None = node
            if kind == "gpu":
                found = next((each for each in node["cards"] if device in {each["device"], each["uuid"]}), None)
            if found is not None:
                return found
    raise _missing(kind, name, "gpu-scheduler nodes -o wide")


async def _workload(api: ApiClient, options: Options, installation: Installation, kind: Kind, name: str) -> View:
    """Return a pod of ours or a GPUWorkload."""
    from gpu_scheduler.cli.snapshot import Selectors, pods_of, workloads_of
    from gpu_scheduler.cli.views import pod_view, workload_view

    namespace = namespace_of(options, api)
    command = f"gpu-scheduler workloads{f' -n {namespace}' if namespace else ' -A'}"
    # A name without commas and equals signs selects nothing else.
    if not _NAME.fullmatch(name):
        raise _missing(kind, name, command)
    chosen = Selectors(fields=f"metadata.name={name}")
    if kind == "pod":
        pods = await pods_of(api, installation.policy.scheduler_name, namespace, chosen)
        views = [pod_view(each, installation.strategy) for each in pods]
    else:
        found = await workloads_of(api, namespace, chosen)
        views = [workload_view(each, installation.strategy) for each in found]
    if not views:
        raise _missing(kind, name, command)
    return views[0]


def _missing(kind: str, name: str, command: str) -> FailedError:
    return FailedError(f"cannot describe {kind} {quote(name)}: there is none; list them (example: {command})")


async def _events(api: ApiClient, kind: Kind, view: View) -> list[View]:
    """Return the events about the object, the oldest first; of a GPU those of its node."""
    from gpu_scheduler.kube.http.client import segment
    from gpu_scheduler.kube.lists import list_all

    about = {"node": "Node", "gpu": "Node", "pod": "Pod", "workload": names.WORKLOAD_KIND}[kind]
    name = view["node"] if kind == "gpu" else view["name"]
    part = f"/namespaces/{segment(view['namespace'])}" if "namespace" in view else ""
    selector = f"involvedObject.kind={about},involvedObject.name={name}"
    events = await list_all(api, "events", f"/api/v1{part}/events", _event, selector=selector)
    return sorted(events, key=lambda event: str(event["time"] or ""))


def _event(raw: Any) -> View:
    event = json.loads(bytes(raw))
    time = event.get("eventTime") or event.get("lastTimestamp") or event["metadata"].get("creationTimestamp")
    return {"time": time, "type": event.get("type"), "reason": event.get("reason"), "message": event.get("message")}


def _called(kind: str, view: View) -> str:
    if kind == "gpu":
        return f"{view['node']}/{view['device']}"
    return f"{'gpuworkload.agentaflow.io' if kind == 'workload' else kind}/{view['name']}"
