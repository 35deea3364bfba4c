"""I5: the scheduler's ledger agrees with a fresh list."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from tests.auditor.findings import Violation
from tests.oracle.reference import Hold, holds, objects_of, plugins

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.command import Command
    from tests.kube_client import KubeClient


class Dumped(msgspec.Struct):
    """One holder in the dump of the scheduler's ledger."""

    pod: str
    uid: str
    node: str
    devices: tuple[str, ...]
    unnamed: int
    index: int | None
    workload: str | None
    assumed: bool


class Dump(msgspec.Struct):
    """The answer of GET /debug/ledger."""

    holders: list[Dumped]


def ledger_differs(kube: KubeClient, command: Command, seconds: float) -> Iterator[Violation]:
    """I5: after `seconds` the ledger still differs from a fresh list. Binds in flight do not count."""
    deadline = time.monotonic() + seconds
    found = list(_differences(kube, command))
    while found and time.monotonic() < deadline:
        time.sleep(0.005)
        found = list(_differences(kube, command))
    yield from found


def _differences(kube: KubeClient, command: Command) -> Iterator[Violation]:
    status, text = command.get("/debug/ledger")
    assert command.process.alive(), f"the scheduler has ended: {command.process.output()[-1000:]}"
    assert status == 200, f"the scheduler shows no ledger: start it with DEBUG_ENDPOINTS=true ({status} {text})"
    dumped = {each.uid: each for each in msgspec.json.decode(text, type=Dump).holders}
    pods = objects_of(kube.raw("GET", "/api/v1/pods")[1])
    listed = holds(pods, plugins(objects_of(kube.raw("GET", "/api/v1/nodes")[1])))
    unbound = {pod.metadata.uid for pod in pods if not pod.spec.node_name}
    for uid in listed.keys() | dumped.keys():
        one, other = listed.get(uid), dumped.get(uid)
        if one is None and other is not None and other.assumed and uid in unbound:
            # Its bind is in flight.
            continue
        output = None if other is None else _hold(other)
        if one != output:
            yield Violation("I5", f"of {uid} the list says {one}, the ledger {output}")


def _hold(dumped: Dumped) -> Hold:
    return Hold(dumped.pod, dumped.node, dumped.devices, dumped.unnamed, dumped.index, dumped.workload)
