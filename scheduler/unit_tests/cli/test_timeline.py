"""The timeline: what each source says, and each decision once."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.cli.timeline import Entry, PodEvent, Source, What, from_event, from_log, from_pod, timeline
from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.decision import Bind, Wait
from gpu_scheduler.core.filters.volumes import Volumes
from gpu_scheduler.kube.objects.pod_objects import PodObject
from gpu_scheduler.scheduler.pod_states import PodState
from gpu_scheduler.scheduler.status_writer import StatusWriter
from unit_tests.core.build import POLICY, ledger, node, nodes, pod, running
from unit_tests.fakes import FakeEventRecorder

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
HELD = "GPU 0 of node1 is held by ml/first-0; wait"


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def text(seconds: float) -> str:
    return at(seconds).isoformat().replace("+00:00", "Z")


def event(seconds: float, reason: str, note: str, **more: Any) -> PodEvent:
    """Return an event on pod ml/train-0."""
    usual = {"namespace": "ml", "pod": "train-0", "uid": "u-1", "count": 1, "by": "gpu-scheduler-0_1", "last": ()}
    return PodEvent(**{**usual, "reason": reason, "note": note, "times": (None, text(seconds)), **more})


def read(body: dict[str, Any]) -> list[Entry]:
    """Return the entries of a pod ml/train-0."""
    metadata = {"namespace": "ml", "name": "train-0", "uid": "u-1", **body.pop("metadata", {})}
    raw = json.dumps({"metadata": metadata, "spec": {}, **body}).encode()
    return list(from_pod(msgspec.json.decode(raw, type=PodObject)))


def assigned(seconds: float, **more: str) -> dict[str, Any]:
    """Return the body of a pod that was bound."""
    given = {"at": text(seconds), "by": "gpu-scheduler-0_1", "node": "node1", "devices": "0,1", **more}
    annotations = {f"agentaflow.gpu/assigned-{key}": value for key, value in given.items()}
    return {"metadata": {"annotations": annotations}, "spec": {"nodeName": "node1"}}


def condition(seconds: float, message: str, reason: str = "Unschedulable", status: str = "False") -> dict[str, Any]:
    """Return the body of a pod that waits."""
    found = {"type": "PodScheduled", "status": status, "reason": reason, "message": message}
    return {"status": {"conditions": [{**found, "lastTransitionTime": text(seconds)}]}}


def line(seconds: float, event: str, **fields: Any) -> dict[str, Any]:
    """Return a log line about pod ml/train-0."""
    return {"event": event, "timestamp": text(seconds), "pod": "ml/train-0", "level": "info", **fields}


BOUND = event(5, "Scheduled", "Successfully assigned ml/train-0 to node1 with GPUs 0,1 (index 0)")
WAITED = event(1, "FailedScheduling", f"GpuHeld: {HELD}")
BOUND_LINE = line(4.9, "Bound ml/train-0 to node1", node="node1", devices="0,1")
WAIT_LINE = line(1, f"ml/train-0 waits: GpuHeld: {HELD}", reason="GpuHeld")


def seen(entry: Entry | None) -> tuple[Any, ...] | None:
    if entry is None:
        return None
    return entry.what, entry.node, entry.devices, entry.reason, entry.message


EVENTS: dict[str, tuple[PodEvent, tuple[Any, ...] | None]] = {
    "a bind": (BOUND, (What.BOUND, "node1", ("0", "1"), None, "index 0")),
    "a bind with one device": (
        replace(BOUND, note="Successfully assigned ml/a to n with GPU 3 (best_fit: 1 (of 2) left)"),
        (What.BOUND, "n", ("3",), None, "best_fit: 1 (of 2) left"),
    ),
    "a bind without a device": (
        replace(BOUND, note="Successfully assigned ml/a to n with no GPU (index 7)"),
        (What.BOUND, "n", (), None, "index 7"),
    ),
    "a bind in other words": (replace(BOUND, note="done"), (What.BOUND, None, None, None, "done")),
    "a wait": (WAITED, (What.WAITING, None, None, "GpuHeld", HELD)),
    "a refusal": (
        event(0, "FailedScheduling", "MapInvalid: cannot read it"),
        (What.REFUSED, None, None, "MapInvalid", "cannot read it"),
    ),
    "a wait in other words": (event(0, "FailedScheduling", "why: not"), (What.WAITING, None, None, None, "why: not")),
    "a conflict": (
        event(0, "GpuConflict", "GpuConflict: GPU 0 of node1 is held by ml/a and by ml/b at once; delete one"),
        (What.CONFLICT, None, None, "GpuConflict", "GPU 0 of node1 is held by ml/a and by ml/b at once; delete one"),
    ),
    "something else": (event(0, "Pulled", "image pulled"), None),
    "no time": (event(0, "Scheduled", "x", times=(None, "", "yesterday")), None),
}


@pytest.mark.parametrize(("given", "expected"), EVENTS.values(), ids=EVENTS)
def test_an_event_says_what_was_decided(given: PodEvent, expected: tuple[Any, ...] | None) -> None:
    """By its reason, and by the words of our messages."""
    assert seen(from_event(given)) == expected


def test_an_event_that_recurred_has_count_and_last_time() -> None:
    """Of its series, or of its own fields."""
    (entry,) = timeline([entry_of(event(1, "FailedScheduling", "x", count=3, last=(text(9), text(4))))])

    assert (entry.count, entry.time, entry.until) == (3, at(1), at(9))


def entry_of(given: PodEvent) -> Entry:
    entry = from_event(given)
    assert entry is not None
    return entry


def logged(given: dict[str, Any]) -> Entry:
    entry = from_log(given, "r")
    assert entry is not None
    return entry


PODS: dict[str, tuple[dict[str, Any], list[tuple[Any, ...]]]] = {
    "a bound pod": (assigned(5), [(What.BOUND, "node1", ("0", "1"), None, "")]),
    "a bound pod that says why": (
        assigned(5, reason="map: index 0"),
        [(What.BOUND, "node1", ("0", "1"), None, "map: index 0")],
    ),
    "a waiting pod": (condition(1, f"GpuHeld: {HELD}"), [(What.WAITING, None, None, "GpuHeld", HELD)]),
    "a condition in other words": (condition(1, "busy", "Odd"), [(What.WAITING, None, None, "Odd", "busy")]),
    "a condition that says yes": (condition(1, "", status="True"), []),
    "a pod that nobody has decided on": ({}, []),
    "a pod whose time is none": (assigned(5, at="soon"), []),
}


@pytest.mark.parametrize(("body", "expected"), PODS.values(), ids=PODS)
def test_a_pod_says_what_was_decided(body: dict[str, Any], expected: list[tuple[Any, ...]]) -> None:
    """By the annotations of its Binding, and by its condition."""
    assert list(map(seen, read({**body}))) == expected


LINES: dict[str, tuple[dict[str, Any], tuple[Any, ...] | None]] = {
    "a bind": (BOUND_LINE, (What.BOUND, "node1", ("0", "1"), None, "")),
    "a bind that says why": (
        {**BOUND_LINE, "strategy": "best_fit", "reason": "2 left"},
        (What.BOUND, "node1", ("0", "1"), None, "best_fit: 2 left"),
    ),
    "a wait": (WAIT_LINE, (What.WAITING, None, None, "GpuHeld", HELD)),
    "another line about a pod": (line(0, "Binding failed", node="node1"), None),
    "a line about no pod": ({"event": "It leads", "timestamp": text(0)}, None),
    "a line with a number": (line(0, "x") | {"event": 3}, None),
    "a line without a time": (BOUND_LINE | {"timestamp": None}, None),
}


@pytest.mark.parametrize(("given", "expected"), LINES.values(), ids=LINES)
def test_a_log_line_says_what_was_decided(given: dict[str, Any], expected: tuple[Any, ...] | None) -> None:
    """By the texts of our log lines."""
    assert seen(from_log(given, "gpu-scheduler-0")) == expected


def test_the_scheduler_writes_these_texts(caplog: pytest.LogCaptureFixture) -> None:
    """A real decision's event and log line are understood."""
    free = decide(pod("train-0"), Cluster(ledger(), nodes(), Volumes(), POLICY))
    assert isinstance(free, Bind)
    bind = entry_of(event(0, "Scheduled", free.message))
    assert (bind.node, bind.devices, bind.message) == ("node1", ("0", "1"), "index 0")

    waiting = pod("late-0", "0=node1:0\n", owner=None)
    held = Cluster(ledger(running("first-0", "node1"), known=nodes(node("node1"))), nodes(), Volumes(), POLICY)
    wait = decide(waiting, held)
    assert isinstance(wait, Wait)
    with caplog.at_level(logging.INFO):
        StatusWriter(FakeEventRecorder()).write(PodState(waiting, 0.0), wait)
    (record,) = caplog.records
    logged = from_log({**vars(record), "event": record.getMessage(), "timestamp": text(0)}, "gpu-scheduler-0")
    reported = entry_of(event(0, "FailedScheduling", wait.message, pod="late-0", namespace="default"))
    assert logged is not None
    assert (seen(logged), logged.pod) == (seen(reported), "late-0")


@pytest.mark.promise("history-1")
def test_each_decision_is_one_row() -> None:
    """A wait and a bind, each reported by an event, the pod and a log line."""
    sources = [
        from_event(BOUND),
        from_log(WAIT_LINE, "gpu-scheduler-0"),
        *read(assigned(4.8)),
        from_event(WAITED),
        from_log(BOUND_LINE, "gpu-scheduler-0"),
    ]

    wait, bind = timeline(entry for entry in sources if entry is not None)

    everything = (Source.EVENT, Source.POD, Source.LOG)
    assert (seen(wait), wait.time, wait.count) == ((What.WAITING, None, None, "GpuHeld", HELD), at(1), 1)
    assert (wait.sources, wait.uid, wait.by) == ((Source.EVENT, Source.LOG), "u-1", "gpu-scheduler-0_1")
    assert (seen(bind), bind.time) == ((What.BOUND, "node1", ("0", "1"), None, "index 0"), at(4.8))
    assert (bind.sources, bind.uid, bind.by) == (everything, "u-1", "gpu-scheduler-0_1")


ROWS: dict[str, tuple[list[Entry], list[tuple[Any, ...]]]] = {
    "a condition belongs to the last wait with its message": (
        [
            entry_of(event(1, "FailedScheduling", "GpuHeld: a")),
            entry_of(event(2, "FailedScheduling", "GpuHeld: b")),
            *read(condition(1, "GpuHeld: b")),
        ],
        [(1, "a", 1, "event"), (2, "b", 1, "event,pod")],
    ),
    "a condition alone": (read(condition(1, "GpuHeld: b")), [(1, "b", 1, "pod")]),
    "the same wait again counts": (
        [entry_of(event(seconds, "FailedScheduling", "GpuHeld: a")) for seconds in (1, 2, 5)],
        [(1, "a", 3, "event")],
    ),
    "another wait between them makes two": (
        [entry_of(event(seconds, "FailedScheduling", f"GpuHeld: {what}")) for seconds, what in enumerate("aba")],
        [(0, "a", 1, "event"), (1, "b", 1, "event"), (2, "a", 1, "event")],
    ),
    "a later pod of the same name": (
        [
            entry_of(event(1, "FailedScheduling", "GpuHeld: a")),
            entry_of(event(2, "FailedScheduling", "GpuHeld: a", uid="u-2")),
        ],
        [(1, "a", 1, "event"), (2, "a", 1, "event")],
    ),
    "two pods of one name are bound, and each has its log line": (
        [
            entry_of(BOUND),
            logged(BOUND_LINE),
            entry_of(replace(BOUND, uid="u-2", times=(text(30),))),
            logged({**BOUND_LINE, "timestamp": text(29)}),
        ],
        [(4.9, "index 0", 1, "event,log"), (29, "index 0", 1, "event,log")],
    ),
    "a log line of another node, and one of another hour": (
        [entry_of(BOUND), logged({**BOUND_LINE, "node": "node2"}), logged({**BOUND_LINE, "timestamp": text(4000)})],
        [(4.9, "", 1, "log"), (5, "index 0", 1, "event"), (4000, "", 1, "log")],
    ),
}


@pytest.mark.promise("history-1")
@pytest.mark.parametrize(("entries", "expected"), ROWS.values(), ids=ROWS)
def test_rows(entries: list[Entry], expected: list[tuple[Any, ...]]) -> None:
    """Time, message, count and sources of each row, oldest first."""
    rows = [(each.time, each.message, each.count, ",".join(each.sources)) for each in timeline(entries)]

    assert rows == [(at(seconds), *rest) for seconds, *rest in expected]


def test_only_the_last_hour() -> None:
    """What was decided earlier, and still was within the time, is shown."""
    early = entry_of(event(0, "FailedScheduling", "GpuHeld: a", last=(text(5000),)))

    shown = timeline([early, entry_of(BOUND), entry_of(replace(BOUND, uid="u-3", times=(text(4000),)))], at(3600))

    assert [each.time for each in shown] == [at(0), at(4000)]


def any_entry() -> st.SearchStrategy[Entry]:
    """Return entries of few pods, texts and times, so that many belong together."""
    few = st.sampled_from
    return st.builds(
        Entry,
        st.integers(0, 90).map(at),
        few(("ml", "lab")),
        few(("train-0", "train-1")),
        few(What),
        few(Source),
        few(("", "u-1", "u-2")),
        few((None, "node1", "node2")),
        few((None, (), ("0",))),
        message=few(("a", "b")),
    )


@pytest.mark.promise("history-1")
@given(st.lists(any_entry(), max_size=12), st.randoms())
def test_the_order_of_the_sources_does_not_matter(entries: list[Entry], dice: Any) -> None:
    """No decision is lost, none is reported twice by one source, and rows are in order."""
    rows = timeline(entries)
    mixed = list(entries)
    dice.shuffle(mixed)

    assert {(each.namespace, each.pod, each.what, each.time) for each in timeline(mixed)} == {
        (each.namespace, each.pod, each.what, each.time) for each in rows
    }
    assert [each.time for each in rows] == sorted(each.time for each in rows)
    assert len(rows) <= len(entries)
    known = {(each.namespace, each.pod, each.what) for each in entries}
    assert {(each.namespace, each.pod, each.what) for each in rows} == known
    binds = [(each.namespace, each.pod, each.uid) for each in rows if each.what is What.BOUND and each.uid]
    assert len(binds) == len(set(binds))


FIELDS = st.sampled_from(("event", "timestamp", "pod", "node", "devices", "strategy", "reason"))


@given(st.dictionaries(FIELDS, st.none() | st.integers() | st.text() | st.lists(st.text(), max_size=2)))
def test_no_log_line_raises(given_line: dict[str, Any]) -> None:
    """Whatever a line of JSON has, it gives an entry or none."""
    from_log(given_line, "gpu-scheduler-0")
