"""SIGTERM: nothing is begun any more, what is under way comes to its end, and the process is out in five seconds."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.integration.command import LEASE
from tests.integration.faults.acts import Delay, Fault
from tests.integration.faults.afar import BINDING
from tests.integration.faults.ending import LIMIT, NO_ANSWER, half_asked, stop
from tests.integration.faults.replicas import QUICK, crew, held, note, racks, wants_a_card
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.integration.bench import Bench
    from tests.integration.control_plane import ControlPlane
    from tests.integration.faults.replicas import Replica


def test_a_bind_in_flight_is_settled_before_the_lease_is_given_up(
    plane: ControlPlane, bench: Bench, tmp_path: Path
) -> None:
    """What came after SIGTERM is left to the successor, who begins when the last bind has landed."""
    racks(bench, "node1")
    with crew(plane, tmp_path) as replicas:
        leader, standby = replicas.members
        with leader.proxy.breaking(Fault("POST", BINDING, Delay(1.5))) as fault:
            wants_a_card(bench, "flying-0", "node1", 0)
            eventually("a bind is on its way", lambda: fault.struck)
            landing = leader.binds()[0] + 1.5
            leader.command.process.send(signal.SIGTERM)
            told = time.monotonic()
            wants_a_card(bench, "late-0", "node1", 1)
            assert leader.command.process.wait(10) == 0
            took = time.monotonic() - told
        bench.wait_bound("late-0", "node1")

        note(f"with a bind of 1.5 s in flight it ended {took:.2f} s after SIGTERM")
        assert took <= limit(LIMIT)
        assert leader.command.said("Released the lease")
        assert [each.by.partition("_")[0] for each in held(plane.kube)] == [leader.name, standby.name]
        assert len(leader.binds()) == 1
        assert min(standby.binds()) > landing


def test_a_lease_is_kept_while_a_binds_outcome_is_unknown(plane: ControlPlane, bench: Bench, tmp_path: Path) -> None:
    """It may still land: the successor waits for the lease to end, as after a crash, and then binds the pod."""
    racks(bench, "node1")
    with crew(plane, tmp_path) as replicas:
        leader, standby = replicas.members
        with leader.proxy.breaking(Fault("POST", BINDING, NO_ANSWER, times=None)) as fault:
            wants_a_card(bench, "flying-0", "node1", 0)
            eventually("a bind is on its way", lambda: fault.struck)
            stop(leader.command)
            ended = time.monotonic()
            assert replicas.holder() == leader.name
            assert not leader.command.said("Released the lease")
            took = replicas.wait_for(standby, QUICK.lease + 2) - ended
        assert took >= QUICK.lease - 2 * QUICK.retry
        bench.wait_bound("flying-0", "node1")
        assert held(plane.kube)[0].by.startswith(standby.name)


@contextmanager
def _lease_hangs(_: ControlPlane, leader: Replica) -> Iterator[None]:
    """The lease can't be given up."""
    with leader.proxy.breaking(Fault("PUT", LEASE, NO_ANSWER, times=None)):
        yield


@contextmanager
def _everything_hangs(_: ControlPlane, leader: Replica) -> Iterator[None]:
    """A bind is in flight, events are to be told: nothing is answered, and somebody asks and never ends."""
    with ExitStack() as stack:
        stack.enter_context(half_asked(leader.command))
        for verb in ("POST", "PUT"):
            stack.enter_context(leader.proxy.breaking(Fault(verb, "/", NO_ANSWER, times=None)))
        yield


@contextmanager
def _cut(_: ControlPlane, leader: Replica) -> Iterator[None]:
    """The network is gone."""
    leader.link.cut()
    yield
    leader.link.mend()


@contextmanager
def _paused(plane: ControlPlane, _: Replica) -> Iterator[None]:
    """The API server holds its breath."""
    plane.pause()
    try:
        yield
    finally:
        plane.resume()


@pytest.mark.parametrize("trouble", [_lease_hangs, _everything_hangs, _cut, _paused])
def test_a_leader_in_trouble_ends_in_time_all_the_same(
    plane: ControlPlane,
    bench: Bench,
    tmp_path: Path,
    trouble: Callable[[ControlPlane, Replica], AbstractContextManager[None]],
) -> None:
    """What cannot be written in time is left to the lease's end; the status is 0, as it did what it was told."""
    racks(bench, "node1")
    with crew(plane, tmp_path) as replicas:
        leader = replicas.members[0]
        wants_a_card(bench, "before-0", "node1", 0)
        bench.wait_bound("before-0", "node1")
        wants_a_card(bench, "first-0", "node1", 1)
        with trouble(plane, leader):
            if trouble is _everything_hangs:
                wants_a_card(bench, "flying-0", "node1", 2)
                eventually("a bind is on its way", lambda: len(leader.binds()) > 2)
            stop(leader.command)
        wants_a_card(bench, "after-0", "node1", 3)
        bench.wait_bound("after-0", "node1", seconds=QUICK.lease + 10)


def test_a_standby_that_is_told_to_stop_leaves_the_lease_alone(
    plane: ControlPlane, bench: Bench, tmp_path: Path
) -> None:
    """It has nothing to wait for, and the leader does not notice."""
    with crew(plane, tmp_path) as replicas:
        leader, standby = replicas.members
        stop(standby.command)

        assert replicas.holder() == leader.name
        assert leader.command.leads()


def test_a_replica_that_has_not_listed_yet_ends_in_time(plane: ControlPlane, tmp_path: Path) -> None:
    """Told to stop while its first lists are not answered: it waits for none of them."""
    with crew(plane, tmp_path) as replicas:
        young = replicas.join()
        with young.proxy.breaking(Fault("GET", r"^/api/v1/pods\?", NO_ANSWER, times=None)) as fault:
            eventually("it lists", lambda: fault.struck)
            stop(young.command)
