"""The verbs snapshot and replay: the cluster as a file, and its decisions made again from the file."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from gpu_scheduler.cli.command_line import PATH
from gpu_scheduler.cli.options import FAILED, FailedError, Output, RefusedInputError, print_message, warn
from gpu_scheduler.core.text import number_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_scheduler.cli.live_cluster import LiveCluster
    from gpu_scheduler.cli.options import Options
    from gpu_scheduler.cli.output import Listing
    from gpu_scheduler.scheduler.replay import Replay, Replayed

View = dict[str, Any]

_WRITE: Final = "example: gpu-scheduler snapshot > cluster.snapshot"
_READ: Final = "example: gpu-scheduler replay cluster.snapshot"


async def snapshot(options: Options) -> int:
    """Write the cluster as the scheduler reads it to standard output.

    The whole cluster, whatever the namespace, one JSON object a line, without commands, environment or Secrets. Exit
    code 1 if something may not be read; the file says what.
    """
    from gpu_scheduler.cli.cluster import reached
    from gpu_scheduler.cli.live_cluster import read_live_cluster

    if options.output not in {Output.TABLE, Output.JSON}:
        raise RefusedInputError(
            f'cannot write a snapshot as "{options.output}": it has one format, a JSON object a line ({_WRITE})'
        )
    if sys.stdout.isatty():
        raise RefusedInputError(f"cannot write a snapshot to a terminal: it must be a file or a pipe ({_WRITE})")
    async with reached(options) as api:
        live = await read_live_cluster(api, options.system_namespace)
    try:
        for line in snapshot_lines(live):
            sys.stdout.buffer.write(line)
        sys.stdout.flush()
    except OSError as error:
        # Discard the buffered output, so that its flush at exit cannot fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise FailedError(f"cannot write the snapshot: {error.strerror}; what was written is not whole") from error
    warn(live.unread)
    return FAILED if live.unread else 0


def snapshot_lines(live: LiveCluster) -> Iterator[bytes]:
    """Yield the lines of a snapshot: a first line, then a line for each input, as a journal has them."""
    from gpu_scheduler.scheduler.journal import encoded, first_line, received_line

    first = first_line(live.installation.policy)
    yield encoded({"snapshot": len(live.inputs), **first, "unread": live.unread})
    for kind, value in live.inputs:
        yield encoded(received_line(kind, value))


@click.argument("file", type=PATH, help='A snapshot, or a journal of decisions; "-" is standard input.')
@click.option("--all", "everything", is_flag=True, help="Print every decision, also what is as before.")
async def replay(options: Options, file: str, *, everything: bool = False) -> int:
    """Decide again with this version on the pending pods of a snapshot, or at each decision of a journal.

    Prints what comes out otherwise, with -n of one namespace; needs no cluster. Exit code 1 if something does, 2 if the
    file cannot be read.
    """
    from gpu_scheduler.cli.output import render
    from gpu_scheduler.scheduler.replay import Replay, ReplayError

    source = "standard input" if file == "-" else file
    try:
        with _opened(file) as lines:
            found = Replay(lines)
            counts, items = _decided(found, options.namespace, everything=everything)
    except OSError as error:
        raise RefusedInputError(f"cannot read {source}: {error.strerror}; name a file ({_READ})") from error
    except ReplayError as error:
        raise RefusedInputError(f"cannot replay {source}: {error}; {error.remedy} ({_WRITE})") from error
    sys.stdout.write(render(replay_listing(items), options))
    if found.cut:
        print_message(f"Warning: the last line of {source} has no end: it was left out")
    warn(f"{source} lacks what its author could not read: {each}" for each in found.unread)
    print_message(_summary(*counts))
    return FAILED if counts[1] else 0


def replayed_view(replayed: Replayed) -> View:
    """Return one decision; the old and the new one have the fields of a journal's line."""
    namespace, _, name = replayed.pod.partition("/")
    return {
        "namespace": namespace,
        "name": name,
        "line": replayed.line,
        "before": replayed.before,
        "now": replayed.now,
        "differs": replayed.differs,
    }


def replay_listing(items: list[View]) -> Listing:
    """Return the decisions with one row for each."""
    from gpu_scheduler.cli.output import Column, Listing, PrintedTable

    columns = [
        Column("POD", lambda item: f"{item['namespace']}/{item['name']}"),
        Column("BEFORE", lambda item: _outcome(item["before"])),
        Column("NOW", lambda item: _outcome(item["now"])),
        Column("MESSAGE", lambda item: _message(item["now"])),
    ]
    more = [
        Column("LINE", lambda item: item["line"]),
        Column("MESSAGE BEFORE", lambda item: item["before"] and _message(item["before"])),
    ]
    tables = PrintedTable(columns, items), PrintedTable([*columns, *more], items)
    return Listing("Replay", items, *tables, lambda item: f"pod/{item['name']}")


@contextmanager
def _opened(file: str) -> Iterator[Iterator[bytes]]:
    """Yield the lines of the file or, for "-", of standard input. A line that is too long is cut."""
    from gpu_scheduler.cli.manifests.files import opened
    from gpu_scheduler.scheduler.replay import MAX_LINE

    def lines(stream: BinaryIO) -> Iterator[bytes]:
        return iter(lambda: stream.readline(MAX_LINE + 1), b"")

    if file == "-":
        yield lines(sys.stdin.buffer)
        return
    with opened(file) as stream:
        yield lines(stream)


def _decided(replay: Replay, namespace: str | None, *, everything: bool) -> tuple[tuple[int, int, int], list[View]]:
    """Return how many decisions are as before, otherwise, and new, and those to print; None is every namespace."""
    same, other, fresh, items = 0, 0, 0, []
    for view in map(replayed_view, replay):
        if namespace not in {None, view["namespace"]}:
            continue
        first = view["before"] is None
        same += not (first or view["differs"])
        other += view["differs"]
        fresh += first
        if everything or first or view["differs"]:
            items.append(view)
    return (same, other, fresh), items


def _summary(same: int, other: int, fresh: int) -> str:
    parts = [f"{same} as before", f"{other} otherwise"]
    if fresh:
        parts.append(f"{fresh} for the first time")
    return f"{number_of(same + other + fresh, 'decision')}: {', '.join(parts)}"


def _outcome(verdict: View | None) -> str | None:
    """Return a decision in a word: the placement as a map writes it, or the reason."""
    if verdict is None:
        return None
    placement = verdict.get("placement")
    if isinstance(placement, dict):
        return f"{placement.get('node')}:{','.join(map(str, placement.get('devices') or ()))}"
    return str(verdict.get("reason") or verdict.get("verdict"))


def _message(verdict: View) -> str:
    """Return the message of a decision without the reason that it begins with."""
    return str(verdict.get("message") or "").removeprefix(f"{verdict.get('reason')}: ")
