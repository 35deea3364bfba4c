"""Two replicas: one is killed, stopped or cut off; the other leads, and never both."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.integration.command import give_up_lease
from tests.integration.faults.proxied_replica import BINDING, IDLE, LEASE
from tests.integration.faults.proxy_faults import Fault, Hang
from tests.integration.faults.replicas import (
    SHIPPED,
    bind_pod,
    binders_in_order,
    create_nodes,
    create_pod_for_device,
    held,
    held_twice,
    note,
    run_replicas,
)
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.faults.replicas import Replica, Replicas
    from tests.integration.namespace import Namespace


@pytest.mark.promise("lead-1", "lead-4")
def test_the_standby_binds_when_the_lease_has_expired(
    plane: ControlPlane, namespace: Namespace, tmp_path: Path
) -> None:
    """After kill -9 of the leader, the next pod is bound without manual help, and not before the Lease expires."""
    create_nodes(namespace, "node1")
    with run_replicas(plane, tmp_path) as replicas:
        leader, standby = replicas.members
        bind_pod(namespace, "before-0", "node1", 0)

        leader.command.kill()
        killed = time.monotonic()
        bind_pod(namespace, "after-0", "node1", 1, seconds=60)
        took = time.monotonic() - killed

        note(f"bound {took:.1f} s after kill -9")
        assert took >= SHIPPED.lease - SHIPPED.retry
        assert replicas.holder() == standby.name
        assert held_twice(plane.kube) == []


@pytest.mark.promise("lead-2", "lead-4")
def test_a_leader_stopped_past_its_lease_ends_when_it_continues(
    plane: ControlPlane, namespace: Namespace, tmp_path: Path
) -> None:
    """F9. After SIGSTOP, a successor and SIGCONT it sends no bind and ends with status 1. The successor leads on."""
    create_nodes(namespace, "node1")
    with run_replicas(plane, tmp_path) as replicas:
        leader, standby = replicas.members
        stopped = leader.sleep()
        bind_pod(namespace, "during-0", "node1", 0, seconds=60)
        leader.resume()
        create_pod_for_device(namespace, "after-0", "node1", 1)

        assert leader.command.process.wait(30) == 1
        namespace.wait_bound("after-0", "node1")
        assert leader.binds(stopped) == []
        assert replicas.holder() == standby.name
        assert all(each.by.startswith(standby.name) for each in held(plane.kube))


@contextmanager
def _cut(replica: Replica) -> Iterator[None]:
    """Close every connection and refuse new ones."""
    replica.link.cut()
    yield
    replica.link.restore()


@contextmanager
def _silent(replica: Replica) -> Iterator[None]:
    """Leave renewals and binds unanswered. The watches work, so the replica knows which pods it could bind."""
    with ExitStack() as stack:
        for verb, path in (("PUT", LEASE), ("POST", BINDING)):
            stack.enter_context(replica.proxy.breaking(Fault(verb, path, Hang(delivered=False), times=None)))
        yield


@pytest.mark.parametrize("parted", [_cut, _silent])
def test_a_leader_that_is_cut_off_alone_stops_and_ends(
    plane: ControlPlane, namespace: Namespace, tmp_path: Path, parted: Callable[[Replica], AbstractContextManager[None]]
) -> None:
    """It sends its last bind before the standby's first, and ends. The standby leads when the Lease has expired."""
    create_nodes(namespace, "node1")
    with run_replicas(plane, tmp_path) as replicas:
        leader, standby = replicas.members
        bind_pod(namespace, "before-0", "node1", 0)
        with parted(leader):
            began = time.monotonic()
            create_pod_for_device(namespace, "after-0", "node1", 1)
            assert leader.command.process.wait(60) == 1
            namespace.wait_bound("after-0", "node1", seconds=60)

        assert max(leader.binds(began), default=began) < min(standby.binds())
        assert replicas.holder() == standby.name
        assert held_twice(plane.kube) == []


def test_a_standby_that_is_cut_off_changes_nothing(plane: ControlPlane, namespace: Namespace, tmp_path: Path) -> None:
    """It waits and is not ready meanwhile. After its return it can take over."""
    create_nodes(namespace, "node1")
    with run_replicas(plane, tmp_path, WATCH_IDLE_LIMIT=f"{IDLE}s") as replicas:
        leader, standby = replicas.members
        with _cut(standby):
            eventually("it is not ready", lambda: standby.command.get("/readyz")[0] == 503, seconds=60)
            eventually("it tried for the Lease", lambda: standby.command.count("Trying for the lease failed") >= 3, 60)
            bind_pod(namespace, "before-0", "node1", 0)
            assert replicas.holder() == leader.name
        eventually("it is ready", lambda: standby.command.get("/readyz")[0] == 200, seconds=35)
        leader.command.kill()
        give_up_lease(plane.kube)
        bind_pod(namespace, "after-0", "node1", 1)


class Kubelet:
    """Restarts replicas that have ended, as a kubelet does, and counts the restarts."""

    def __init__(self, replicas: Replicas) -> None:
        """Start the thread."""
        self.restarts = 0
        self._replicas = replicas
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.2):
            running = [each for each in self._replicas.members if each.command.process.alive()]
            if len(running) < 2:
                self.restarts += 1
                self._replicas.join()

    def end(self) -> None:
        """Stop the thread."""
        self._over.set()
        self._thread.join(10)


def _paused(plane: ControlPlane, seconds: float) -> None:
    """Leave all requests unanswered for `seconds`; connections stay open."""
    plane.pause()
    # The scenario: how long the outage lasts.
    time.sleep(seconds)
    plane.resume()


def _restarted(plane: ControlPlane, seconds: float) -> None:
    """Crash the API server, and start it again after `seconds`: it has no open watches and an empty watch cache."""
    plane.crash_api()
    # The scenario: how long the outage lasts.
    time.sleep(seconds)
    plane.start_api()


@pytest.mark.parametrize("outage", [_paused, _restarted])
@pytest.mark.parametrize("seconds", [12.0, pytest.param(60.0, marks=pytest.mark.long)])
def test_after_an_outage_of_the_api_server_one_replica_leads(
    plane: ControlPlane,
    namespace: Namespace,
    tmp_path: Path,
    outage: Callable[[ControlPlane, float], None],
    seconds: float,
) -> None:
    """F11. The outage is longer than the renew deadline. Binds continue by themselves, with one leader at a time.

    Few requests are sent: ten seconds after the outage are observed, too.
    """
    create_nodes(namespace, "node1")
    with run_replicas(plane, tmp_path) as replicas:
        kubelet = Kubelet(replicas)
        try:
            bind_pod(namespace, "before-0", "node1", 0)
            began = time.monotonic()
            outage(plane, seconds)
            over = time.monotonic()
            bind_pod(namespace, "after-0", "node1", 1, seconds=60)
            # The scenario: what they send in ten seconds is counted.
            time.sleep(max(0.0, over + 10 - time.monotonic()))
        finally:
            kubelet.end()

        members = tuple(replicas.members)
        during = [each.requests(began, over) / (over - began) for each in members]
        afterwards = [each.requests(over, over + 10) / 10 for each in members]
        rates = ", ".join(f"{one:.1f} and {other:.1f}" for one, other in zip(during, afterwards, strict=True))
        note(f"{kubelet.restarts} restarts after an outage of {seconds:g} s")
        note(f"requests a second of each replica, during it and in 10 s after it: {rates}")
        assert kubelet.restarts <= 2
        # Ten watches that double their pauses, and the lease, need far fewer than 20 requests a second. A replica
        # without pauses sends far more.
        assert max(during + afterwards) <= 20
        led = binders_in_order(plane.kube)
        assert len(led) == len(set(led))
        assert held_twice(plane.kube) == []
