"""Strategy `priority`: equal priorities go by creation, whatever a new process knows of the pods' arrival."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests import objects
from tests.integration.command import give_up_lease, start_alone, start_scheduler
from tests.integration.limits import counted
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace

# The order of creation. The order of names, in which the API server lists, is another at each place.
OLDEST_FIRST = ("z-first", "m-second", "a-third", "b-fourth")


def create_in_turn(namespace: Namespace) -> None:
    """Create the pods in seconds of their own: the API server writes the time of creation in whole seconds.

    Its clock is the test's, so the next second has begun after this sleep, however long it takes.
    """
    for name in OLDEST_FIRST:
        counted(namespace, name, priority="5", scheduling_strategy="priority")
        time.sleep(1.01 - time.time() % 1)


@pytest.mark.promise("steer-5")
def test_equal_priorities_go_by_creation_after_start_and_failover(
    plane: ControlPlane, namespace: Namespace, tmp_path: Path
) -> None:
    """All pods want the only GPU. It goes to the oldest at a cold start, after a failover, and then to the next."""
    create_in_turn(namespace)
    namespace.add(objects.node("node1", annotations=objects.inventory(objects.device(0))))
    first = start_alone(plane, tmp_path, "replica-0")
    standby = None
    try:
        namespace.wait_bound("z-first", "node1")
        for name in OLDEST_FIRST[1:]:
            namespace.wait_message(name, "NotEnoughGpus: ")
        standby = start_scheduler(plane, tmp_path, "replica-1")
        standby.wait_ready()
        first.kill()
        give_up_lease(namespace.kube)
        namespace.delete("z-first")
        namespace.wait_bound("m-second", "node1")
        eventually("the standby leads", standby.leads)
        for before, after in (("m-second", "a-third"), ("a-third", "b-fourth")):
            namespace.delete(before)
            namespace.wait_bound(after, "node1")
    finally:
        first.process.stop()
        if standby is not None:
            standby.process.stop()
