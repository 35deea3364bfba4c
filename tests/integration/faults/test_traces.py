"""The simulator's traces, replayed on a real API server, give the same decisions.

A trace is recorded in virtual time with an API server in memory. Equal decisions show that the simulator runs the
scheduler as a real cluster does.
"""

from __future__ import annotations

import json
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from simulator.replica_process import starter
from simulator.trace import record
from tests.integration.barrier import settle
from tests.integration.command import start_alone
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace

    Line = dict[str, Any]

STEP: Final = int(os.environ.get("SWEEP_STEP", "7"))
"""Replay the trace of every seventh seed; suite sweeps replays every one."""
SEEDS: Final = range(1, 21, STEP)
CHANGES: Final = 70
"""Steps of a trace: about 20 binds, and waits for several reasons."""
QUICK: Final = "10ms"
"""The back-off. In a trace every back-off ends before the next change, so it must be short in real time."""
REST: Final = 0.02
"""Seconds in which each back-off has ended, however busy the machine is."""
FREE_ATTEMPTS: Final = "tests.integration.faults.program_with_free_attempts"
ASSIGNED: Final = "agentaflow.gpu/assigned-"


@pytest.fixture(scope="module")
def prompt(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """A replica that leads, with a short back-off, whose attempts cost nothing."""
    folder = tmp_path_factory.mktemp("prompt")
    journal = str(folder / "journal")
    times = {"POD_INITIAL_BACKOFF": QUICK, "POD_MAX_BACKOFF": QUICK}
    command = start_alone(plane, folder, "scheduler-0", None, FREE_ATTEMPTS, **times, DECISION_JOURNAL=journal)
    with command.serving(leads=True):
        yield command


class TracePlayer:
    """Applies the changes of a trace and checks its decisions."""

    def __init__(self, namespace: Namespace, replica: Command) -> None:
        self._namespace = namespace
        self._replica = replica
        assert replica.journal is not None
        self._journal = replica.journal
        # Of the test before: while its pods are deleted one by one, those that wait may be bound.
        settle(namespace, replica)
        self._compared = self._journal_size()
        self._foreign_pods: set[str] = set()
        self.bound: dict[str, Line] = {}

    def play(self, line: Line) -> None:
        """Apply a change of the trace, or check its decisions. AssertionError if they differ."""
        if "decided" in line:
            self._compare(line["decided"])
            return
        self._change(line)
        settle(self._namespace, self._replica)
        # The scenario: back-offs end between two changes.
        time.sleep(REST)
        settle(self._namespace, self._replica)

    def all_bound(self) -> dict[str, Line]:
        """Return node, devices and index of each bound pod of ours, by name."""
        status, answer = self._namespace.kube.call("GET", self._namespace.pods)
        assert status == 200, answer
        ours = (pod for pod in answer["items"] if pod["spec"]["schedulerName"] == "gpu-scheduler")
        return {pod["metadata"]["name"]: given(pod) for pod in ours if "nodeName" in pod["spec"]}

    def _change(self, line: Line) -> None:
        name = line.get("name") or line["object"]["metadata"]["name"]
        match line:
            case {"create": "nodes", "object": made}:
                self._until_received("node", name, lambda: self._namespace.add(made))
            case {"replace": "nodes", "object": made}:
                self._change_node(name, {"metadata": made["metadata"], "spec": made["spec"]})
                self._change_node(name, {"status": made["status"]})
            case {"remove": "nodes"}:
                self._until_received("node", name, lambda: self._namespace.kube.delete(f"/api/v1/nodes/{name}"))
            case {"create": "pods", "object": made} if "nodeName" in made["spec"]:
                self._foreign_pods.add(name)
                self._until_received("foreign_pod", name, lambda: self._make(made))
            case {"create": "pods", "object": made}:
                self._make(made)
            case _ if name in self._foreign_pods:
                self._until_received("foreign_pod", name, lambda: self._change_pod(name, line))
            case _:
                self._change_pod(name, line)

    def _make(self, made: Line) -> None:
        meta = {key: value for key, value in made["metadata"].items() if key != "namespace"}
        self._namespace.make({**made, "metadata": meta})

    def _change_pod(self, name: str, line: Line) -> None:
        match line:
            case {"phase": phase}:
                self._namespace.finish(name, phase)
                # A finished pod takes no resources, and the watch of foreign pods no longer reports it.
                self._foreign_pods.discard(name)
            case {"terminate": "pods"}:
                self._namespace.terminate(name)
            case {"remove": "pods"}:
                self._namespace.delete(name)
                self.bound.pop(name, None)
                self._foreign_pods.discard(name)

    def _change_node(self, name: str, part: Line) -> None:
        """Patch the node. Wait for the watch event unless the patch changed nothing: then there is none."""
        before, version = self._journal_size(), self._version(name)
        self._namespace.patch_node(name, part)
        if self._version(name) != version:
            self._wait_received("node", name, before)

    def _version(self, name: str) -> str:
        return str((self._namespace.kube.get(f"/api/v1/nodes/{name}") or {})["metadata"]["resourceVersion"])

    def _until_received(self, kind: str, name: str, change: Callable[[], None]) -> None:
        before = self._journal_size()
        change()
        self._wait_received(kind, name, before)

    def _journal_size(self) -> int:
        return self._journal.stat().st_size

    def _wait_received(self, kind: str, name: str, since: int) -> None:
        """Wait until the journal has the change: the order between its watch and that of our pods is undefined."""

        def received() -> bool:
            values = (line["value"] for line in self._journal_lines(since) if line.get("received") == kind)
            return any(name == (value["name"] if kind == "node" else value["ref"]["name"]) for value in values)

        eventually(f"the scheduler has received a change of {kind} {name}", received)

    def _journal_lines(self, since: int) -> list[Line]:
        with self._journal.open("rb") as file:
            file.seek(since)
            return [json.loads(line) for line in file.read().split(b"\n")[:-1]]

    def _compare(self, decided: list[Line]) -> None:
        for one in decided:
            if "bind" in one:
                place = {key: value for key, value in one.items() if key != "bind"}
                eventually(f"{one['bind']} is bound", partial(self._namespace.node_of, one["bind"]), 15)
                self.bound[one["bind"]] = place
            else:
                self._namespace.wait_message(one["wait"], f"{one['reason']}: ", 15)
        assert self.all_bound() == self.bound
        # Not by `assigned-at`: Bindings are sent at the same time, so that a later decision's may be the first.
        since, self._compared = self._compared, self._journal_size()
        bound = [line["decided"] for line in self._journal_lines(since) if line.get("verdict") == "bind"]
        assert bound == [f"{self._namespace.name}/{one['bind']}" for one in decided if "bind" in one]


def given(pod: Line) -> Line:
    """Return node, devices and index of a pod, from its annotations."""
    notes = pod["metadata"]["annotations"]
    return {key: notes[ASSIGNED + key] for key in ("node", "devices", "index") if ASSIGNED + key in notes}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_trace_is_decided_alike_by_a_real_server(seed: int, namespace: Namespace, prompt: Command) -> None:
    """Change by change the same pods are bound, in the same order, to the same GPUs, and wait for the same reasons."""
    player = TracePlayer(namespace, prompt)
    _, *lines = record(seed, CHANGES, starter())
    assert any("bind" in one for line in lines for one in line.get("decided", ()))

    for line in lines:
        player.play(line)

    assert player.all_bound() == player.bound
