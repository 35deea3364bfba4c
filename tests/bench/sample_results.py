"""Builds sessions with invented results."""

from __future__ import annotations

from typing import Any

from bench.results import Cell, Cost, Growth, Machine, Measured, Session

WRONG: dict[str, Any] = {"wrong": ["a GPU was given twice"]}


def one(  # noqa: PLR0913 - the fields of the record
    contender: str,
    rate: float = 100.0,
    number: int = 1,
    *,
    workload: str = "W1",
    variant: str = "",
    pods: int = 1000,
    nodes: int = 500,
    cpu: float | None = None,
    **fields: Any,
) -> Measured:
    """Return a repetition with this rate of binds; events take twice the time."""
    seconds = pods / rate
    costs = {} if cpu is None else {contender: Cost(cpu, 80.0, 60.0)}
    given = {"to_last_event": 2 * seconds, "events": pods, "costs": costs, **fields}
    cell = Cell(workload, contender, variant, nodes, pods)
    return Measured(cell=cell, repetition=number, began="", to_last_bind=seconds, bound=pods, **given)


def size(
    nodes: int,
    pods: int,
    cost: float = 100.0,
    *,
    variant: str = "",
    memory: float | None = 2000.0,
) -> Measured:
    """Return the growth at one cluster size, with the same cost for every decision."""
    costs = {"first": cost, "pinned": cost, "strategy": cost, "line": cost, "event": cost, "collection": cost}
    growth = Growth(**costs, pod_memory=memory, claim_memory=None)
    cell = Cell("growth", "O", variant, nodes, pods)
    return Measured(cell=cell, repetition=1, began="", growth=growth)


def session(*measured: Measured) -> Session:
    """Return a session with these results."""
    machine = Machine("A processor", 2, 24103, "6.1.0")
    versions = {"kubernetes": "1.36.1", "etcd": "3.6.4"}
    return Session(
        name="quick",
        began="2026-01-02T03:04:05Z",
        commit="abc123-dirty",
        versions=versions,
        machine=machine,
        measured=list(measured),
    )
