"""Every query of every Grafana board, at a real Prometheus that scrapes our running programs under load."""

from __future__ import annotations

import math
import re
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from tests import objects
from tests.attacks.installed_cluster import InstalledCluster
from tests.boards import NAMES, queries_of, read_board
from tests.integration.monitored_node import INVENTORY, MonitoredNode
from tests.integration.namespace import Namespace
from tests.integration.prometheus import SCRAPE, Prometheus, Target
from tests.integration.workloads import API, Workloads
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.boards import PanelQuery

NODE: Final = "node1"
COUNT: Final = "agentaflow.gpu/count"
# A counter that is made by what it counts first has no increase before it counts again.
ROUNDS: Final = 3
REPLACED: Final = {
    # Four scrapes, as Grafana has it for a short step.
    "$__rate_interval": f"{4 * SCRAPE}s",
    # The boards open with three hours.
    "$__range": "10800s",
    "$node": ".+",
}
CHOICE: Final = re.compile(r"label_values\((\w+), (\w+)\)")


class Load:
    """The installation, Prometheus, and pods that are bound, wait and are refused. All of it is there for some time."""

    def __init__(self, folder: Path) -> None:
        """Return when Prometheus has scraped what the load has made of the metrics."""
        with ExitStack() as started:
            self.cluster = InstalledCluster(folder)
            started.callback(self.cluster.stop)
            node = MonitoredNode(self.cluster.plane, folder, NODE)
            node.file.write_text(INVENTORY.replace("40960}", "40960, health: {3: unhealthy}}"))
            self._monitor = node.start()
            started.callback(self._monitor.process.stop)
            self._monitor.wait_ready()
            self.prometheus = Prometheus(folder, self._targets())
            started.callback(self.prometheus.stop)
            self._began = time.time()
            self._wait_scraped()
            self._cordon()
            namespace = Namespace(self.cluster.kube, "load")
            for number in range(ROUNDS):
                self._round(namespace, number)
                self._wait_scraped()
            self._end = time.time()
            self.stop = started.pop_all().close

    def _targets(self) -> Iterator[Target]:
        programs = {
            "gpu-scheduler": self.cluster.scheduler,
            "gpu-scheduler-controller": self.cluster.controller,
            "gpu-scheduler-webhook": self.cluster.webhook.command,
            "gpu-scheduler-monitor": self._monitor,
        }
        for job, command in programs.items():
            yield Target(job, command.process.name, command.port)

    def _wait_scraped(self) -> None:
        now = time.time()
        eventually("each program is scraped", lambda: self.prometheus.scraped_since(now), seconds=20)

    def _cordon(self) -> None:
        entry = {"device": "2", "reason": "reset", "by": "admin", "since": "2026-11-21T12:00:00Z"}
        path = f"{API}/gpunodes/{NODE}"
        eventually("the GPUNode is there", lambda: self.cluster.kube.get(path))
        self.cluster.kube.patch(path, {"spec": {"cordoned": [entry]}})

    def _round(self, namespace: Namespace, number: int) -> None:
        """Create pods of each kind, and wait until all are decided."""
        placed = [f"mapped-{number}", f"counted-{number}"]
        namespace.make(objects.pod(placed[0], f"{number}=node2:{number}"))
        namespace.make(objects.pod(placed[1], annotations={COUNT: "1"}))
        namespace.make(objects.pod(f"late-{number}", f"{number}=node2:0", owner=("StatefulSet", "late")))
        namespace.make(objects.pod(f"lost-{number}", f"{number}=node9:0", owner=("Job", "lost")))
        Workloads(self.cluster.plane, namespace).place(f"workload-{number}")
        status, _ = namespace.kube.call("POST", namespace.pods, objects.pod("wrong", "nonsense"))
        assert status == 400
        eventually("both are bound", lambda: all(map(namespace.node_of, placed)))
        namespace.wait_message(f"late-{number}", "GpuHeld: ")
        namespace.wait_message(f"lost-{number}", "NodeNotFound: ")

    def values(self, query: PanelQuery) -> list[float]:
        """Return the values of all series of a panel's query, as Grafana asks for them."""
        expr = query.expr
        for name, value in REPLACED.items():
            expr = expr.replace(name, value)
        assert "$" not in expr, query
        if query.instant:
            return self.prometheus.values(expr)
        return [value for each in self.prometheus.values_since(expr, self._began, self._end) for value in each]


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Load]:
    """The installation under load, for all boards."""
    load = Load(tmp_path_factory.mktemp("boards"))
    yield load
    load.stop()


@pytest.mark.promise("board-1")
@pytest.mark.parametrize("name", NAMES)
def test_each_panel_has_data(load: Load, name: str) -> None:
    """Each query of the board returns a number, and each choice above the board has values."""
    board = read_board(name)

    assert [
        f"{query.place}: {query.expr}" for query in queries_of(board) if not any(map(math.isfinite, load.values(query)))
    ] == []
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            found = CHOICE.fullmatch(variable["query"])
            assert found, variable["query"]
            assert load.prometheus.label_values(*found.groups()), variable["name"]
