"""`make manifests`, applied by kubectl to a cluster that has nothing of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cluster.charts.installing import wait_left, wait_placed
from tests.cluster.clusters import CHECK, SYSTEM, Cluster

if TYPE_CHECKING:
    from pathlib import Path


def test_manifests_install(cluster: Cluster, manifests: Path) -> None:
    """One `kubectl apply -k`: a Job issues the certificate, the pods are placed; applied again nothing changes."""
    cluster.kubectl("apply", "-k", str(manifests))
    cluster.kubectl("wait", "-n", SYSTEM, "--for=condition=complete", "job/gpu-scheduler-issuer", "--timeout=120s")
    cluster.kubectl("wait", "-n", SYSTEM, "--for=condition=available", "deployment", "--all", "--timeout=120s")
    cluster.kubectl("apply", "-f", str(manifests / "gpu-scheduler-check.yaml"))
    cluster.kubectl("rollout", "status", "-n", "default", f"statefulset/{CHECK}", "--timeout=120s")
    wait_placed(cluster)

    again = cluster.kubectl("apply", "-k", str(manifests)).stdout.splitlines()
    # kubectl sends a budget's selector each time.
    changed = [line for line in again if not line.endswith("unchanged")]
    assert [line for line in changed if not line.startswith("poddisruptionbudget")] == []

    cluster.kubectl("delete", "-f", str(manifests / "gpu-scheduler-check.yaml"))
    cluster.kubectl("delete", "-k", str(manifests), "--timeout=120s")
    wait_left(cluster, set())
