"""Two replicas and one Lease: leadership, takeover and the end of a replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.command import LEASE, give_up_lease, start_alone, start_scheduler
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace


@pytest.fixture
def replicas(plane: ControlPlane, tmp_path: Path) -> Iterator[tuple[Command, Command]]:
    """A leader and a standby. Both are ready."""
    first = start_alone(plane, tmp_path, "replica-0")
    first.wait_ready()
    eventually("the first leads", first.leads)
    second = start_scheduler(plane, tmp_path, "replica-1")
    second.wait_ready()
    yield first, second
    for replica in (first, second):
        replica.process.stop()


@pytest.mark.promise("lead-1", "lead-3", "lead-4", "hold-8")
def test_the_standby_takes_over_when_the_leader_is_killed(
    replicas: tuple[Command, Command], namespace: Namespace
) -> None:
    """No manual step is needed. The new leader lists first, so devices that the old one assigned stay held."""
    first, second = replicas
    namespace.node("node1")
    namespace.pod("before-0", "0=node1:0\n", "0")
    namespace.wait_bound("before-0", "node1")
    assert not second.leads()

    first.kill()
    give_up_lease(namespace.kube)
    namespace.pod("after-0", "0=node1:0\n1=node1:1\n", "0")
    namespace.pod("after-1", "0=node1:2\n1=node1:1\n", "1")

    namespace.wait_bound("after-1", "node1")
    assert "before-0" in namespace.wait_message("after-0", "GpuHeld: ")
    pod = namespace.read("after-1")
    assert pod["metadata"]["annotations"]["agentaflow.gpu/assigned-by"].startswith("replica-1_")


@pytest.mark.promise("lead-1", "lead-9")
def test_a_leader_that_is_asked_to_stop_hands_over_at_once(
    replicas: tuple[Command, Command], namespace: Namespace
) -> None:
    """After SIGTERM it exits with 0. Its Lease is released, so the standby does not wait until it expires."""
    first, second = replicas
    namespace.node("node1")

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


@pytest.mark.promise("lead-1")
def test_a_leader_that_loses_its_lease_ends(replicas: tuple[Command, Command], namespace: Namespace) -> None:
    """A leader that finds another holder in the Lease ends its process with exit code 1."""
    first, _ = replicas
    lease = namespace.kube.get(LEASE)
    assert lease is not None

    namespace.kube.patch(LEASE, {"spec": {"holderIdentity": "somebody-else"}})

    assert first.process.wait(30) == 1
    assert first.logged("Ending")


def test_an_idle_replica_is_small(plane: ControlPlane, tmp_path: Path) -> None:
    """An idle replica uses at most 90 MB: it must not import the client's typed classes or rich."""
    with start_alone(plane, tmp_path, "small-0").serving(leads=True) as command:
        resident = command.resident()
        print(f"{resident:.0f} MB resident")  # noqa: T201 - the figure is wanted
        assert resident <= 90
