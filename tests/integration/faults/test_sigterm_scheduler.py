"""SIGTERM to a scheduler: it starts no bind, finishes those in flight, and ends."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.integration.command import LEASE, give_up_lease
from tests.integration.faults.proxied_replica import BINDING
from tests.integration.faults.proxy_faults import Delay, Fault
from tests.integration.faults.replicas import SHIPPED, bind_pod, create_nodes, create_pod_for_device, held, run_replicas
from tests.integration.faults.sigterm import NO_ANSWER, half_asked, stop
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.faults.replicas import Replica
    from tests.integration.namespace import Namespace


def test_a_bind_in_flight_is_settled_before_the_lease_is_given_up(
    plane: ControlPlane, namespace: Namespace, tmp_path: Path
) -> None:
    """A pod created after SIGTERM is left to the successor, which binds only after the last bind is executed."""
    create_nodes(namespace, "node1")
    with run_replicas(plane, tmp_path) as replicas:
        leader, standby = replicas.members
        with leader.proxy.breaking(Fault("POST", BINDING, Delay(1.5))) as fault:
            create_pod_for_device(namespace, "flying-0", "node1", 0)
            eventually("a bind is on its way", lambda: fault.struck)
            finished_at = leader.binds()[0] + 1.5
            leader.command.process.send(signal.SIGTERM)
            # On a busy machine the process may read of the pod before it runs the handler of the signal.
            eventually("it has the signal", lambda: leader.command.logged("Stopping on a signal"))
            create_pod_for_device(namespace, "late-0", "node1", 1)
            assert leader.command.process.wait(60) == 0
        namespace.wait_bound("late-0", "node1")

        assert leader.command.logged("Released the lease")
        assert [each.by.partition("_")[0] for each in held(plane.kube)] == [leader.name, standby.name]
        assert len(leader.binds()) == 1
        assert min(standby.binds()) > finished_at


def test_a_lease_is_kept_while_a_binds_outcome_is_unknown(
    plane: ControlPlane, namespace: Namespace, tmp_path: Path
) -> None:
    """The bind may still arrive: the successor waits until the lease ends, as after a crash, and then binds the pod."""
    create_nodes(namespace, "node1")
    with run_replicas(plane, tmp_path) as replicas:
        leader, standby = replicas.members
        with leader.proxy.breaking(Fault("POST", BINDING, NO_ANSWER, times=None)) as fault:
            create_pod_for_device(namespace, "flying-0", "node1", 0)
            eventually("a bind is on its way", lambda: fault.struck)
            stop(leader.command)
            ended = time.monotonic()
            assert replicas.holder() == leader.name
            assert not leader.command.logged("Released the lease")
            took = replicas.wait_for(standby) - ended
        # It may have renewed up to a retry period before, and have stopped for five seconds.
        assert took >= SHIPPED.lease - SHIPPED.retry - 5
        namespace.wait_bound("flying-0", "node1")
        assert held(plane.kube)[0].by.startswith(standby.name)


@contextmanager
def _lease_hangs(_: ControlPlane, leader: Replica) -> Iterator[None]:
    """Leave updates of the Lease unanswered, so that it cannot be released."""
    with leader.proxy.breaking(Fault("PUT", LEASE, NO_ANSWER, times=None)):
        yield


@contextmanager
def _everything_hangs(_: ControlPlane, leader: Replica) -> Iterator[None]:
    """Leave POST and PUT unanswered, and keep an unfinished request open on the leader's port."""
    with ExitStack() as stack:
        stack.enter_context(half_asked(leader.command))
        for verb in ("POST", "PUT"):
            stack.enter_context(leader.proxy.breaking(Fault(verb, "/", NO_ANSWER, times=None)))
        yield


@contextmanager
def _cut(_: ControlPlane, leader: Replica) -> Iterator[None]:
    """Cut the network."""
    leader.link.cut()
    yield
    leader.link.restore()


@contextmanager
def _paused(plane: ControlPlane, _: Replica) -> Iterator[None]:
    """Pause the API server."""
    plane.pause()
    try:
        yield
    finally:
        plane.resume()


@pytest.mark.parametrize("damage", [_lease_hangs, _everything_hangs, _cut, _paused])
def test_a_leader_under_faults_still_ends_in_time(
    plane: ControlPlane,
    namespace: Namespace,
    tmp_path: Path,
    damage: Callable[[ControlPlane, Replica], AbstractContextManager[None]],
) -> None:
    """If the Lease cannot be released in time, it expires. The exit status is 0, because the stop was requested."""
    create_nodes(namespace, "node1")
    with run_replicas(plane, tmp_path) as replicas:
        leader = replicas.members[0]
        bind_pod(namespace, "before-0", "node1", 0)
        create_pod_for_device(namespace, "first-0", "node1", 1)
        with damage(plane, leader):
            if damage is _everything_hangs:
                create_pod_for_device(namespace, "flying-0", "node1", 2)
                eventually("a bind is on its way", lambda: len(leader.binds()) > 2)
            stop(leader.command)
        create_pod_for_device(namespace, "after-0", "node1", 3)
        give_up_lease(plane.kube)
        namespace.wait_bound("after-0", "node1", seconds=60)


def test_a_replica_that_has_not_listed_yet_ends_in_time(plane: ControlPlane, tmp_path: Path) -> None:
    """SIGTERM arrives while its first lists are unanswered: it does not wait for them."""
    with run_replicas(plane, tmp_path) as replicas:
        young = replicas.join()
        with young.proxy.breaking(Fault("GET", r"^/api/v1/pods\?", NO_ANSWER, times=None)) as fault:
            eventually("it lists", lambda: fault.struck)
            stop(young.command)
