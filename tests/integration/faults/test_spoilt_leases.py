"""A Lease that somebody deletes, empties or takes: no second leader, no process that ends again and again, no hand."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.integration.command import LEASE
from tests.integration.faults.replicas import QUICK, crew, held, racks, wants_a_card
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.bench import Bench
    from tests.integration.control_plane import ControlPlane
    from tests.kube_client import KubeClient

NOTHING: Final[dict[str, Any]] = dict.fromkeys(
    ("holderIdentity", "leaseDurationSeconds", "renewTime", "acquireTime", "leaseTransitions")
)


def _deleted(kube: KubeClient) -> None:
    kube.delete(LEASE)


def _emptied(kube: KubeClient) -> None:
    kube.patch(LEASE, {"spec": NOTHING})


def _timeless(kube: KubeClient) -> None:
    kube.patch(LEASE, {"spec": {"renewTime": None, "acquireTime": None, "leaseDurationSeconds": None}})


def _odd(kube: KubeClient) -> None:
    odd = {"holderIdentity": "", "renewTime": "1970-01-01T00:00:00.000000Z", "leaseTransitions": 2147483647}
    kube.patch(LEASE, {"spec": {**NOTHING, **odd}})


def test_a_lease_that_somebody_spoils_stays_with_its_holder(plane: ControlPlane, bench: Bench, tmp_path: Path) -> None:
    """Whatever is done to it, the leader writes it anew before the standby may take it, and neither of them ends."""
    racks(bench, "node1")
    with crew(plane, tmp_path) as replicas:
        leader, standby = replicas.members
        for number, mishap in enumerate((_deleted, _emptied, _timeless, _odd, _deleted, _emptied)):
            mishap(plane.kube)
            wants_a_card(bench, f"train{number}-0", "node1", number)
            bench.wait_bound(f"train{number}-0", "node1")
            eventually("it is whole again", lambda: replicas.holder() == leader.name)
            assert not standby.command.leads()
        time.sleep(QUICK.lease)

        assert leader.command.leads()
        assert not standby.command.leads()
        assert all(each.by.startswith(leader.name) for each in held(plane.kube))


@pytest.mark.parametrize("mishap", [_deleted, _emptied, _timeless])
def test_a_lease_that_is_spoilt_after_its_holder_died_is_taken_all_the_same(
    plane: ControlPlane, bench: Bench, tmp_path: Path, mishap: Callable[[KubeClient], None]
) -> None:
    """Not at once, as nobody can tell that the holder is dead, but after one lease and without a hand."""
    racks(bench, "node1")
    with crew(plane, tmp_path) as replicas:
        leader, standby = replicas.members
        leader.command.kill()
        mishap(plane.kube)
        spoilt = time.monotonic()
        took = replicas.wait_for(standby, QUICK.lease + 2) - spoilt

        assert took >= QUICK.lease - QUICK.retry
        wants_a_card(bench, "train-0", "node1", 0)
        bench.wait_bound("train-0", "node1")


def test_a_lease_that_names_a_stranger_is_waited_out(plane: ControlPlane, bench: Bench, tmp_path: Path) -> None:
    """The leader ends once, with its successor waiting; after one lease of the stranger's silence somebody leads."""
    racks(bench, "node1")
    with crew(plane, tmp_path) as replicas:
        leader, standby = replicas.members
        plane.kube.patch(LEASE, {"spec": {**NOTHING, "holderIdentity": "a stranger"}})
        began = time.monotonic()

        assert leader.command.process.wait(5) == 1
        took = replicas.wait_for(standby, QUICK.lease + 2) - began
        assert took >= QUICK.lease - QUICK.retry
        wants_a_card(bench, "train-0", "node1", 0)
        bench.wait_bound("train-0", "node1")
