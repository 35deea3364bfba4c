"""Wrong wall clocks in one replica, by libfaketime, do not change who leads."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.command import LEASE
from tests.integration.faults.pod_churn import PodChurn
from tests.integration.faults.replicas import bind_pod, create_nodes, held_twice, note, run_replicas, unrenewed
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace
    from tests.kube_client import KubeClient

HOUR: Final = 3600.0


class Clock:
    """The wall clock of one process, or with `all_clocks` all its clocks. A test can set it while the process runs."""

    def __init__(self, file: Path, *, all_clocks: bool = False) -> None:
        """Create a correct clock."""
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
        """Set the clock to the right time plus this many seconds, in one step."""
        self._set(f"{seconds:+g}")

    def pace(self, rate: float) -> None:
        """Let the clock run at this rate from the start of the process."""
        self._set(f"+0 x{rate:g}")

    def _set(self, text: str) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_text(text, encoding="ascii")
        fresh.replace(self._file)


def _off(kube: KubeClient) -> float:
    """Return renewTime of the Lease minus the right time, in seconds: the error of the holder's clock less its age."""
    lease = kube.get(LEASE)
    assert lease is not None
    return (datetime.fromisoformat(lease["spec"]["renewTime"]) - datetime.now(UTC)).total_seconds()


def _shows(kube: KubeClient, seconds: float) -> bool:
    """Return whether renewTime differs from the right time by `seconds`, give or take a minute."""
    return abs(_off(kube) - seconds) < 60


def test_clocks_that_are_set_do_not_change_the_leader(
    plane: ControlPlane, namespace: Namespace, tmp_path: Path
) -> None:
    """F10. Clocks are set one hour apart in both directions: the leader stays the only leader."""
    clocks = Clock(tmp_path / "leader"), Clock(tmp_path / "standby")
    create_nodes(namespace, "node1")
    with run_replicas(plane, tmp_path, envs=(clocks[0].env, clocks[1].env)) as replicas:
        leader, standby = replicas.members
        for number, hours in enumerate((1, -1, 0)):
            clocks[0].step(hours * HOUR)
            clocks[1].step(-hours * HOUR)
            eventually("the step shows in the lease", partial(_shows, plane.kube, hours * HOUR))
            replicas.wait_watched(leader, standby)
            bind_pod(namespace, f"train{number}-0", "node1", number)
            assert leader.command.leads()
            assert not standby.command.leads()
            assert standby.binds() == []

        clocks[1].step(HOUR)
        leader.command.kill()
        bind_pod(namespace, "after-0", "node1", 7, seconds=60)
        assert _shows(plane.kube, HOUR)
        assert held_twice(plane.kube) == []


SKEWS: Final = {"the leader's clocks are slow": (0.75, 1.0), "the standby's clocks are fast": (1.0, 1.3)}
"""Rates of the leader's and the standby's clocks. Lease duration / renew deadline is 1.5: the limit of the skew."""


@pytest.mark.parametrize(("slow", "fast"), SKEWS.values(), ids=SKEWS)
def test_clocks_with_a_wrong_rate_make_no_second_leader(
    plane: ControlPlane, namespace: Namespace, tmp_path: Path, slow: float, fast: float
) -> None:
    """F10. All clocks of one replica are wrong, the monotonic one too. A leader that cannot renew stops in time."""
    clocks = Clock(tmp_path / "leader", all_clocks=True), Clock(tmp_path / "standby", all_clocks=True)
    clocks[0].pace(slow)
    clocks[1].pace(fast)
    nodes = ("node1", "node2", "node3", "node4")
    create_nodes(namespace, *nodes)
    with run_replicas(plane, tmp_path, envs=(clocks[0].env, clocks[1].env)) as replicas:
        leader, standby = replicas.members
        replicas.wait_watched(leader, standby)
        assert leader.command.leads()
        assert not standby.command.leads()
        # Wall clock and monotonic clock have the same wrong rate, so renewTime shows that the rate is in force.
        assert slow == 1 or _off(plane.kube) < -1
        with PodChurn(namespace, "rush", nodes, seed=1) as churn, unrenewed(leader, standby) as began:
            last, first = max(leader.binds()) - began, min(standby.binds()) - began

        note(f"rates {slow:g} and {fast:g}: bound for {last:.2f} s; the other one began at {first:.2f} s")
        assert first > last
        assert fast == 1 or _off(plane.kube) > 1
        assert churn.shared == set()
