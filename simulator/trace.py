"""Records a trace without faults: each change of the cluster and the decisions after it, as lines of JSON.

The next change waits until all replicas are idle, so the decisions follow from the order of the changes. The same
changes on a real API server give the same decisions.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpu_scheduler.core.decision import Bind
from gpu_scheduler.scheduler.ports import NoJournal
from simulator.api_server.server import Server
from simulator.clock import Timeline
from simulator.cluster.actors import ClusterActors
from simulator.faults import Fault, FaultState
from simulator.invariants.checker import BrokenError, Checker
from simulator.log_capture import deterministic
from simulator.plan import Action, plan
from simulator.replica_process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_scheduler.core.decision import Decision
    from gpu_scheduler.core.refs import PodRef
    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.process.lifecycle import Clocks
    from simulator.api_server.store import Change, Object
    from simulator.replica_process import Isolation, Replica, Start

FORMAT: Final = 1
DEVICES: Final = 4
"""Devices of a node: few, so that pods wait for each other."""
REST: Final = 12.0
"""Seconds after each change: longer than any back-off."""
_CHANGES: Final = frozenset(
    {
        *(Action.CREATE, Action.FINISH, Action.DELETE, Action.REAP),
        *(Fault.NODE_CORDONED, Fault.NODE_NOT_READY, Fault.NODE_DELETED, Fault.NODE_GPUS, Fault.CAPACITY_TAKEN),
    }
)
_SYSTEM: Final = ("resourceVersion", "uid")

Line = dict[str, Any]


class BindOrder(NoJournal):
    """The pods that were decided to be bound, in order. Binds are sent at once, so they may arrive in another order."""

    def __init__(self) -> None:
        """Start empty."""
        self._names: list[str] = []

    def decided(self, pod: PodRef, decision: Decision | None) -> None:
        """Remember a decision to bind."""
        if isinstance(decision, Bind):
            self._names.append(pod.name)

    def take(self, decisions: list[Line]) -> list[Line]:
        """Return the decisions with the binds in the order in which they were decided. Forget that order."""
        names, self._names = self._names, []
        binds = iter(sorted((one for one in decisions if "bind" in one), key=lambda one: names.index(one["bind"])))
        return [next(binds) if "bind" in one else one for one in decisions]


class TraceRecorder:
    """Records the changes of the cluster's actors and the decisions, in order."""

    def __init__(self, server: Server) -> None:
        """Record from now on."""
        self._server = server
        self.order = BindOrder()
        self._shown: dict[str, Object] = {}
        self._changes: list[Line] = []
        self._decisions: list[Line] = []
        for kind in ("nodes", "pods"):
            server.collections[kind].watchers.append(partial(self._changed, kind))
        server.hooks.bound.append(self._bound)
        server.hooks.conditions.append(self._condition_written)

    def take(self) -> Iterator[Line]:
        """Give the changes since the last call, and then the decisions."""
        changes, self._changes = self._changes, []
        decisions, self._decisions = self.order.take(self._decisions), []
        yield from changes
        if decisions:
            yield {"decided": decisions}

    def _changed(self, kind: str, change: Change) -> None:
        """Record a change that no request made, which is one of the cluster's actors."""
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

    def _condition_written(self, pod: Object, message: str) -> None:
        self._decisions.append({"wait": pod["metadata"]["name"], "reason": message.partition(":")[0]})


def record(seed: int, steps: int, start: Start) -> Iterator[Line]:
    """Give the lines of a trace of one replica; BrokenError if an invariant breaks."""
    timeline, server = Timeline(), Server()
    recorder, checker = TraceRecorder(server), Checker(timeline, server)
    actors = ClusterActors(seed, timeline, server, waits=True, devices=DEVICES)

    def journaled(api: ApiClient, clocks: Clocks, identity: str, isolation: Isolation) -> Replica:
        replica = start(api, clocks, identity, isolation)
        replica.scheduler.cache.journal = recorder.order
        return replica

    process = Process("one", journaled, timeline, server, FaultState())
    yield {"format": FORMAT, "seed": seed, "steps": steps}
    with deterministic(seed):
        try:
            timeline.run(REST)
            yield from recorder.take()
            for step in plan(seed, steps):
                if step.what not in _CHANGES or not actors.do(step):
                    continue
                timeline.run(REST)
                yield from recorder.take()
                # Delayed actions run before the next change.
                while actors.run_next_delayed():
                    timeline.run(REST)
                    yield from recorder.take()
                wrong = next(checker.waiting(), None)
                if wrong is not None:
                    raise BrokenError(wrong)
        finally:
            process.end()


def _bare(made: Object) -> Object:
    """Give the object without what an API server fills in."""
    meta = {key: value for key, value in made["metadata"].items() if key not in _SYSTEM}
    return {**made, "metadata": meta}
