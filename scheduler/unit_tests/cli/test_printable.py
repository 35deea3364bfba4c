"""Whatever a user writes into an object: the output of each verb has no more lines, and only printable characters."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from gpu_scheduler.cli.columns import health_listing, nodes_listing, status_screen, strategy_listing, workloads_listing
from gpu_scheduler.cli.doctor.findings import CheckFinding
from gpu_scheduler.cli.doctor.views import doctor_listing, finding_view
from gpu_scheduler.cli.options import FailedError, Options, Output, print_error
from gpu_scheduler.cli.output import Listing, as_json, as_yaml, listed, render
from gpu_scheduler.cli.planning.columns import plan_listing, plan_screen, plan_view
from gpu_scheduler.cli.planning.planner import Cause, Outcome, PlannedPod
from gpu_scheduler.cli.verbs.describe import described
from gpu_scheduler.cli.verbs.history import history_listing
from gpu_scheduler.cli.verbs.replay import replay_listing
from gpu_scheduler.cli.verbs.watch_screen import content_of
from gpu_scheduler.cli.verbs.watch_state import NODE, WORKLOAD, ClusterFacts, line_of
from unit_tests.cli.scripted_cluster import Capsys

Facts = dict[str, Any]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SINCE = "2026-01-01T00:00:00Z"
# A window's title, a cleared screen, both as C1 codes too, a text turned around, and a row that nobody has.
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b2J\x9d0;x\x9c\u202e\u2028\r\nforged   Pod   Running\n\t\x7f\U000e0041"


def device(text: str) -> Facts:
    """Return a device with this text in each field that can have any."""
    observer = {"namespace": text, "name": text}
    holder = {**observer, "kind": "Pod", "memoryMiB": 1, "since": SINCE, "line": 1}
    numbers = dict.fromkeys(("memoryTotalMiB", "memoryUsedMiB", "utilization", "temperature", "power"), 1)
    words = dict.fromkeys(("node", "device", "uuid", "model", "health", "why"), text)
    return {**words, **numbers, "stale": False, "available": True, "holders": [holder], "observers": [observer]}


def node(text: str) -> Facts:
    """Return a node with this text in each field that can have any."""
    words = dict.fromkeys(("name", "alias", "health", "tier", "why"), text)
    taints = [dict.fromkeys(("key", "value", "effect"), text)]
    numbers = dict.fromkeys(("memoryTotalMiB", "memoryUsedMiB", "utilization"), 1)
    gpus = {"total": 1, "held": 1, "available": 0, "unnamed": 0}
    states = {"ready": True, "cordoned": False, "stale": True}
    return {**words, **numbers, **states, "gpus": gpus, "models": [text], "taints": taints, "cards": [device(text)]}


def workload(text: str) -> Facts:
    """Return a workload with this text in each field that can have any."""
    words = (
        *("namespace", "name", "uid", "objectKind", "phase", "node"),
        *("strategy", "reason", "message", "why", "workload"),
    )
    times = {"createdAt": SINCE, "since": SINCE}
    return {**dict.fromkeys(words, text), **times, "devices": [text], "observer": True, "priority": 1}


def status(text: str) -> Facts:
    """Return the view of `status` with this text in each field that can have any."""
    waiting = {**dict.fromkeys(("namespace", "name", "reason", "message"), text), "observer": False, "since": SINCE}
    held = {"device": text, "state": "held", "holders": [text]}
    limit = {"namespace": text, "devices": 1, "held": 1, "priority": 1}
    return {
        "context": text,
        "server": text,
        "leader": {"holder": text, "since": SINCE},
        "strategy": {"name": text, "source": text},
        "gpus": {"total": 1, "held": 1, "available": 0, "unhealthy": 1},
        "nodes": {"total": 1, "ready": 1, "withGpus": 1, "stale": [text]},
        "workloads": {"pending": 1, "running": 0, "waiting": [waiting]},
        "limits": {"lines": [limit], "faults": [text]},
        "conflicts": [{"node": text, "device": text, "pods": [text, text], "kinds": ["Pod", "ResourceClaim"]}],
        "grid": [{"node": text, "unnamed": 0, "devices": [held]}],
    }


def decision(text: str) -> Facts:
    """Return a decision of the past with this text in each field that can have any."""
    words = dict.fromkeys(("namespace", "pod", "uid", "what", "node", "reason", "message", "by"), text)
    times = dict.fromkeys(("time", "lastTime"), SINCE)
    return {**words, **times, "devices": [text], "observer": True, "count": 1, "sources": ["event"]}


def replayed(text: str) -> Facts:
    """Return a replayed decision with this text in each field that can have any."""
    before = {"verdict": text, "reason": text, "message": text}
    now = {"verdict": text, "placement": {"node": text, "devices": [text]}, "message": text}
    return {"namespace": text, "name": text, "line": 1, "before": before, "now": now, "differs": True}


LISTINGS: dict[str, Callable[[str], Listing]] = {
    "nodes": lambda text: nodes_listing([node(text)]),
    "health": lambda text: health_listing([device(text)]),
    "workloads": lambda text: workloads_listing([workload(text)], namespaces=True, now=NOW),
    "strategy": lambda text: strategy_listing(text, text),
    "doctor": lambda text: doctor_listing([finding_view(CheckFinding(text, "", text, check=text))]),
    "history": lambda text: history_listing([decision(text)], namespaces=True),
    "replay": lambda text: replay_listing([replayed(text)]),
}


def legible(output: str) -> bool:
    """Whether the output has only printable characters and line feeds."""
    return output.replace("\n", "").isprintable()


def listings(text: str) -> list[Listing]:
    """Return the listing of each verb, with one row each."""
    return [make(text) for make in LISTINGS.values()]


@given(text=st.text())
@example(text=HOSTILE)
def test_a_table_has_a_printable_line_for_each_row(text: str) -> None:
    """Also as names."""
    for listing in listings(text):
        for output, lines in ((Output.TABLE, 2), (Output.WIDE, 2), (Output.NAME, 1)):
            printed = render(listing, Options(output=output))
            assert (printed.count("\n"), printed[-1], legible(printed)) == (lines, "\n", True)


@given(text=st.text())
@example(text=HOSTILE)
def test_json_and_yaml_are_printable_and_keep_the_data(text: str) -> None:
    """A program reads what the API server has."""
    for listing in listings(text):
        printed = [render(listing, Options(output=output)) for output in (Output.JSON, Output.YAML)]
        assert all(map(legible, printed))
        assert [json.loads(printed[0]), yaml.safe_load(printed[1])] == [listed(listing)] * 2


def test_the_characters_of_all_languages_stay_as_they_are() -> None:
    """They are escaped only beside a character that is not printable."""
    assert as_json(["40 °C, Größe"]) == '["40 °C, Größe"]'
    assert as_yaml(["40 °C, Größe"]) == "- 40 °C, Größe\n"


@given(text=st.text())
@example(text=HOSTILE)
def test_the_screen_of_status_has_a_printable_line_for_each_fact(text: str) -> None:
    """Facts, and two tables of one row, each after an empty line."""
    for output in (Output.TABLE, Output.WIDE):
        printed = status_screen(status(text), NOW, Options(output=output))
        assert (printed.count("\n"), legible(printed)) == (len(FACTS) + 2 * 3, True)


FACTS = ("Cluster", "Leader", "Strategy", "GPUs", "Nodes", "Monitors", "Limits", "Limits", "Workloads", "GpuConflict")


@given(text=st.text())
@example(text=HOSTILE)
@example(text=" " * 90)
def test_a_plan_has_only_printable_lines(text: str) -> None:
    """Titles, the pod, an empty line and the sentence; more only where a terminal is too narrow for the message."""
    pod = PlannedPod(text, text, (text, text, text), Cause.NEW, Outcome.FITS, text, text, (text,), volumes=(text,))
    view = plan_view([pod], [], [text], of_waiting=False)
    for wide in (False, True):
        printed = plan_screen(view, width=None, wide=wide, headers=True)
        assert (printed.count("\n"), legible(printed)) == (4, True)
        assert all(legible(plan_screen(view, width=width, wide=wide, headers=False)) for width in (1, 120))
    for output in (Output.JSON, Output.YAML):
        assert legible(render(plan_listing(view), Options(output=output)))


@given(text=st.text())
@example(text=HOSTILE)
def test_a_change_is_one_printable_line(text: str) -> None:
    """On a pipe."""
    for kind, view in ((NODE, node(text)), (WORKLOAD, workload(text)), (WORKLOAD, {**workload(text), "node": None})):
        for change in ("ADDED", "DELETED"):
            assert line_of(change, (kind, text, text), view).isprintable()


@given(text=st.text())
@example(text=HOSTILE)
def test_the_live_screen_has_only_printable_lines(text: str) -> None:
    """The terminal would obey escape codes."""
    view = {(NODE, "", text): node(text), (WORKLOAD, text, text): workload(text)}
    facts = ClusterFacts(text, text, (text,))
    for width in (20, 80):
        content = content_of(view, facts, NOW, width=width, wide=True, coloured=False)
        assert all(line.isprintable() for line in (*content.head, *content.body))


@given(text=st.text())
@example(text=HOSTILE)
def test_an_expression_of_the_user_prints_printable_values(text: str) -> None:
    """JSONPath and custom columns print values as a table does."""
    for listing in listings(text):
        for output, expression in (
            (Output.JSONPATH, "{.items[*]}{.items[*].name}"),
            (Output.CUSTOM_COLUMNS, "A:.name"),
        ):
            assert legible(render(listing, Options(output=output, expression=expression)))


@given(text=st.text())
@example(text=HOSTILE)
def test_a_description_has_only_printable_lines(text: str) -> None:
    """Its titles are ours, its values are users'."""
    for view in (node(text), device(text), workload(text)):
        assert all(line.isprintable() for line in described(view))


def test_an_error_is_one_printable_line(capsys: Capsys) -> None:
    """It quotes messages of the API server, which quote users."""
    print_error(FailedError(f"cannot place it: {HOSTILE}"))

    printed = capsys.readouterr().err
    assert (printed.count("\n"), legible(printed)) == (1, True)
    assert "\\x1b]0;owned" in printed
