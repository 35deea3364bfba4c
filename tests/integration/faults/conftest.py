"""Fixtures of the suite faults: a control plane with an audit log, a fault proxy, a leader behind it, an auditor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.auditor.auditor import Auditor, auditing
from tests.integration.faults.proxied_replica import held, known_nodes, start_leader_behind_proxy
from tests.integration.faults.proxy import FaultProxy
from tests.integration.faults.violations import QUICK
from tests.integration.role_manifests import audited_plane
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane whose API server keeps an audit log of the writes to pods."""
    plane = audited_plane(tmp_path_factory.mktemp("audited"))
    yield plane
    plane.stop()


@pytest.fixture
def auditor(plane: ControlPlane, namespace: Namespace) -> Iterator[Auditor]:
    """An auditor and a node, without a scheduler: the test itself makes every write."""
    namespace.node("node1")
    with auditing(plane, allowed=QUICK) as auditor:
        yield auditor


@pytest.fixture
def audited(plane: ControlPlane, namespace: Namespace, proxy: FaultProxy, proxied: Command) -> Iterator[Auditor]:
    """An auditor beside the leader. At the end, fail if an invariant was violated."""
    # The pods and nodes of the last test are deleted. A fault of this test might lose those watch events, and the order
    # between the watches of pods and of nodes is undefined: a pod might be bound to a deleted node.
    eventually("the pods of the last test have left its ledger", lambda: held(proxied) == {}, seconds=30)
    eventually("the nodes of the last test have left its journal", lambda: known_nodes(proxied) == set(), seconds=30)
    with auditing(plane, proxied, proxy=proxy) as auditor:
        yield auditor
        assert auditor.report() == []


@pytest.fixture(scope="module")
def proxy(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultProxy]:
    """The proxy through which a module's scheduler reaches the API server; there is no other connection."""
    proxy = FaultProxy(plane, tmp_path_factory.mktemp("proxy"))
    yield proxy
    proxy.close()


@pytest.fixture(scope="module")
def proxied(plane: ControlPlane, proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """One replica that leads, behind the proxy."""
    command = start_leader_behind_proxy(plane, proxy, tmp_path_factory.mktemp("far"), "far-0")
    yield command
    command.process.stop()
