"""The simulator's recorded traces, played before a real API server: the same changes lead to the same decisions.

What stands in a trace was decided in virtual time by an API server in memory; that they agree says that the simulator
shows the scheduler as it is.
"""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.integration.command import start_alone
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.bench import Bench
    from tests.integration.command import Command
    from tests.integration.plant import ControlPlane

    Line = dict[str, Any]

TRACES: Final = sorted((Path(__file__).resolve().parents[3] / "scheduler/tests/simulation/traces").glob("*.jsonl"))
REST: Final = 0.06
"""Seconds between two changes: different watches tell of them, and nothing else keeps their order."""
QUICK: Final = "10ms"
"""The back-off. In a trace everybody has rested before the next change; here nobody has to rest for long."""
ASSIGNED: Final = "agentaflow.gpu/assigned-"


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

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._nodes: set[str] = set()
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
                self._bench.add(made)
            case {"replace": "nodes", "object": made}:
                self._bench.patch_node(name, {"metadata": made["metadata"], "spec": made["spec"]})
                self._bench.patch_node(name, {"status": made["status"]})
            case {"create": "pods", "object": made}:
                meta = {key: value for key, value in made["metadata"].items() if key != "namespace"}
                self._bench.make({**made, "metadata": meta})
            case {"phase": phase}:
                self._bench.finish(name, phase)
            case {"terminate": "pods"}:
                self._bench.terminate(name)
            case {"remove": "pods"}:
                self._bench.delete(name)
                self.bound.pop(name, None)
            case {"remove": "nodes"}:
                self._bench.kube.delete(f"/api/v1/nodes/{name}")

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
    player = Player(bench)

    for line in trace.read_text(encoding="utf-8").splitlines()[1:]:
        player.play(json.loads(line))

    assert player.all_bound() == player.bound
