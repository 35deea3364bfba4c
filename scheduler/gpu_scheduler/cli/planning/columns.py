"""A plan as plain data, as a table and as one sentence. The functions are pure."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler.cli.output import Column, Listing, PrintedTable, cell, marked, tabled
from gpu_scheduler.cli.planning.planner import Outcome
from gpu_scheduler.cli.views import devices_of
from gpu_scheduler.core.text import number_of, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_scheduler.cli.planning.planner import PlannedPod

View = dict[str, Any]

_DECIDED: Final = (Outcome.FITS, Outcome.WAITS, Outcome.REFUSED)
_BAD: Final = (Outcome.WAITS, Outcome.REFUSED, Outcome.LOST)
_SENTENCE: Final = {
    "waits": "would wait",
    "refused": "would be refused",
    "lost": "would not come back",
    "exists": "{0} already",
    "removed": "would be removed",
    "placedBefore": "that {1} already would be placed first",
    "waitOn": "that {1} already would wait on",
}
_GAP: Final = "   "
_INDENT: Final = "    "
_LEAST: Final = 40
"""Fewest characters of a line of the last column. If there are fewer, messages stand below their rows."""


def plan_view(
    pods: Sequence[PlannedPod], waiting: Sequence[PlannedPod], left_out: Sequence[str], *, of_waiting: bool
) -> View:
    """Return the plan. `waiting` are the pods that wait in the cluster as it is.

    If it is a plan `of_waiting` pods, they are its pods. Otherwise only those of them have a row that would be placed.
    """
    shown = [pod for pod in waiting if of_waiting or pod.outcome is Outcome.FITS]
    asked = shown if of_waiting else pods
    views = [_pod_view(pod) for pod in (shown if of_waiting else (*shown, *pods))]
    return {
        "fits": not any(pod.outcome in _BAD for pod in asked),
        "counts": {
            **{outcome.value: sum(pod.outcome is outcome for pod in asked) for outcome in Outcome},
            "placedBefore": 0 if of_waiting else len(shown),
            "waitOn": len(waiting) - len(shown),
        },
        "pods": views,
        "leftOut": list(left_out),
    }


def plan_listing(view: View) -> Listing:
    """Return the plan as a listing of one item. Its tables are empty: `plan_screen` prints it for people."""
    return Listing("Plan", [view], PrintedTable((), ()), PrintedTable((), ()))


def plan_screen(view: View, *, width: int | None, wide: bool, headers: bool) -> str:
    """Return the table of the pods, and the sentence. Messages are whole: if `width` is known, they are wrapped."""
    pods = view["pods"]
    if not pods:
        return f"{_sentence(view)}\n"
    columns = [
        *[Column("NAMESPACE", lambda pod: pod["namespace"])] * (len({pod["namespace"] for pod in pods}) > 1 or wide),
        Column("POD", lambda pod: pod["name"]),
        *[Column("LEAVES", _left)] * any(pod["replaces"] for pod in pods),
        Column("NODE", lambda pod: pod["node"]),
        Column("GPUS", lambda pod: marked(pod, ",".join(pod["devices"]))),
        Column("INDEX", lambda pod: pod["index"]),
        *[Column("CONTROLLER", lambda pod: pod["controller"]), Column("OUTCOME", lambda pod: pod["outcome"])] * wide,
        Column("REASON", lambda pod: pod["reason"]),
    ]
    lines = tabled(PrintedTable(columns, pods), headers=headers).splitlines()
    messages = [*(["MESSAGE"] * headers), *(cell(_message(pod, wide=wide)) for pod in pods)]
    left = max(map(len, lines))
    room = None if width is None else width - left - len(_GAP)
    if room is not None and room < _LEAST:
        rows = (_below(line, message, width or 0) for line, message in zip(lines, messages, strict=True))
    else:
        rows = (_beside(line.ljust(left), message, room) for line, message in zip(lines, messages, strict=True))
    return f"{''.join(rows)}\n{_sentence(view)}\n"


def _beside(line: str, message: str, room: int | None) -> str:
    """Return one row with its message as the last column, in as many lines of `room` characters as it needs."""
    first, *others = [message] if room is None else _wrapped(message, room)
    return f"{line}{_GAP}{first}\n" + "".join(f"{' ' * len(line)}{_GAP}{part}\n" for part in others)


def _below(line: str, message: str, width: int) -> str:
    """Return one row, and its message below it if it has one: a last column would be too narrow."""
    parts = [] if message in {"MESSAGE", cell(None)} else _wrapped(message, max(width, _LEAST) - len(_INDENT))
    return f"{line}\n" + "".join(f"{_INDENT}{part}\n" for part in parts)


def _wrapped(message: str, width: int) -> list[str]:
    return textwrap.wrap(message, width, break_long_words=False, break_on_hyphens=False) or [message]


def _message(pod: View, *, wide: bool) -> str | None:
    """Return what the table says of a pod. Where it fits, its columns say it already."""
    message: str = pod["message"]
    if pod["outcome"] == Outcome.FITS and not wide:
        made = ", ".join(pod["volumes"])
        return f"as soon as the volumes of {made} are made" if made else None
    return message.removeprefix(f"{pod['reason']}: ")


def _left(pod: View) -> str | None:
    left = pod["replaces"]
    return left and f"{left['node']}:{','.join(left['devices'])}"


def _pod_view(pod: PlannedPod) -> View:
    _, kind, name = pod.maker
    left = pod.replaces
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "controller": f"{kind}/{name}" if kind else None,
        "cause": pod.cause.value,
        "outcome": pod.outcome.value,
        "node": pod.node or None,
        "devices": list(pod.devices),
        "observer": pod.observer,
        "index": pod.index,
        "reason": pod.reason,
        "message": pod.message,
        "volumes": list(pod.volumes),
        "replaces": left and {"name": left.ref.name, "node": left.node, "devices": list(devices_of(left))},
    }


def _sentence(view: View) -> str:
    counts = view["counts"]
    decided = sum(counts[outcome] for outcome in _DECIDED)
    parts = [f"{counts['fits']} of {number_of(decided, 'pod')} {_verb(counts['fits'], 'fit')}"] if decided else []
    for key, words in _SENTENCE.items():
        number = counts[key]
        if number:
            parts.append(f"{number} {words.format(_verb(number, 'exist'), _verb(number, 'wait'))}")
    return printable("; ".join(parts) or "no pod is made or moved")


def _verb(number: int, word: str) -> str:
    return f"{word}s" if number == 1 else word
