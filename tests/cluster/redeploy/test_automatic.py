"""A strategy chooses the GPUs, on nodes whose monitors declare them: one run switches it on, another removes it."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster import plays
from tests.cluster.clusters import SYSTEM, TESTS, Cluster
from tests.cluster.commands import (
    asking_as,
    compare_nodes,
    compare_status,
    compare_watch,
    compare_workloads,
    install,
)
from tests.cluster.declared import (
    DECLARED,
    INTERVAL,
    MONITORS,
    asking,
    declare,
    idle,
    place,
    replicas,
    uuids,
    written,
)
from tests.cluster.verify.pods import bound, runs, waits
from tests.messages import text_of
from tests.placements import DEVICES, PLACEMENTS, WORKLOADS
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cluster.commands import Done
    from tests.cluster.verify.pods import Json, MakePod

TAGS: Final = ("--tags", "crds,monitor,controller")
NOTICED: Final = 3 * INTERVAL + 5
"""Seconds within which what a monitor reports must be noticed."""
ROUNDS: Final = 3
NEW: Final = "GPU-00000000-0000-4000-8000-000000000000"
MOVES: Final = {
    "two GPUs swapped": ((1, 0, 2, 3), 1),
    "a GPU added in front": ((NEW, 0, 1, 2, 3), 1),
    "a GPU lost": ((1, 2, 3), None),
}
"""The UUIDs of node2 after a reboot, each as its index before it, and where the first GPU is then."""


@pytest.fixture(scope="module")
def declared(cluster: Cluster) -> Iterator[None]:
    """Let monitors declare four GPUs on each node, in one run that repeats itself; afterwards nothing of it remains."""
    chosen = {
        "monitor_source": "simulated",
        "monitor_interval": f"{INTERVAL}s",
        "monitor_simulated_inventory": DECLARED,
    }
    on = (*plays.SITE, *TAGS, "-e", json.dumps(chosen))
    assert "monitor" in plays.run(*on).succeeded().changed
    assert dict(plays.run(*on).succeeded().changed) == {}
    yield
    # Tests scaled the scheduler: this run restores the Deployment's replicas, and the evidence names the new pods.
    off = (*plays.SITE, "--tags", "crds,scheduler,monitor,controller,evidence")
    assert set(plays.run(*off).succeeded().changed) - {"scheduler", "evidence"} == {"monitor"}
    assert cluster.kubectl("get", "namespace", MONITORS, "--ignore-not-found", "-o", "name").stdout == ""
    assert not [key for node in cluster.get("nodes")["items"] for key in written(node)]


@pytest.fixture
def pause(cluster: Cluster) -> Iterator[Callable[[int], None]]:
    """Return a function that sets the number of the scheduler's replicas; restore the number at the end."""
    before = cluster.get("deployment", "-n", SYSTEM, "gpu-scheduler")["spec"]["replicas"]
    yield partial(replicas, cluster)
    replicas(cluster, before)


@pytest.mark.usefixtures("declared")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("strategy", PLACEMENTS)
def test_a_strategy_places_as_its_table_says(
    cluster: Cluster, make_pod: MakePod, pause: Callable[[int], None], strategy: str
) -> None:
    """Eight workloads are bound where the table says, three times in a row.

    For strategy priority all must exist before the first is placed, so no scheduler runs while they are created.
    """
    for number in range(ROUNDS):
        eventually("all GPUs to be idle", partial(idle, cluster), 60, 0.5)
        if strategy == "priority":
            pause(0)
        own = {"agentaflow.gpu/scheduling-strategy": strategy}
        pods = [asking(make_pod(name, ""), {**each.annotations, **own}) for name, each in WORKLOADS.items()]
        cluster.create({"apiVersion": "v1", "kind": "List", "items": pods})
        if strategy == "priority":
            pause(2)
        seen = {name: eventually(f"{name} to be bound", partial(place, cluster, name), 30, 0.2) for name in WORKLOADS}
        assert seen == PLACEMENTS[strategy], f"round {number + 1}"
        cluster.kubectl("delete", "pod", "-n", TESTS, "--wait", *WORKLOADS)


@pytest.mark.promise("hold-10")
@pytest.mark.usefixtures("declared")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("order", "now"), MOVES.values(), ids=MOVES)
def test_a_gpu_that_moved_is_reported_and_given_to_nobody_else(
    cluster: Cluster, make_pod: MakePod, order: tuple[int | str, ...], now: int | None
) -> None:
    """A pod has GPU 0 of node2, and then the node numbers its GPUs anew. When it is back, so is its index."""
    before = uuids(cluster, "node2")
    cluster.create(make_pod("moved-0", "0=node2:0"))
    uid = eventually("the pod to be bound", partial(bound, cluster, "moved-0"))["metadata"]["uid"]
    after = [before[each] if isinstance(each, int) else each for each in order]
    declare(cluster, "node2", count=len(after), uuid=dict(enumerate(after)))
    eventually("the monitor to say so", lambda: uuids(cluster, "node2") == after, 120, 0.2)

    about = f"reason=GpuMoved,regarding.uid={uid}"
    where = "gone" if now is None else f"GPU {now} now"
    note = "GpuMoved: on node2 " + text_of("a GPU has moved", gpu=0, uuid=before[0], now=where)
    events = (
        "get",
        "events.events.k8s.io",
        "-n",
        TESTS,
        f"--field-selector={about}",
        "-o",
        "jsonpath={.items[*].note}",
    )
    eventually("the pod to have an event", lambda: note in cluster.kubectl(*events).stdout, 30, 0.5)
    wanted = [0] if now is None else [0, now]
    for index in wanted:
        cluster.create(make_pod(f"wants-{index}", f"{index}=node2:{index}\n9=node1:0"))
        eventually(f"wants-{index} to wait", partial(waits, cluster, f"wants-{index}", "GpuHeld"), NOTICED)

    declare(cluster, "node2")
    eventually("the monitor to say so", lambda: uuids(cluster, "node2") == before, 120, 0.2)
    for index in wanted[1:]:
        eventually(f"wants-{index} to be bound", partial(bound, cluster, f"wants-{index}"), NOTICED)
    assert waits(cluster, "wants-0", "GpuHeld")


@pytest.mark.usefixtures("declared")
@pytest.mark.timeout(300)
def test_a_workload_waits_with_its_reason_and_runs_when_a_gpu_is_free(cluster: Cluster, make_pod: MakePod) -> None:
    """The status of a GPUWorkload has the reason why it waits, then its node and devices.

    Its deletion deletes its pod.
    """
    cluster.create(asking(make_pod("holder", ""), {"agentaflow.gpu/count": "4", "agentaflow.gpu/memory": "80000"}))
    eventually("holder to be bound", partial(bound, cluster, "holder"), 20)
    pod = make_pod("unused", "")["spec"]
    workload = {
        "apiVersion": "agentaflow.io/v1",
        "kind": "GPUWorkload",
        "metadata": {"name": "large", "namespace": TESTS},
        "spec": {
            "gpuRequirements": {"minGPUMemory": 60000, "gpuCount": 2},
            "podTemplate": {"spec": {**pod, "schedulerName": "gpu-scheduler"}},
        },
    }
    cluster.create(workload)
    try:
        waiting = eventually("large to have its reason", partial(_status, cluster, reason="NotEnoughGpus"), 20)
        assert waiting["phase"] == "Pending"
        cluster.kubectl("delete", "pod", "-n", TESTS, "holder", "--wait")
        done = eventually("large to run", partial(_status, cluster, phase="Running"), 60, 0.2)
        assert (done["node"], done["devices"]) == ("node2", ["0", "1"])
        allocations = eventually("the node to tell", partial(_allocations, cluster, "node2"), 20)
        assert {each["device"] for each in allocations} == {"0", "1"}
    finally:
        cluster.kubectl("delete", "gpuworkload", "-n", TESTS, "large", "--wait")
    gone = ("--for=delete", "pod", "-n", TESTS, "large-0", "--timeout=60s")
    cluster.kubectl("wait", *gone)


def _status(cluster: Cluster, **wanted: str) -> Json | None:
    status: Json = cluster.get("gpuworkload", "-n", TESTS, "large").get("status", {})
    return status if all(status.get(key) == value for key, value in wanted.items()) else None


def _allocations(cluster: Cluster, node: str) -> list[Json]:
    allocations: list[Json] = cluster.get("gpunode", node).get("status", {}).get("allocations", [])
    return allocations


@pytest.fixture(scope="module")
def command(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Done]:
    """Return a function that runs the command line that was installed outside the checkout."""
    return install(cluster, tmp_path_factory.mktemp("tools"))


CALLED: Final = pytest.mark.parametrize("called", [("gpu-scheduler",), ("kubectl", "gpu-scheduler")], ids=" ".join)


@CALLED
@pytest.mark.usefixtures("declared")
@pytest.mark.timeout(300)
def test_the_command_line_shows_what_the_cluster_has(
    cluster: Cluster, make_pod: MakePod, command: Callable[..., Done], called: tuple[str, ...]
) -> None:
    """Nodes, workloads, health, status and watch, in JSON, agree with kubectl; a generated map has only free GPUs."""
    ask = asking_as(command, called)
    eventually("all GPUs to be idle", partial(idle, cluster), 60, 0.5)
    before = sum(each["gpus"]["held"] for each in ask("nodes"))
    cluster.create(asking(make_pod("seen", ""), {"agentaflow.gpu/count": "2", "agentaflow.gpu/memory": "60000"}))
    eventually("seen to run", lambda: runs(cluster.get("pod", "-n", TESTS, "seen")), 30)

    compare_workloads(cluster, ask)
    compare_nodes(cluster, ask)
    (taken,) = [each["gpus"] for each in ask("nodes") if each["name"] == "node2"]
    assert taken | {"total": DEVICES, "held": 2, "available": DEVICES - 2} == taken
    compare_status(cluster, ask, held=before + 2)
    compare_watch(command, called, ask)
    assert ask("generate-gpu-mapping", "--free", "--nodes", "node2", "--indices", "1")[0]["map"] == "0=node2:2\n"
    assert "gpu_scheduler" in command(*called, "completion", "bash").stdout.replace("-", "_")


@CALLED
@pytest.mark.usefixtures("declared")
@pytest.mark.timeout(300)
def test_a_template_is_submitted_and_runs(
    cluster: Cluster, make_pod: MakePod, command: Callable[..., Done], tmp_path: Path, called: tuple[str, ...]
) -> None:
    """`submit` accepts the output of `generate-template` once its image is one that the cluster has."""
    template = tmp_path / "made.yaml"
    assert command(*called, "generate-template", str(template)).returncode == 0
    workload = json.loads(cluster.kubectl("create", "--dry-run=client", "-o", "json", "-f", str(template)).stdout)
    workload["metadata"] = {"name": "large", "namespace": TESTS}
    workload["spec"]["podTemplate"]["spec"] = make_pod("unused", "")["spec"]
    template.write_text(json.dumps(workload), encoding="utf-8")
    try:
        done = command(*called, "submit", str(template), "--wait", "--timeout", "60s")
        assert done.returncode == 0, done.stderr
        eventually("large to run", partial(_status, cluster, phase="Running"), 60, 0.2)
    finally:
        cluster.kubectl("delete", "gpuworkload", "-n", TESTS, "large", "--ignore-not-found", "--wait")
