"""A leader that continues late, or whose last bind arrives late: no GPU is shared, or a conflict is reported (F9)."""

from __future__ import annotations

import os
import random
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests import objects
from tests.integration.faults.pod_churn import PodChurn
from tests.integration.faults.proxied_replica import BINDING
from tests.integration.faults.proxy_faults import Delay, Fault
from tests.integration.faults.replicas import (
    binders_in_order,
    create_nodes,
    create_pod_for_any,
    held_twice,
    note,
    run_replicas,
    unrenewed,
)
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from tests.integration.control_plane import ControlPlane
    from tests.integration.faults.replicas import Replica, Replicas
    from tests.integration.namespace import Namespace
    from tests.kube_client import KubeClient

NODES: Final = ("node1", "node2", "node3", "node4")
POINTS: Final = int(os.environ.get("SWEEP_POINTS", "3"))
"""Times at which the leader is stopped; suite sweeps takes 50."""
SEED: Final = 7


def _binder(replicas: Replicas, since: float, but: Replica | None = None) -> Replica | None:
    """Return the replica that holds the Lease and has sent a bind since then; None if there is none or if it is `but`.

    Replicas that have ended are replaced.
    """
    replicas.replace_the_dead()
    found = replicas.leader(but=but)
    return found if found is not None and found.binds(since) else None


@pytest.mark.timeout(2400)
def test_a_leader_stopped_at_many_points_shares_no_gpu(
    plane: ControlPlane, namespace: Namespace, tmp_path: Path
) -> None:
    """F9. SIGSTOP while many pods ask for the same devices, SIGCONT under a successor: each device has one holder."""
    points = random.Random(SEED)  # noqa: S311 - chooses moments, guards nothing
    create_nodes(namespace, *NODES)
    gaps, late = [], 0
    with run_replicas(plane, tmp_path) as replicas:
        replicas.join()
        for number in range(POINTS):
            with PodChurn(namespace, f"rush{number}", NODES, seed=number) as churn:
                leader = eventually("a replica leads and binds", partial(_binder, replicas, time.monotonic()), 60)
                # The scenario: the moment at which the process is stopped.
                time.sleep(points.uniform(0.0, 0.6))
                stopped = leader.sleep()
                last = max(leader.binds())
                follower = eventually("another one binds", partial(_binder, replicas, stopped, leader), 60)
                resumed = leader.resume()
                assert leader.command.process.wait(60) == 1
            gaps.append(min(follower.binds(stopped)) - last)
            late += len(leader.binds(resumed))
            assert churn.shared == set()
            namespace.empty()
            replicas.replace_the_dead()

    note(f"{POINTS} points: from the last bind to the successor's first {min(gaps):.2f} to {max(gaps):.2f} s")
    note(f"binds that left after SIGCONT: {late}")
    # A bind leaves only after a stop in the microseconds between check and write. An earlier check lets ten leave.
    assert late <= 2


def test_a_leader_that_cannot_renew_stops_binding_before_another_begins(
    plane: ControlPlane, namespace: Namespace, tmp_path: Path
) -> None:
    """Only its renewals are lost: it binds until its renew deadline. The successor's first bind comes later."""
    create_nodes(namespace, *NODES)
    with run_replicas(plane, tmp_path) as replicas:
        leader, standby = replicas.members
        with PodChurn(namespace, "rush", NODES, seed=SEED) as churn, unrenewed(leader, standby) as began:
            # While pods are created: a bind that was sent may be refused, because its pod was deleted.
            eventually("its bind is executed", lambda: standby.name in _binders(plane.kube))
        last, first = max(leader.binds()) - began, min(standby.binds()) - began

        note(f"after the first lost renewal it bound for {last:.2f} s; the other one began at {first:.2f} s")
        assert 0 < last < first
        assert churn.shared == set()
        binders = _binders(plane.kube)
        assert binders[-1] == standby.name
        assert len(binders) == len(set(binders))


def _binders(kube: KubeClient) -> list[str]:
    """Return the names of the replicas that bound pods, in order of the binds, neighbouring duplicates merged."""
    return [by.partition("_")[0] for by in binders_in_order(kube)]


def _sleeps(replica: Replica) -> bool:
    """Return whether the process is stopped by a signal, from /proc."""
    status = Path(f"/proc/{replica.command.process.pid}/status").read_text(encoding="ascii")
    return "State:\tT" in status


@contextmanager
def _held_up(namespace: Namespace, leader: Replica) -> Iterator[None]:
    """Let the leader stop between check and send; continue it at the end."""
    create_pod_for_any(namespace, "low-0", scheduling_strategy="priority", priority="1")
    eventually("it has stopped", lambda: _sleeps(leader))
    yield
    assert leader.binds() == []
    leader.resume()


@contextmanager
def _on_its_way(namespace: Namespace, leader: Replica) -> Iterator[None]:
    """Delay a bind in the network and kill its sender; deliver the bind at the end."""
    with leader.proxy.breaking(Fault("POST", BINDING, Delay(60))) as fault:
        create_pod_for_any(namespace, "low-0", scheduling_strategy="priority", priority="1")
        eventually("the bind is on its way", lambda: fault.struck)
        leader.command.kill()
        yield


@pytest.mark.parametrize(
    ("delayed", "module"),
    [
        pytest.param(_held_up, "tests.integration.faults.program_stopped_before_bind", id="between check and send"),
        pytest.param(_on_its_way, "gpu_scheduler", id="in the network"),
    ],
)
def test_an_overlap_that_no_fence_can_prevent_is_reported(
    plane: ControlPlane,
    namespace: Namespace,
    tmp_path: Path,
    *,
    delayed: Callable[[Namespace, Replica], AbstractContextManager[None]],
    module: str,
) -> None:
    """F9. A bind checked in time arrives under the successor: a metric counts it and both get an event."""
    namespace.node("node1", annotations=objects.inventory(objects.device(0)))
    with run_replicas(plane, tmp_path, first=module) as replicas:
        leader, standby = replicas.members
        with delayed(namespace, leader):
            create_pod_for_any(namespace, "high-0", scheduling_strategy="priority", priority="9")
            namespace.wait_bound("high-0", "node1", seconds=60)
            assert namespace.node_of("low-0") == ""
        namespace.wait_bound("low-0", "node1")
        eventually("the metric counts it", lambda: standby.command.metric("gpu_scheduler_conflicts") == 1, 30)
        for name, other in (("low-0", "high-0"), ("high-0", "low-0")):
            assert f"{namespace.name}/{other}" in namespace.wait_event(name, "GpuConflict")["note"]
        assert held_twice(plane.kube) == [("node1", "0")]
        replicas.broken = {"I1"}
        namespace.delete("low-0")
        eventually("it is over", lambda: standby.command.metric("gpu_scheduler_conflicts") == 0)
