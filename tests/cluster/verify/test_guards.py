"""What only a whole cluster shows of the policies: kube-scheduler still works, and their expressions are checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpu_scheduler.cli.doctor.expected import GUARDS
from tests.cluster.clusters import TESTS, Cluster
from tests.cluster.verify.pods import runs
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.cluster.verify.pods import Json, MakePod


@pytest.mark.promise("guard-6")
def test_kube_scheduler_may_bind(cluster: Cluster, make_pod: MakePod) -> None:
    """A pod without annotation and label is bound by kube-scheduler, runs, and may be changed."""
    pod = make_pod("foreign-2", "", scheduler="default-scheduler")
    del pod["metadata"]["annotations"]
    cluster.create(pod)

    eventually("foreign-2 to run", lambda: runs(cluster.get("pod", "-n", TESTS, "foreign-2")), 30)
    cluster.kubectl("label", "pod", "-n", TESTS, "foreign-2", "pod-template-hash=1", "apps.kubernetes.io/pod-index=7")
    cluster.kubectl("annotate", "pod", "-n", TESTS, "foreign-2", "gpu-scheduling-map=none")


def test_every_policy_passes_type_checking(cluster: Cluster) -> None:
    """The API server checks every expression against its own schemas, and reports no warning."""

    def checked() -> list[Json] | None:
        query = "app.kubernetes.io/component=policies"
        policies: list[Json] = cluster.get("validatingadmissionpolicies", "-l", query)["items"]
        return policies if policies and all("typeChecking" in each.get("status", {}) for each in policies) else None

    assert [each["status"]["typeChecking"] for each in eventually("every policy to be checked", checked)] == [{}] * len(
        GUARDS
    )
