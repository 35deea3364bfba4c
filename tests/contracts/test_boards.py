"""The Grafana boards are what their code makes, ask for metrics that exist, and explain each value."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Final

import pytest

from boards import generate
from gpu_scheduler.core.reasons import Reason
from tests.boards import FOLDER, NAMES, panels_of, queries_of, read_board
from tests.contracts.roles import ROOT
from tests.pages.metrics import registries, rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.objects import Object

COLUMNS: Final = 24
# A ConfigMap has at most 1 MiB, and all boards are in one.
BYTES: Final = 200_000
OF_TARGETS: Final = frozenset({"namespace", "pod", "job"})
"""Labels that the operator of Prometheus gives each series."""
NOT_OURS: Final = frozenset({"up", "process_cpu_seconds_total", "process_resident_memory_bytes"})
"""Metrics of Prometheus and of its client library, which have no labels of their own."""
AGGREGATIONS: Final = re.compile(r"\b(?:sum|max|min|avg|count)\b")
GROUPING: Final = re.compile(r"\bby \(([^)]*)\)")
JOINED: Final = re.compile(r'label_join\((.*), "(\w+)", ":", "node", "gpu"\)')
SELECTOR: Final = re.compile(r"\b([a-zA-Z_]\w*)\b(?!\s*\()(?:\{([^}]*)\})?")
MATCHER: Final = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
LEGEND: Final = re.compile(r"\{\{(\w+)\}\}")
WORDS: Final = frozenset({"or", "and", "by"})


def series() -> dict[str, frozenset[str]]:
    """Return the labels of each series that our programs serve."""
    found = {}
    for registry in registries().values():
        for name, kind, labels, _ in rows(registry):
            own = frozenset(re.findall(r"\w+", labels))
            found[name] = own
            if kind == "histogram":
                found[f"{name}_bucket"] = own | {"le"}
    return found | dict.fromkeys(NOT_OURS, frozenset())


def selectors(expr: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each metric of a query, with the labels that it is selected by."""
    bare = GROUPING.sub("", JOINED.sub(r"\1", re.sub(r"\[[^]]*\]", "", expr)))
    for name, matchers in SELECTOR.findall(bare):
        if name not in WORDS:
            yield name, MATCHER.findall(matchers)


def faults_of(expr: str, legend: str, known: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """Yield what is wrong with a query: metrics and labels that no program of ours serves, or no aggregation."""
    having: set[str] = set(OF_TARGETS)
    for name, labels in selectors(expr):
        if name not in known:
            yield f"no program serves {name}"
        own = known.get(name, frozenset()) | OF_TARGETS
        having |= own
        yield from (f"{name} has no label {label}" for label in labels if label not in own)
    made = {label for _, label in JOINED.findall(expr)}
    grouped = {label for labels in GROUPING.findall(expr) for label in labels.split(", ")}
    yield from (f"nothing has a label {label}" for label in sorted(grouped - having - made))
    yield from (f"no label {label} is left for the legend" for label in LEGEND.findall(legend) if label not in grouped)
    if not AGGREGATIONS.search(expr):
        yield "replicas are not aggregated"


@pytest.fixture(params=NAMES)
def board(request: pytest.FixtureRequest) -> Object:
    """Each board."""
    return read_board(request.param)


def test_boards_are_fresh() -> None:
    """The files are what `make fmt` makes, there is no other, and all fit into one ConfigMap."""
    made = generate.files()

    stale = [
        str(path.relative_to(ROOT)) for path, text in made.items() if not path.is_file() or path.read_text() != text
    ]
    assert not stale, f"run `make fmt`: {stale}"
    assert sorted(made) == sorted(FOLDER.iterdir()) == sorted(FOLDER / f"{name}.json" for name in NAMES)
    assert all(len(text.encode()) < BYTES for text in made.values())


def test_boards_are_found_by_the_others(board: Object) -> None:
    """Its uid stays, it asks the data source that the user chooses, and it links to all boards of the tag."""
    assert board["uid"] in {f"gpu-scheduler-{name}" for name in NAMES}
    assert board["tags"] == ["gpu-scheduler"]
    assert board["refresh"] == "30s"
    (link,) = (each for each in board["links"] if each["type"] == "dashboards")
    assert (link["tags"], link["keepTime"]) == (["gpu-scheduler"], True)
    first, *others = board["templating"]["list"]
    assert (first["name"], first["type"], first["query"]) == ("datasource", "datasource", "prometheus")
    assert all(each["datasource"]["uid"] == "${datasource}" for each in others)


@pytest.mark.promise("board-2")
def test_each_panel_explains_its_value(board: Object) -> None:
    """It has a unit, and a description with the meaning and with what to do; text has only a description."""
    for panel in panels_of(board):
        assert len(panel["description"].split()) > 5, panel["title"]
        if panel["type"] != "text":
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
            asked = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
            assert {each["uid"] for each in asked} == {"${datasource}"}, panel["title"]


@pytest.mark.promise("board-2")
def test_queries_ask_for_what_is_served(board: Object) -> None:
    """Each metric and label of a query and of its legend is served, and replicas are aggregated: one of them leads."""
    known = series()

    assert [
        f"{query.place}: {fault}: {query.expr}"
        for query in queries_of(board)
        for fault in faults_of(query.expr, query.legend, known)
    ] == []


@pytest.mark.promise("board-2")
def test_each_metric_is_on_a_board() -> None:
    """A metric that no board shows would be one that nobody reads."""
    asked = {
        name.removesuffix("_bucket")
        for board in map(read_board, NAMES)
        for query in queries_of(board)
        for name, _ in selectors(query.expr)
    }
    ours = {row[0] for registry in registries().values() for row in rows(registry)}

    assert ours - asked == set()


def test_panels_stand_beside_each_other(board: Object) -> None:
    """None overlaps another, and none reaches over the edge. Each has a number of its own."""
    every = [*board["panels"], *(inner for panel in board["panels"] for inner in panel.get("panels") or ())]
    places = [(each["title"], each["gridPos"]) for each in every]

    for (one, a), (other, b) in itertools.combinations(places, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        assert beside or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"], (one, other)
    assert all(at["x"] + at["w"] <= COLUMNS for _, at in places)
    assert len({each["id"] for each in every}) == len(every)


def test_board_waiting_explains_each_reason() -> None:
    """It has what docs/reasons.md says of each, and its links lead to the pages."""
    (text,) = (panel["options"]["content"] for panel in panels_of(read_board("waiting")) if panel["type"] == "text")

    assert set(re.findall(r"^\| \[(\w+)\]", text, re.MULTILINE)) == set(Reason)
    assert all(address.startswith("https://") for address in re.findall(r"\]\(([^)]*)\)", text))
