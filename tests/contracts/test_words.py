"""Identifiers and names of files use kube-scheduler's words, not the former ones of this project."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

import pytest

from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FORMER: Final = {
    "afar": "proxied",
    "announcing": "event recorder",
    "backlog": "scheduling queue",
    "beat": "heartbeat, renew",
    "beats": "renews",
    "bench": "benchmark; namespace in tests",
    "breath": "batch",
    "calm": "quiet",
    "card": "device",
    "cards": "devices",
    "careless": "the fault's own name",
    "crew": "replicas",
    "crooked": "wrong",
    "crowd": "waiting pods",
    "crowded": "contended",
    "crowds": "waiting pods",
    "cure": "remedy",
    "cures": "remedies",
    "damped": "back-off",
    "damping": "rejection back-off",
    "deaf": "pending",
    "deed": "action",
    "deeds": "actions",
    "demand": "resource request",
    "desk": "sink",
    "doings": "handlers",
    "dying": "terminating, killed",
    "face": "static fit",
    "farewell": "cancellation",
    "feed": "event handler",
    "feeds": "event handlers",
    "flight": "bind in flight",
    "flights": "binds in flight",
    "fly": "bind",
    "flying": "in flight",
    "gathering": "cluster cache",
    "gauge": "usage",
    "gauging": "usage",
    "greet": "check",
    "hasten": "run delayed",
    "hear": "receive",
    "heard": "applied, last response",
    "hears": "receives",
    "heart": "node lease",
    "hint": "requeue",
    "hints": "requeues",
    "homes": "namespaces",
    "house": "installed cluster",
    "hurry": "poll watches",
    "hush": "withdraw condition",
    "lack": "filter failure",
    "lacking": "missing",
    "lacks": "misses",
    "land": "finish bind",
    "landing": "binding cycle",
    "lands": "is bound",
    "lane": "queue",
    "lanes": "queues",
    "letter": "pending notice",
    "letters": "pending notices",
    "listen": "receive",
    "listens": "receives",
    "look": "check, sample",
    "looked": "checked",
    "looks": "reconciles, reads",
    "makings": "creations",
    "mishap": "fault",
    "notices": "pending notices",
    "obstacle": "unschedulable",
    "occupancy": "used resources",
    "plant": "create",
    "promised": "assumed",
    "pulse": "heartbeat age",
    "racks": "node devices",
    "reigns": "leaders",
    "residents": "foreign pods",
    "rhythm": "timings",
    "ring": "suite",
    "rush": "churn",
    "said": "output, message",
    "scene": "watch state",
    "seat": "device",
    "seats": "devices",
    "shape": "equivalence class",
    "shapes": "equivalence classes",
    "sheet": "printed table",
    "sheets": "columns",
    "shelf": "collection",
    "shelves": "collections",
    "shout": "print",
    "sighting": "monitor lease",
    "sightings": "monitor leases",
    "sparingly": "throttled",
    "speak": "serve, report",
    "speaks": "reports",
    "spendthrift": "the setting's own name",
    "spoil": "damage",
    "spoilt": "damaged",
    "spot": "device part",
    "steer": "set strategy",
    "steering": "dynamic config",
    "stir": "wakeup",
    "stock": "node fit",
    "strangers": "foreign pods",
    "survey": "snapshot",
    "switchboard": "faults",
    "tally": "diagnosis",
    "tell": "report, log",
    "teller": "status writer",
    "tellers": "columns",
    "telling": "report",
    "tells": "reports",
    "told": "reported",
    "touched": "node generation",
    "town": "cluster under test",
    "tracked": "pod state",
    "trouble": "failure",
    "unclaim": "withdraw",
    "unsettled": "bind unknown since",
    "wake": "requeue, resume",
    "wakes": "requeues",
    "wish": "request",
    "wished": "GPUWorkloads",
    "wishes": "requests, targets",
    "witness": "check workload",
    "woken": "requeued, resumed",
    "workshop": "control plane",
    "world": "cluster cache",
}
"""Former word → its replacement."""
EXCEPTIONS: Final = {
    "in_flight": "kube-apiserver limits requests in flight",
    "test_a_controller_finishes_its_writes_in_flight": "likewise",
    "test_a_bind_in_flight_is_settled_before_the_lease_is_given_up": "likewise",
    "BACKLOG": "the backlog of a listening socket",
    "ListenError": "likewise",
    "_listen": "likewise",
    "gauge": "a kind of metric of Prometheus",
    "read_labelled_gauge": "likewise",
    "tells": "the filter evidence_tells of role evidence",
    "test_block_is_the_promised_text": "a promise of the contract",
    "test_names_are_the_promised_ones": "a promise of the contract",
}
"""Identifier or name of a file → why it may keep the word: Kubernetes, Python or the contract use it."""
FOLDERS: Final = ("scheduler", "bench", "boards", "check", "plugins", "roles", "simulator", "tests")
MODULES: Final = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def identifiers(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and name of all that the module defines: classes, functions, parameters, variables, fields."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def words(name: str) -> list[str]:
    """Cut an identifier into its words, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def excepted(name: str) -> bool:
    """Whether the name is an exception, with or without underscores and in either case."""
    return name in EXCEPTIONS or name.strip("_").lower() in EXCEPTIONS


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_use_the_fields_words(path: Path) -> None:
    """No identifier and no file name contains a former word."""
    found = [
        f"line {line}: {name}: say {FORMER[word]}"
        for line, name in ((0, path.stem), *identifiers(path))
        if not excepted(name)
        for word in words(name)
        if word in FORMER
    ]

    assert found == []


def test_an_identifier_is_cut_into_its_words() -> None:
    """At underscores and at capitals."""
    assert words("_APIServer_take2Off") == ["api", "server", "take", "off"]
