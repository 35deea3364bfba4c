"""The verb history: what was decided, from events, pods and logs."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from gpu_scheduler.cli.options import FAILED, Output, RefusedInputError, duration_in, print_message, warn
from gpu_scheduler.core.text import quote
from gpu_scheduler.kube.timestamps import micro_time_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_scheduler.cli.options import Options
    from gpu_scheduler.cli.output import Listing
    from gpu_scheduler.cli.timeline import Entry

View = dict[str, Any]

_LONGEST: Final = timedelta(days=3650)
_NAME: Final = re.compile(r"[a-z0-9.-]{1,253}")


@click.argument("pod", required=False, metavar="[POD]", help="Only this pod, which may be gone.")
@click.option("--since", metavar="DURATION", help="Only what was decided within this time (example: 1h).")
async def history(options: Options, pod: str | None = None, since: str | None = None) -> int:
    """List what was decided about pods: when they waited and why, and where they were placed.

    From events, which a cluster keeps for an hour, from the pods, and from the scheduler's logs. Exit code 1 if nothing
    is known about a named pod.
    """
    from gpu_scheduler.cli.cluster import namespace_of, reached
    from gpu_scheduler.cli.installation import read_installation
    from gpu_scheduler.cli.output import render
    from gpu_scheduler.cli.past import read_past
    from gpu_scheduler.cli.timeline import timeline

    if pod is not None and not _NAME.fullmatch(pod):
        raise RefusedInputError(
            f"cannot find pod {quote(pod)}: a name has lower-case letters, digits, '-' and '.' "
            "(example: gpu-scheduler history train-0 -n ml)"
        )
    age = None if since is None else _age(since)
    async with reached(options) as api:
        namespace = namespace_of(options, api)
        installation = await read_installation(api, options.system_namespace)
        entries, unread = await read_past(
            api,
            installation.policy.scheduler_name,
            system_namespace=options.system_namespace,
            namespace=namespace,
            pod=pod,
            seconds=None if age is None else max(1, int(age.total_seconds())),
        )
    items = [entry_view(entry) for entry in timeline(entries, None if age is None else datetime.now(UTC) - age)]
    sys.stdout.write(render(history_listing(items, namespaces=namespace is None), options))
    warn((installation.unread.deployment, *unread))
    if items:
        return 0
    what = "any pod" if pod is None else f"pod {pod}"
    if options.output in {Output.TABLE, Output.WIDE}:
        print_message(f"No decisions found about {what} in {namespace or 'any namespace'}")
    return 0 if pod is None else FAILED


def entry_view(entry: Entry) -> View:
    """Return one decision as plain data. Times are RFC 3339 in UTC."""
    return {
        "time": _text(entry.time),
        "namespace": entry.namespace,
        "pod": entry.pod,
        "uid": entry.uid or None,
        "what": entry.what,
        "node": entry.node,
        "devices": None if entry.devices is None else list(entry.devices),
        "observer": entry.observer,
        "reason": entry.reason,
        "message": entry.message or None,
        "count": entry.count,
        "lastTime": _text(entry.until),
        "by": entry.by or None,
        "sources": list(entry.sources),
    }


def history_listing(items: Sequence[View], *, namespaces: bool) -> Listing:
    """Return the decisions with one row for each; `namespaces` adds a column for the namespace."""
    from gpu_scheduler.cli.output import Column, Listing, PrintedTable, marked

    columns = [
        Column("TIME", lambda item: f"{item['time'][:19]}Z"),
        *[Column("NAMESPACE", lambda item: item["namespace"])] * namespaces,
        Column("POD", lambda item: item["pod"]),
        Column("WHAT", lambda item: item["what"]),
        Column("NODE", lambda item: item["node"]),
        Column("GPUS", lambda item: marked(item, ",".join(item["devices"] or ()))),
        Column("REASON", lambda item: item["reason"]),
        Column("SOURCE", lambda item: item["sources"]),
    ]
    message = Column("MESSAGE", lambda item: item["message"])
    more = [
        Column("COUNT", lambda item: item["count"]),
        Column("LAST", lambda item: f"{item['lastTime'][:19]}Z"),
        Column("BY", lambda item: item["by"]),
        Column("UID", lambda item: item["uid"]),
    ]
    tables = PrintedTable([*columns, message], items), PrintedTable([*columns, *more, message], items)
    return Listing("Decision", items, *tables, lambda item: f"pod/{item['pod']}")


def _text(time: datetime) -> str:
    return micro_time_of(time.astimezone(UTC))


def _age(text: str) -> timedelta:
    found = duration_in(text)
    if found is None or found > _LONGEST:
        raise RefusedInputError(
            f"cannot use --since {quote(text)}: it must be a positive duration, at most ten years (example: --since 1h)"
        )
    return found
