"""A Lease that another client deletes, empties or takes: no second leader, no restart loop, no manual step."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.integration.command import LEASE
from tests.integration.faults.replicas import SHIPPED, bind_pod, create_nodes, held, run_replicas
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace
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


def test_a_damaged_lease_stays_with_its_holder(plane: ControlPlane, namespace: Namespace, tmp_path: Path) -> None:
    """After each change the leader writes the Lease again before the standby may take it. Neither replica ends."""
    create_nodes(namespace, "node1")
    with run_replicas(plane, tmp_path) as replicas:
        leader, standby = replicas.members
        for number, change_lease in enumerate((_deleted, _emptied, _timeless, _odd, _deleted, _emptied)):
            change_lease(plane.kube)
            bind_pod(namespace, f"train{number}-0", "node1", number)
            eventually("the leader holds the Lease again", lambda: replicas.holder() == leader.name)
            assert not standby.command.leads()
        replicas.wait_watched(leader, standby)

        assert leader.command.leads()
        assert not standby.command.leads()
        assert all(each.by.startswith(leader.name) for each in held(plane.kube))


@pytest.mark.parametrize("change_lease", [_deleted, _emptied, _timeless])
def test_a_lease_that_is_damaged_after_a_kill_is_taken_after_it_expires(
    plane: ControlPlane, namespace: Namespace, tmp_path: Path, change_lease: Callable[[KubeClient], None]
) -> None:
    """The standby cannot know that the holder is dead. It leads after one lease duration, without manual help."""
    create_nodes(namespace, "node1")
    with run_replicas(plane, tmp_path) as replicas:
        leader, standby = replicas.members
        leader.command.kill()
        change_lease(plane.kube)
        damaged_at = time.monotonic()
        took = replicas.wait_for(standby) - damaged_at

        assert took >= SHIPPED.lease - SHIPPED.retry
        bind_pod(namespace, "train-0", "node1", 0)
