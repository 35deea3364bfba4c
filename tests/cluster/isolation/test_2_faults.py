"""Drivers, schedulers and monitors are killed while claims are allocated and prepared: no GPU is given twice."""

from __future__ import annotations

import itertools
import json
import time
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster.clusters import CHECK, Cluster
from tests.cluster.isolation.containers import NODES, PREPARED, allocated, containers, line
from tests.cluster.isolation.starts import is_running
from tests.cluster.verify import system
from tests.cluster.verify.pods import bound, runs, selected
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.verify.pods import Json, MakePod

DRIVER_PROCESS: Final = "bin/gpu-scheduler driver"
MONITOR_PROCESS: Final = "bin/gpu-scheduler monitor"
PODS: Final = 100
EACH: Final = 2
CHECKS: Final = {f"{CHECK}-{number}" for number in range(5)}
FIRST: Final = 4
"""The first GPU of each node that no check pod has."""
# Seconds. A hundred containers start on few cores, and the Lease of a killed leader is valid for up to 15 s more.
PATIENCE: Final = 300
BOUND: Final = 5
"""Number of bound pods at which the leader is killed: it is writing claims of others then."""
CALLED: Final = 3
"""Seconds within which a kubelet has asked its driver to prepare the claim of a pod that is bound."""


def _place(number: int) -> tuple[str, tuple[int, ...]]:
    """Return node and GPUs of a replica."""
    first = FIRST + EACH * (number // len(NODES))
    return NODES[number % len(NODES)], tuple(range(first, first + EACH))


def _prepared(cluster: Cluster, node: str) -> set[str]:
    """Return the names of the claims that the node's driver has recorded as prepared."""
    claims: list[Json] = json.loads(cluster.on_node(node, "cat", PREPARED))["claims"]
    return {claim["name"] for claim in claims}


def _reserved(cluster: Cluster, node: str) -> set[str]:
    """Return the names of the claims that are allocated GPUs of the node, and have pods."""
    claims: list[Json] = cluster.get("resourceclaims", "-A")["items"]
    return {
        claim["metadata"]["name"]
        for claim in claims
        if claim.get("status", {}).get("reservedFor")
        and any(result["pool"] == node for result in claim["status"]["allocation"]["devices"]["results"])
    }


def _as_reserved(cluster: Cluster, node: str) -> bool:
    """Whether the node's driver has prepared exactly the claims that are reserved for pods."""
    return _prepared(cluster, node) == _reserved(cluster, node)


def _run(cluster: Cluster, least: int) -> bool:
    """Whether so many replicas run. Fail if a GPU is allocated twice."""
    allocated(cluster)
    return sum(map(runs, selected(cluster, "app=crowd"))) >= least


def _kill(cluster: Cluster, node: str, process: str) -> None:
    cluster.on_node(node, "pkill", "-KILL", "-f", process)


def _kill_leader(cluster: Cluster, former: str) -> str:
    """Wait until another than the former leader leads, and kill it. Return its identity."""
    eventually("another leader", lambda: system.lease(cluster)["holderIdentity"] not in {former, ""}, 60, 0.5)
    leader: str = system.lease(cluster)["holderIdentity"]
    node, pid = system.leader_process(cluster)
    cluster.on_node(node, "kill", "-KILL", pid)
    return leader


def _bound(cluster: Cluster) -> bool:
    """Whether some replicas are bound."""
    return sum("nodeName" in pod["spec"] for pod in selected(cluster, "app=crowd")) >= BOUND


@pytest.mark.promise("isolate-2", "isolate-4")
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("healthy")
def test_each_of_a_hundred_pods_has_its_gpus(cluster: Cluster, make_workload: Callable[..., None]) -> None:
    """While they start, the leader is killed twice, and on each node in turn the driver or the monitor."""
    lines = {f"crowd-{number}": _place(number) for number in range(PODS)}
    text = "".join(f"{number}={node}:{gpus[0]},{gpus[1]}\n" for number, (node, gpus) in enumerate(lines.values()))
    make_workload("StatefulSet", "crowd", text, replicas=PODS, serviceName="crowd", podManagementPolicy="Parallel")

    eventually(f"{BOUND} pods to be bound", partial(_bound, cluster), 60, 0.1)
    leader = _kill_leader(cluster, "")

    faults = itertools.cycle(itertools.product(NODES, (DRIVER_PROCESS, MONITOR_PROCESS)))
    for running in range(10, PODS, 10):
        eventually(f"{running} pods to run", partial(_run, cluster, running), PATIENCE, 1)
        _kill(cluster, *next(faults))
    _kill_leader(cluster, leader)
    eventually(f"{PODS} pods to run", partial(_run, cluster, PODS), PATIENCE, 1)

    found = {node: containers(cluster, node) for node in NODES}
    given = allocated(cluster)
    for name, (node, gpus) in lines.items():
        expected = line(cluster, node, *gpus)
        assert (found[node][name], given[node][name]) == (expected, set(expected.variable)), name
    for node in NODES:
        assert _as_reserved(cluster, node), node


@pytest.mark.promise("isolate-6")
@pytest.mark.timeout(300)
def test_nothing_is_left_of_them(cluster: Cluster) -> None:
    """When they are gone, their claims are given back, and the drivers have prepared those of the check pods alone."""
    eventually("their claims to be given back", partial(_checks_alone, cluster), 60, 1)
    for node in NODES:
        eventually(f"the driver of {node} to have no other claim", partial(_as_reserved, cluster, node), 30, 1)


def _checks_alone(cluster: Cluster) -> bool:
    return all(set(pods) <= CHECKS for pods in allocated(cluster).values())


@pytest.mark.timeout(300)
def test_a_driver_that_is_killed_while_it_prepares(cluster: Cluster, make_pod: MakePod) -> None:
    """The kubelet asks the next one, and the container gets its GPUs."""
    cluster.on_node("node4", "pkill", "-STOP", "-f", DRIVER_PROCESS)
    try:
        cluster.create(make_pod("asked-0", "0=node4:0,1"))
        eventually("asked-0 to be bound", partial(bound, cluster, "asked-0"))
        time.sleep(CALLED)
        assert not is_running(cluster, "asked-0")
    finally:
        _kill(cluster, "node4", DRIVER_PROCESS)
    # The kubelet gives a call that was cut off another try within a minute and a half.
    eventually("asked-0 to run", partial(is_running, cluster, "asked-0"), 120, 0.5)

    assert containers(cluster, "node4")["asked-0"] == line(cluster, "node4", 0, 1)
