"""The simulator's recorded traces, played before a real API server: the same changes lead to the same decisions.

What stands in a trace was decided in virtual time by an API server in memory; that they agree says that the simulator
shows the scheduler as it is.
"""

from __future__ import annotations

import json
import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.integration.command import start_alone
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.bench import Bench
    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane

    Line = dict[str, Any]

STEP: Final = int(os.environ.get("SWEEP_STEP", "3"))
"""Of the traces every third is played; suite sweeps plays each."""
FOLDER: Final = Path(__file__).resolve().parents[3] / "simulator" / "tests" / "traces"
TRACES: Final = sorted(FOLDER.glob("*.jsonl"))[::STEP]
REST: Final = 0.06
"""Seconds between two changes, in which what they lead to is decided."""
QUICK: Final = "10ms"
"""The back-off. In a trace everybody has rested before the next change; here nobody has to rest for long."""
ASSIGNED: Final = "agentaflow.gpu/assigned-"
SILENCE: Final = "gpu_scheduler_watch_silence_seconds"


@pytest.fixture(scope="module")
def prompt(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """One replica that leads and forgives quickly."""
    command = start_alone(
        plane, tmp_path_factory.mktemp("prompt"), "scheduler-0", POD_INITIAL_BACKOFF=QUICK, POD_MAX_BACKOFF=QUICK
    )
    try:
        command.wait_ready()
        eventually("it leads", command.leads)
        yield command
    finally:
        command.process.stop()


class Player:
    """Makes the changes of a trace, and looks for its decisions."""

    def __init__(self, bench: Bench, replica: Command) -> None:
        self._bench = bench
        self._replica = replica
        self._residents: set[str] = set()
        self.bound: dict[str, Line] = {}

    def play(self, line: Line) -> None:
        """One line."""
        if "decided" in line:
            self._compare(line["decided"])
            return
        self._change(line)
        time.sleep(REST)

    def all_bound(self) -> dict[str, Line]:
        """What every pod of ours was given that is there and has a node."""
        status, answer = self._bench.kube.call("GET", self._bench.pods)
        assert status == 200, answer
        ours = (pod for pod in answer["items"] if pod["spec"]["schedulerName"] == "gpu-scheduler")
        return {pod["metadata"]["name"]: given(pod) for pod in ours if "nodeName" in pod["spec"]}

    def _change(self, line: Line) -> None:
        name = line.get("name") or line["object"]["metadata"]["name"]
        match line:
            case {"create": "nodes", "object": made}:
                self._until_heard("nodes", lambda: self._bench.add(made))
            case {"replace": "nodes", "object": made}:
                self._change_node(name, {"metadata": made["metadata"], "spec": made["spec"]})
                self._change_node(name, {"status": made["status"]})
            case {"remove": "nodes"}:
                self._until_heard("nodes", lambda: self._bench.kube.delete(f"/api/v1/nodes/{name}"))
            case {"create": "pods", "object": made} if "nodeName" in made["spec"]:
                self._residents.add(name)
                self._until_heard("residents", lambda: self._make(made))
            case {"create": "pods", "object": made}:
                self._make(made)
            case _ if name in self._residents:
                self._until_heard("residents", lambda: self._change_pod(name, line))
            case _:
                self._change_pod(name, line)

    def _make(self, made: Line) -> None:
        meta = {key: value for key, value in made["metadata"].items() if key != "namespace"}
        self._bench.make({**made, "metadata": meta})

    def _change_pod(self, name: str, line: Line) -> None:
        match line:
            case {"phase": phase}:
                self._bench.finish(name, phase)
                # What has finished takes nothing, and its watch speaks of it no more.
                self._residents.discard(name)
            case {"terminate": "pods"}:
                self._bench.terminate(name)
            case {"remove": "pods"}:
                self._bench.delete(name)
                self.bound.pop(name, None)
                self._residents.discard(name)

    def _change_node(self, name: str, part: Line) -> None:
        """What leaves it as it was is no change, and nobody hears of it."""
        began, version = time.monotonic(), self._version(name)
        self._bench.patch_node(name, part)
        if self._version(name) != version:
            self._wait_heard("nodes", began)

    def _version(self, name: str) -> str:
        return str((self._bench.kube.get(f"/api/v1/nodes/{name}") or {})["metadata"]["resourceVersion"])

    def _until_heard(self, resource: str, change: Callable[[], None]) -> None:
        began = time.monotonic()
        change()
        self._wait_heard(resource, began)

    def _wait_heard(self, resource: str, began: float) -> None:
        """Our pods come by a watch of their own, and nothing but waiting keeps the order between two watches."""

        def heard() -> bool:
            asked = time.monotonic()
            return asked - self._replica.metric(f'{SILENCE}{{resource="{resource}"}}') > began

        eventually(f"the scheduler has heard of a change of {resource}", heard)

    def _compare(self, decided: list[Line]) -> None:
        for one in decided:
            if "bind" in one:
                place = {key: value for key, value in one.items() if key != "bind"}
                eventually(f"{one['bind']} is bound", partial(self._bench.node_of, one["bind"]), 15)
                self.bound[one["bind"]] = place
            else:
                self._bench.wait_message(one["wait"], f"{one['reason']}: ", 15)
        assert self.all_bound() == self.bound
        times = [self._bench.read(one["bind"])["metadata"]["annotations"] for one in decided if "bind" in one]
        at = [each[f"{ASSIGNED}at"] for each in times]
        assert at == sorted(at)


def given(pod: Line) -> Line:
    """Where it is, and with what."""
    notes = pod["metadata"]["annotations"]
    return {key: notes[ASSIGNED + key] for key in ("node", "devices", "index") if ASSIGNED + key in notes}


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.stem)
def test_a_recorded_trace_is_decided_alike_by_a_real_server(trace: Path, bench: Bench, prompt: Command) -> None:
    """Change by change the same pods are bound, in the same order, to the same GPUs, and wait for the same reasons."""
    player = Player(bench, prompt)

    for line in trace.read_text(encoding="utf-8").splitlines()[1:]:
        player.play(json.loads(line))

    assert player.all_bound() == player.bound
