"""A leader that is asked to stop, and the size of a replica. What kills and parts a leader is in faults/."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.command import start_alone, start_scheduler
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace


@pytest.mark.promise("lead-1", "lead-9")
def test_a_leader_that_is_asked_to_stop_hands_over_at_once(
    plane: ControlPlane, namespace: Namespace, tmp_path: Path
) -> None:
    """After SIGTERM it exits with 0. Its Lease is released, so the standby does not wait until it expires."""
    namespace.node("node1")
    first = start_alone(plane, tmp_path, "replica-0")
    first.wait_ready()
    eventually("the first leads", first.leads)
    with start_scheduler(plane, tmp_path, "replica-1").serving() as second:
        assert first.process.stop() == 0
        assert first.logged("Released the lease")
        eventually("the second leads", second.leads)
        namespace.pod("after-0", "0=node1:0\n", "0")
        namespace.wait_bound("after-0", "node1")
        path = f"/apis/events.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/events"

        def notes() -> list[str]:
            events = sorted(namespace.kube.call("GET", path)[1]["items"], key=lambda event: str(event["eventTime"]))
            assert {event["regarding"]["kind"] for event in events} == {"Lease"}
            return [event["note"].partition("_")[0] + " " + event["note"].partition(" ")[2] for event in events]

        expected = ["replica-0 became leader", "replica-0 stopped leading", "replica-1 became leader"]
        eventually("each change has an event", lambda: notes()[-3:] == expected)


def test_an_idle_replica_is_small(plane: ControlPlane, tmp_path: Path) -> None:
    """An idle replica uses at most 90 MB: it must not import the client's typed classes or rich."""
    with start_alone(plane, tmp_path, "small-0").serving(leads=True) as command:
        resident = command.resident()
        print(f"{resident:.0f} MB resident")  # noqa: T201 - the figure is wanted
        assert resident <= 90
