"""One language: identifiers of the payload use kube-scheduler's words, not those that stood here before."""

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
    "announcing": "event recorder",
    "backlog": "scheduling queue",
    "beat": "heartbeat, renew",
    "damping": "rejection back-off",
    "demand": "resource request",
    "desk": "sink",
    "face": "static fit",
    "flight": "bind in flight",
    "flights": "binds in flight",
    "fly": "bind",
    "flying": "in flight",
    "gathering": "cluster cache",
    "heart": "node lease",
    "hint": "requeue",
    "hurry": "poll watches",
    "hush": "withdraw condition",
    "land": "finish bind",
    "landing": "binding cycle",
    "lane": "queue",
    "promised": "assumed",
    "pulse": "heartbeat age",
    "rhythm": "timings",
    "spot": "device part",
    "steer": "set strategy",
    "steering": "dynamic config",
    "stir": "wakeup",
    "stock": "node fit",
    "survey": "snapshot",
    "tally": "diagnosis",
    "teller": "status writer",
    "unsettled": "bind unknown since",
}
"""Former word → the field's."""
EXCEPTIONS: Final = frozenset({"in_flight", "IN_FLIGHT", "BACKLOG"})
"""What Kubernetes' own code says too, and the backlog of a listening socket."""
MODULES: Final = sorted((ROOT / "scheduler/gpu_scheduler").rglob("*.py"))


def identifiers(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and name of everything that the module defines: classes, functions, parameters, variables, fields."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def words(name: str) -> list[str]:
    """Cut an identifier into its words, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_identifiers_use_the_fields_words(path: Path) -> None:
    """A reader who knows kube-scheduler meets no second language."""
    found = [
        f"line {line}: {name}: say {FORMER[word]}"
        for line, name in identifiers(path)
        if name.strip("_") not in EXCEPTIONS
        for word in words(name)
        if word in FORMER
    ]

    assert found == []


def test_an_identifier_is_cut_into_its_words() -> None:
    """By underscores and by capitals."""
    assert words("_APIServer_take2Off") == ["api", "server", "take", "off"]
