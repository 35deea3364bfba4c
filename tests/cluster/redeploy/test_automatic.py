"""GPUs that a strategy chooses, on nodes whose monitors declare them: switched on by one run, and taken back by one."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.cluster import plays
from tests.cluster.clusters import SYSTEM, TESTS, Cluster
from tests.cluster.verify.pods import bound, waits
from tests.placements import CARDS, NODES, PLACEMENTS, WORKLOADS
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.verify.pods import Json, MakePod

MONITORS: Final = "gpu-scheduler-monitor"
TAGS: Final = ("--tags", "crds,monitor,controller")
INTERVAL: Final = 2
"""Seconds between two looks of a monitor: the cases wait for some."""
NOTICED: Final = 3 * INTERVAL + 5
"""Seconds within which a GPU's illness or a monitor's silence must be told."""
DECLARED: Final = {
    node: [{"count": CARDS, "model": model, "memoryTotalMiB": memory}] for node, (model, memory) in NODES.items()
}
ROUNDS: Final = 3


@pytest.fixture(scope="module")
def declared(cluster: Cluster) -> Iterator[None]:
    """Let monitors declare four GPUs on each node, in one run that repeats itself; afterwards nothing of it is left."""
    chosen = {
        "monitor_source": "simulated",
        "monitor_interval": f"{INTERVAL}s",
        "monitor_simulated_inventory": DECLARED,
    }
    on = (*plays.SITE, *TAGS, "-e", json.dumps(chosen))
    assert "monitor" in plays.run(*on).succeeded().changed
    assert dict(plays.run(*on).succeeded().changed) == {}
    yield
    assert set(plays.run(*plays.SITE, *TAGS).succeeded().changed) == {"monitor"}
    assert cluster.kubectl("get", "namespace", MONITORS, "--ignore-not-found", "-o", "name").stdout == ""
    assert not [key for node in cluster.get("nodes")["items"] for key in _written(node)]


def _written(node: Json) -> list[str]:
    """Return what monitors wrote on the node."""
    meta = node["metadata"]
    return [key for key in (*meta["labels"], *meta["annotations"]) if key.startswith("agentaflow.gpu/")]


def _cards(cluster: Cluster) -> list[Json]:
    """Return every GPU as its node's annotation tells it."""
    told = [cluster.get("node", name)["metadata"]["annotations"].get("agentaflow.gpu/devices", "[]") for name in NODES]
    return [card for text in told for card in json.loads(text)]


def _idle(cluster: Cluster) -> bool:
    cards = _cards(cluster)
    busy = [card for card in cards if card.get("utilization") or card.get("memoryUsedMiB")]
    return len(cards) == CARDS * len(NODES) and not busy


def _asking(pod: Json, annotations: dict[str, str]) -> Json:
    """Return the pod with these wishes instead of a map."""
    pod["metadata"]["annotations"] = dict(annotations)
    return pod


def _place(cluster: Cluster, name: str) -> str | None:
    pod = bound(cluster, name)
    if pod is None:
        return None
    return f"{pod['spec']['nodeName']}:{pod['metadata']['annotations']['agentaflow.gpu/assigned-devices']}"


def _replicas(cluster: Cluster, number: int) -> None:
    cluster.kubectl("scale", "-n", SYSTEM, "deployment/gpu-scheduler", f"--replicas={number}")
    if number:
        cluster.kubectl("rollout", "status", "-n", SYSTEM, "deployment/gpu-scheduler", "--timeout=120s")
    else:
        selector = "app.kubernetes.io/component=scheduler"
        cluster.kubectl("wait", "--for=delete", "pod", "-n", SYSTEM, "-l", selector, "--timeout=60s")


@pytest.fixture
def pause(cluster: Cluster) -> Iterator[Callable[[int], None]]:
    """Return what sets the number of the scheduler's replicas; in the end it is what it was."""
    before = cluster.get("deployment", "-n", SYSTEM, "gpu-scheduler")["spec"]["replicas"]
    yield partial(_replicas, cluster)
    _replicas(cluster, before)


@pytest.mark.usefixtures("declared")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("strategy", PLACEMENTS)
def test_a_strategy_places_as_its_table_says(
    cluster: Cluster, make_pod: MakePod, pause: Callable[[int], None], strategy: str
) -> None:
    """Eight workloads land where the table says, three times in a row.

    By priority they must all be there before the first is placed, so the scheduler is away meanwhile.
    """
    for number in range(ROUNDS):
        eventually("all GPUs to be idle", partial(_idle, cluster), 60, 0.5)
        if strategy == "priority":
            pause(0)
        own = {"agentaflow.gpu/scheduling-strategy": strategy}
        pods = [_asking(make_pod(name, ""), {**each.annotations, **own}) for name, each in WORKLOADS.items()]
        cluster.create({"apiVersion": "v1", "kind": "List", "items": pods})
        if strategy == "priority":
            pause(2)
        seen = {name: eventually(f"{name} to be bound", partial(_place, cluster, name), 30, 0.2) for name in WORKLOADS}
        assert seen == PLACEMENTS[strategy], f"round {number + 1}"
        cluster.kubectl("delete", "pod", "-n", TESTS, "--wait", *WORKLOADS)


def _declare(cluster: Cluster, node: str, **more: Any) -> None:
    """Change what is declared of the node, and let its kubelet hand the file over at once."""
    declared = {**DECLARED, node: [{**DECLARED[node][0], **more}]}
    patch = {"data": {"inventory.yaml": json.dumps(declared)}}
    cluster.kubectl("patch", "configmap", "-n", MONITORS, MONITORS, "--type=merge", "-p", json.dumps(patch))
    for pod in cluster.get("pods", "-n", MONITORS, f"--field-selector=spec.nodeName={node}")["items"]:
        # A kubelet looks at a pod's files when the pod changes, else only now and then.
        cluster.kubectl(
            "annotate", "pod", "-n", MONITORS, pod["metadata"]["name"], f"looked={time.time()}", "--overwrite"
        )


def _health(cluster: Cluster, node: str, index: int) -> str:
    cards = json.loads(cluster.get("node", node)["metadata"]["annotations"]["agentaflow.gpu/devices"])
    health: str = next(card for card in cards if card["index"] == index)["health"]
    return health


@pytest.mark.usefixtures("declared")
@pytest.mark.timeout(300)
def test_a_sick_gpu_gets_nobody_until_it_heals(cluster: Cluster, make_pod: MakePod) -> None:
    """A pod that needs all GPUs of a kind waits with GpuUnhealthy while one is sick, and is placed when it heals."""
    _declare(cluster, "node4", health={"2": "unhealthy"})
    eventually("the monitor to tell", lambda: _health(cluster, "node4", 2) == "unhealthy", 120, 0.2)
    wishes = {"agentaflow.gpu/count": str(CARDS), "agentaflow.gpu/type": NODES["node4"][0]}
    cluster.create(_asking(make_pod("all-of-node4", ""), wishes))
    eventually("the pod to be told", partial(waits, cluster, "all-of-node4", "GpuUnhealthy"), NOTICED)
    cluster.create(make_pod("named-0", "0=node4:2"))
    eventually("who names it to be told", partial(waits, cluster, "named-0", "GpuUnhealthy"), NOTICED)
    cluster.kubectl("delete", "pod", "-n", TESTS, "named-0", "--wait")

    _declare(cluster, "node4")
    eventually("the monitor to tell", lambda: _health(cluster, "node4", 2) == "healthy", 120, 0.2)
    assert eventually("the pod to be bound", partial(_place, cluster, "all-of-node4"), NOTICED) == "node4:0,1,2,3"


@pytest.mark.usefixtures("declared")
@pytest.mark.timeout(300)
def test_a_silent_monitor_makes_its_gpus_stale(cluster: Cluster, make_pod: MakePod) -> None:
    """Nobody knows how the GPUs of a silent monitor are: who needs them waits with GpuUnhealthy until it is back."""
    cluster.kubectl("label", "node", "node3", "agentaflow.gpu/enabled=paused", "--overwrite")
    gone = ("--for=delete", "pod", "-n", MONITORS, "--field-selector=spec.nodeName=node3", "--timeout=60s")
    cluster.kubectl("wait", *gone, check=False)
    wishes = {"agentaflow.gpu/count": "1", "agentaflow.gpu/type": NODES["node3"][0]}
    time.sleep(3 * INTERVAL)
    cluster.create(_asking(make_pod("on-node3", ""), wishes))
    eventually("the pod to be told", partial(waits, cluster, "on-node3", "GpuUnhealthy"), 5)

    cluster.kubectl("label", "node", "node3", "agentaflow.gpu/enabled=true", "--overwrite")
    assert eventually("the pod to be bound", partial(_place, cluster, "on-node3"), 60, 0.2) == "node3:0"


@pytest.mark.usefixtures("declared")
@pytest.mark.timeout(300)
def test_a_workload_waits_with_its_reason_and_runs_when_a_gpu_is_free(cluster: Cluster, make_pod: MakePod) -> None:
    """A GPUWorkload tells why it waits, then where it runs, then that it is done; with it goes its pod."""
    cluster.create(_asking(make_pod("holder", ""), {"agentaflow.gpu/count": "4", "agentaflow.gpu/memory": "80000"}))
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
        waiting = eventually("large to be told why", partial(_status, cluster, reason="NotEnoughGpus"), 20)
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


@pytest.mark.usefixtures("declared")
@pytest.mark.timeout(300)
def test_the_strategy_of_the_cluster_changes_while_all_runs(cluster: Cluster, make_pod: MakePod) -> None:
    """`gpu-scheduler strategy` is seen within two seconds; a word that it does not know is refused."""
    command = ("gpu-scheduler", "strategy", "--kubeconfig", str(cluster.kubeconfig))
    assert plays.run(*command).succeeded().output.startswith("least_utilized")
    eventually("all GPUs to be idle", partial(_idle, cluster), 60, 0.5)
    try:
        plays.run(*command, "best_fit").succeeded()
        time.sleep(2)
        cluster.create(_asking(make_pod("fits", ""), {"agentaflow.gpu/count": "1", "agentaflow.gpu/memory": "20000"}))
        assert eventually("fits to be bound", partial(_place, cluster, "fits")) == "node4:0"
        assert plays.run(*command, "fastest").code == 2
        assert plays.run(*command).succeeded().output.startswith("best_fit")
    finally:
        plays.run(*command, "least_utilized").succeeded()
