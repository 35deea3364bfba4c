"""A control plane that keeps an audit log, a proxy before it, a leader behind that, and an auditor beside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.auditor.auditor import Auditor, auditing
from tests.integration.faults.afar import held, known_nodes, leader_afar
from tests.integration.faults.forging import QUICK
from tests.integration.faults.proxy import FaultProxy
from tests.integration.shipped import audited_plane
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.bench import Bench
    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane whose API server says who wrote to which pod."""
    plane = audited_plane(tmp_path_factory.mktemp("audited"))
    yield plane
    plane.stop()


@pytest.fixture
def auditor(plane: ControlPlane, bench: Bench) -> Iterator[Auditor]:
    """An auditor beside no scheduler at all, with a node: the test itself does everything."""
    bench.node("node1")
    with auditing(plane, allowed=QUICK) as auditor:
        yield auditor


@pytest.fixture
def audited(plane: ControlPlane, bench: Bench, proxy: FaultProxy, far: Command) -> Iterator[Auditor]:
    """An auditor beside the leader; in the end every invariant has held."""
    # The last test's pods and nodes are gone; but a fault of this one's might swallow the scheduler's word of it, and a
    # pod of this one's might go where a node was: two watches have no order.
    eventually("it has heard of the last test's pods' end", lambda: held(far) == {}, seconds=30)
    eventually("it has heard of the last test's nodes' end", lambda: known_nodes(far) == set(), seconds=30)
    with auditing(plane, far, proxy=proxy) as auditor:
        yield auditor
        assert auditor.report() == []


@pytest.fixture(scope="module")
def proxy(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultProxy]:
    """The only way of a module's scheduler to the API server."""
    proxy = FaultProxy(plane, tmp_path_factory.mktemp("proxy"))
    yield proxy
    proxy.close()


@pytest.fixture(scope="module")
def far(plane: ControlPlane, proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """One replica that leads, behind the proxy."""
    command = leader_afar(plane, proxy, tmp_path_factory.mktemp("far"), "far-0")
    yield command
    command.process.stop()
