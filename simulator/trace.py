"""A trace without faults: each change of the cluster, and what was decided after it, line by line as JSON.

Nothing else happens until everybody rests, so the decisions follow from the order of the changes alone, and whoever
makes the same changes at a real API server sees the same decisions.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from simulator.api_server.server import Server
from simulator.clock import Timeline
from simulator.cluster.actors import ClusterActors
from simulator.faults import Fault, Switchboard
from simulator.invariants.checker import BrokenError, Checker
from simulator.log_capture import jitter
from simulator.plan import Deed, plan
from simulator.replica_process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulator.api_server.store import Change, Object
    from simulator.replica_process import Start

FORMAT: Final = 1
CARDS: Final = 4
"""Of a node: few, so that pods wait for each other."""
REST: Final = 12.0
"""Seconds after each change: longer than any back-off."""
_CHANGES: Final = frozenset(
    {
        *(Deed.CREATE, Deed.FINISH, Deed.DELETE, Deed.REAP),
        *(Fault.NODE_CORDONED, Fault.NODE_NOT_READY, Fault.NODE_DELETED, Fault.NODE_GPUS, Fault.CAPACITY_TAKEN),
    }
)
_SYSTEM: Final = ("resourceVersion", "uid")

Line = dict[str, Any]


class TraceRecorder:
    """Notes what the cluster's actors change and what is decided, in their order."""

    def __init__(self, server: Server) -> None:
        """It notes from now on."""
        self._server = server
        self._shown: dict[str, Object] = {}
        self._changes: list[Line] = []
        self._decisions: list[Line] = []
        for kind in ("nodes", "pods"):
            server.shelves[kind].told.append(partial(self._changed, kind))
        server.hooks.bound.append(self._bound)
        server.hooks.told.append(self._told)

    def take(self) -> Iterator[Line]:
        """What happened since the last time: the changes, and then what was decided."""
        changes, self._changes = self._changes, []
        decisions, self._decisions = self._decisions, []
        yield from changes
        if decisions:
            yield {"decided": decisions}

    def _changed(self, kind: str, change: Change) -> None:
        """A change that no request asked for was made by the cluster's actors."""
        before = self._shown.get(change.key)
        if change.after is None:
            gone = self._shown.pop(change.key)
            self._changes.append({"remove": kind, "name": gone["metadata"]["name"]})
            return
        made = self._shown[change.key] = msgspec.json.decode(change.raw)
        if self._server.answering:
            return
        if before is None or kind == "nodes":
            self._changes.append({"create" if before is None else "replace": kind, "object": _bare(made)})
        elif "deletionTimestamp" in made["metadata"] and "deletionTimestamp" not in before["metadata"]:
            self._changes.append({"terminate": kind, "name": made["metadata"]["name"]})
        else:
            self._changes.append({"phase": made["status"]["phase"], "name": made["metadata"]["name"]})

    def _bound(self, pod: Object, _: Object) -> None:
        given = pod["metadata"]["annotations"]
        assigned = {
            key: given[f"agentaflow.gpu/assigned-{key}"]
            for key in ("node", "devices", "index")
            if f"agentaflow.gpu/assigned-{key}" in given
        }
        self._decisions.append({"bind": pod["metadata"]["name"], **assigned})

    def _told(self, pod: Object, message: str) -> None:
        self._decisions.append({"wait": pod["metadata"]["name"], "reason": message.partition(":")[0]})


def record(seed: int, steps: int, start: Start) -> Iterator[Line]:
    """The lines of a trace of one replica; BrokenError where something is wrong in it."""
    timeline, server = Timeline(), Server()
    recorder, checker = TraceRecorder(server), Checker(timeline, server)
    actors = ClusterActors(seed, timeline, server, waits=True, cards=CARDS)
    process = Process("one", start, timeline, server, Switchboard())
    yield {"format": FORMAT, "seed": seed, "steps": steps}
    with jitter(seed):
        try:
            timeline.run(REST)
            yield from recorder.take()
            for step in plan(seed, steps):
                if step.what not in _CHANGES or not actors.do(step):
                    continue
                timeline.run(REST)
                yield from recorder.take()
                # What was to end later ends before anything else changes.
                while actors.hasten():
                    timeline.run(REST)
                    yield from recorder.take()
                wrong = next(checker.waiting(), None)
                if wrong is not None:
                    raise BrokenError(wrong)
        finally:
            process.end()


def _bare(made: Object) -> Object:
    """As it is asked for: what an API server fills in is left out."""
    meta = {key: value for key, value in made["metadata"].items() if key not in _SYSTEM}
    return {**made, "metadata": meta}
