"""The installed cluster behaves as a real one: allowed work succeeds; tenants have no right outside their namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import objects
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.attacks.installed_cluster import InstalledCluster, Tenant


def test_an_honest_pod_is_admitted_and_bound(tenant: Tenant) -> None:
    """A pod that keeps to the rules is bound; otherwise a refusal in this suite would prove nothing."""
    status, answer = tenant.call("POST", tenant.pods, objects.pod("train-0", "0=node1:0,1"))

    assert status == 201, answer
    assert tenant.namespace.placed("train-0").devices == "0,1"


def test_an_honest_workload_gets_its_pod(new_tenant: Tenant) -> None:
    """ClusterRole `admin` contains the rights that the role crds aggregates to it."""
    body = objects.gpu_workload("one", gpuRequirements={"gpuCount": 1})

    status, answer = new_tenant.call("POST", new_tenant.workloads, body)

    assert status == 201, answer
    assert eventually("its pod is bound", lambda: new_tenant.namespace.count_bound() == 1)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/namespaces/default/pods"),
        ("GET", "/api/v1/namespaces/gpu-scheduler-system/secrets"),
        ("PATCH", "/api/v1/nodes/node1"),
        ("POST", "/api/v1/namespaces/gpu-scheduler-system/serviceaccounts/gpu-scheduler/token"),
        ("POST", "/api/v1/namespaces/gpu-scheduler-system/configmaps"),
        ("DELETE", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/gpu-scheduler-assignments"),
    ],
)
def test_a_tenants_rights_end_at_its_namespace(tenant: Tenant, method: str, path: str) -> None:
    """Otherwise a refusal in this suite would prove nothing."""
    assert tenant.call(method, path, {"metadata": {"name": "any"}})[0] == 403


def test_each_token_names_its_account(cluster: InstalledCluster) -> None:
    """Each token names its account, and a monitor's token names its node."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    asked = {
        "gpu-scheduler": cluster.account("gpu-scheduler"),
        "gpu-scheduler-controller": cluster.account("gpu-scheduler-controller"),
        "gpu-scheduler-monitor": cluster.monitor("node2"),
        "gpu-scheduler-renewer": cluster.account("gpu-scheduler-renewer"),
    }

    answers = {
        name: kube.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)["status"]["userInfo"]
        for name, kube in asked.items()
    }

    assert {name: user["username"].rpartition(":")[2] for name, user in answers.items()} == {
        name: name for name in asked
    }
    assert answers["gpu-scheduler-monitor"]["extra"]["authentication.kubernetes.io/node-name"] == ["node2"]
