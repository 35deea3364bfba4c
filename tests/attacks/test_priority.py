"""A tenant that keeps the API server's seats for service accounts neither stops nor delays our programs."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import pytest

from tests import objects
from tests.attacks.unread_lists import unread_lists
from tests.integration.monitored_node import LEASES as MONITORS
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.attacks.installed_cluster import InstalledCluster, Tenant

LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases"
# A server keeps a short answer in memory, and the seat becomes free.
FILLER: Final = {"example.com/filler": "a" * 50_000}
ATTACKED: Final = timedelta(seconds=25)
"""Longer than a Lease lasts, after the level has got the seats that others do not need, which takes ten seconds."""
WAITING: Final = re.compile(
    r'^apiserver_flowcontrol_current_inqueue_requests\{.*priority_level="workload-low"\} (\d+)$', re.MULTILINE
)


@pytest.mark.promise("wait-8")
def test_lists_that_a_tenant_does_not_read_stop_nothing(cluster: InstalledCluster, tenant: Tenant) -> None:
    """Leases are renewed, pods are placed, and monitors and drivers are heard, while all other accounts wait."""
    for number in range(2):
        body = objects.pod(f"filler-{number}", None, scheduler="none", annotations=FILLER)
        cluster.kube.create(tenant.pods, body)
    pod = f"{tenant.pods}/placed"
    token = cluster.plane.service_account_token(tenant.namespace.name, "tenant")

    with unread_lists(cluster.plane, token, tenant.pods):
        eventually("accounts of tenants wait", lambda: _waiting(cluster), seconds=30)
        began = _renewed(cluster)
        cluster.kube.create(tenant.pods, objects.pod("placed", "0=node1:0"))
        eventually("the pod is bound", lambda: cluster.kube.call("GET", pod)[1]["spec"].get("nodeName"))
        eventually("both Leases are renewed", lambda: _renewed(cluster) > began + ATTACKED, seconds=60)
        assert cluster.monitor("node1").call("POST", MONITORS, {"metadata": {"name": "node1"}})[0] == 201
        assert cluster.driver("node1").call("GET", "/apis/resource.k8s.io/v1/resourceslices")[0] == 200
        eventually("accounts of tenants still wait", lambda: _waiting(cluster), seconds=30)

    eventually("accounts of tenants are answered", lambda: tenant.call("GET", pod)[0] == 200)
    cluster.kube.delete(f"{MONITORS}/node1")


def _waiting(cluster: InstalledCluster) -> int:
    """Return how many requests of service accounts wait for a seat."""
    return sum(map(int, WAITING.findall(cluster.kube.call("GET", "/metrics")[1]["text"])))


def _renewed(cluster: InstalledCluster) -> datetime:
    """Return when the Leases of scheduler and controller were renewed: the earlier time."""
    names = ("gpu-scheduler", "gpu-scheduler-controller")
    leases = (cluster.kube.call("GET", f"{LEASES}/{name}")[1] for name in names)
    return min(datetime.fromisoformat(lease["spec"]["renewTime"]) for lease in leases)
