"""Role network_policies on an API server: it applies, changes and removes, and says what the API server refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster.plays import Run, run
from tests.integration.control_plane import ADMIN_TOKEN, ControlPlane
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.integration.programs import program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.timeout(300), pytest.mark.plays]

MONITORS: Final = "gpu-scheduler-monitor"
SYSTEM_POLICIES: Final = {"admission", "deny", "metrics", "proxy", "to-api-server"}
MONITOR_POLICIES: Final = {"deny", "metrics", "to-api-server"}
RECORD: Final = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/gpu-scheduler-applied-network-policies"


class Site:
    """An API server with both namespaces, and somebody's own NetworkPolicy in one of them."""

    def __init__(self, folder: Path, plane: ControlPlane) -> None:
        self.plane = plane
        self._kubeconfig = str(plane.kubeconfig(folder / "kubeconfig", ADMIN_TOKEN))
        for name in (SYSTEM_NAMESPACE, MONITORS):
            plane.kube.create("/api/v1/namespaces", {"metadata": {"name": name}})
        theirs = {"metadata": {"name": "theirs"}, "spec": {"podSelector": {"matchLabels": {"app": "theirs"}}}}
        plane.kube.create(self._collection(SYSTEM_NAMESPACE), theirs)

    def _collection(self, namespace: str) -> str:
        return f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"

    def play(self, *options: str, **variables: object) -> Run:
        """Run the role alone, as for an existing cluster with monitors."""
        given = {
            "kubeconfig": self._kubeconfig,
            "kube_context": "test",
            "kubectl_program": str(program("kubectl")),
            "monitor_source": "nvml",
            **variables,
        }
        command = ("ansible-playbook", "-i", "inventory/existing", "site.yml", "--tags", "network_policies")
        return run(*command, "-e", json.dumps(given), *options)

    def policies(self, namespace: str) -> set[str]:
        """Return the names of the namespace's NetworkPolicies, without our prefix."""
        found = self.plane.kube.call("GET", self._collection(namespace))[1]["items"]
        return {each["metadata"]["name"].removeprefix("gpu-scheduler-") for each in found}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """An API server on which the role has not run yet."""
    folder = tmp_path_factory.mktemp("network")
    plane = ControlPlane(folder)
    try:
        yield Site(folder, plane)
    finally:
        plane.stop()


def test_a_dry_run_applies_nothing(site: Site) -> None:
    """It shows a change."""
    assert site.play("--check").succeeded().changed
    assert (site.policies(SYSTEM_NAMESPACE), site.policies(MONITORS)) == ({"theirs"}, set())


@pytest.mark.promise("net-1")
def test_both_namespaces_get_their_policies_once(site: Site) -> None:
    """The API server accepts and stores them unchanged: a second run changes nothing."""
    site.play().succeeded()

    assert site.policies(SYSTEM_NAMESPACE) == SYSTEM_POLICIES | {"theirs"}
    assert site.policies(MONITORS) == MONITOR_POLICIES
    assert site.play().succeeded().changed == {}


def test_an_address_that_is_none_is_named(site: Site) -> None:
    """Before anything is changed."""
    refused = site.play(network_policies_api_server_cidrs=["10.0.0.300/28"])

    assert refused.code != 0
    assert "network_policies_api_server_cidrs has '10.0.0.300/28': it must be an address in CIDR" in refused.story()


def test_without_monitors_their_policies_go(site: Site) -> None:
    """Those that an earlier run applied there are deleted."""
    site.play(network_policies_with_monitors=False).succeeded()

    assert site.policies(MONITORS) == set()
    assert site.policies(SYSTEM_NAMESPACE) == SYSTEM_POLICIES | {"theirs"}


def test_switched_off_nothing_of_ours_is_left(site: Site) -> None:
    """Neither a policy nor the record; those of others stay."""
    site.play(network_policies_enabled=False).succeeded()

    assert site.policies(SYSTEM_NAMESPACE) == {"theirs"}
    assert site.plane.kube.get(RECORD) is None
    assert site.play(network_policies_enabled=False).succeeded().changed == {}
