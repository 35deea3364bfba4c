"""Clocks that are set, or that run wrong, in one replica's process, by libfaketime: nobody's lead hangs on them."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.command import LEASE
from tests.integration.faults.acts import Fault, Hang
from tests.integration.faults.replicas import QUICK, crew, held_twice, note, racks, wants_a_card
from tests.integration.faults.rush import Rush
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from tests.integration.bench import Bench
    from tests.integration.control_plane import ControlPlane
    from tests.kube_client import KubeClient

HOUR: Final = 3600.0


class Clock:
    """The wall clock of one process, or with `all_clocks` every clock of it, as a test sets it while it runs."""

    def __init__(self, file: Path, *, all_clocks: bool = False) -> None:
        """Right, until it is set."""
        library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
        assert library, "cannot find libfaketime.so.1: install it first (example: apt-get install libfaketime)"
        self._file = file
        self._set("+0")
        self.env = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "NO_FAKE_STAT": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": str(int(not all_clocks)),
        }

    def step(self, seconds: float) -> None:
        """Set it off by so many seconds at once."""
        self._set(f"{seconds:+g}")

    def pace(self, rate: float) -> None:
        """Let it run at this rate from the process's start on."""
        self._set(f"+0 x{rate:g}")

    def _set(self, text: str) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_text(text, encoding="ascii")
        fresh.replace(self._file)


def _off(kube: KubeClient) -> float:
    """By how many seconds the lease's last stamp is off: what its holder's wall clock said, and how old it is."""
    lease = kube.get(LEASE)
    assert lease is not None
    return (datetime.fromisoformat(lease["spec"]["renewTime"]) - datetime.now(UTC)).total_seconds()


def _shows(kube: KubeClient, seconds: float) -> bool:
    """Whether that is so many seconds, a minute more or less."""
    return abs(_off(kube) - seconds) < 60


def test_clocks_that_are_set_cost_nobody_the_lead(plane: ControlPlane, bench: Bench, tmp_path: Path) -> None:
    """F10. An hour forward on one replica, back on the other, then the other way round: the leader leads, and alone."""
    clocks = Clock(tmp_path / "leader"), Clock(tmp_path / "standby")
    racks(bench, "node1")
    with crew(plane, tmp_path, envs=(clocks[0].env, clocks[1].env)) as replicas:
        leader, standby = replicas.members
        for number, hours in enumerate((1, -1, 0)):
            clocks[0].step(hours * HOUR)
            clocks[1].step(-hours * HOUR)
            eventually("the step shows in the lease", partial(_shows, plane.kube, hours * HOUR))
            time.sleep(QUICK.lease + 1)
            wants_a_card(bench, f"train{number}-0", "node1", number)
            bench.wait_bound(f"train{number}-0", "node1")
            assert leader.command.leads()
            assert not standby.command.leads()
            assert standby.binds() == []

        clocks[1].step(HOUR)
        leader.command.kill()
        killed = time.monotonic()
        wants_a_card(bench, "after-0", "node1", 7)
        bench.wait_bound("after-0", "node1", seconds=QUICK.lease + 10)
        took = time.monotonic() - killed
        assert took <= QUICK.lease + limit(2)
        assert _shows(plane.kube, HOUR)
        assert held_twice(plane.kube) == []


SKEWS: Final = {"the leader's is slow": (0.75, 1.0), "the standby's is fast": (1.0, 1.3)}
"""Rates of the leader's clocks and of the standby's. Lease by window is 1.5: more skew than that nobody can bear."""


@pytest.mark.parametrize(("slow", "fast"), SKEWS.values(), ids=SKEWS)
def test_clocks_that_run_wrong_make_no_second_leader(
    plane: ControlPlane, bench: Bench, tmp_path: Path, slow: float, fast: float
) -> None:
    """F10. All clocks of one replica, the monotonic one too: who can't renew stops binding in time."""
    clocks = Clock(tmp_path / "leader", all_clocks=True), Clock(tmp_path / "standby", all_clocks=True)
    clocks[0].pace(slow)
    clocks[1].pace(fast)
    nodes = ("node1", "node2", "node3", "node4")
    racks(bench, *nodes)
    with crew(plane, tmp_path, envs=(clocks[0].env, clocks[1].env)) as replicas:
        leader, standby = replicas.members
        time.sleep(QUICK.lease)
        assert leader.command.leads()
        assert not standby.command.leads()
        # The wall clock runs as wrong as the monotonic one: that the rate is in force shows in the stamps.
        assert slow == 1 or _off(plane.kube) < -1
        with Rush(bench, "rush", nodes, seed=1) as rush:
            eventually("it binds", leader.binds)
            with leader.proxy.breaking(Fault("PUT", LEASE, Hang(delivered=False), times=None)) as fault:
                eventually("a renewal is lost", lambda: fault.struck)
                began = time.monotonic()
                assert leader.command.process.wait(QUICK.window / slow + 5) == 1
                eventually("the other one binds", standby.binds, QUICK.lease + 5)
        last, first = max(leader.binds()) - began, min(standby.binds()) - began

        note(f"{QUICK}, rates {slow:g} and {fast:g}: bound for {last:.2f} s; the other one began at {first:.2f} s")
        assert first > last
        assert fast == 1 or _off(plane.kube) > 1
        assert rush.shared == set()
