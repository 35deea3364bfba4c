"""Both charts by real helm: installed, tested, upgraded, uninstalled; with a certificate of one's own, and without."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster.charts.installing import check_pods, helm, named_objects, wait_left, wait_placed, with_image
from tests.cluster.clusters import CHECK, ROOT, SYSTEM, Cluster
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.charts.installing import Images

SECRETS: Final = ("gpu-scheduler-webhook-ca", "gpu-scheduler-webhook-tls")
KEPT: Final = {f"secret/{name}" for name in SECRETS}
"""What a release leaves in its namespace, as its notes say. Leases have no owner: the programs made them."""
LEASES: Final = {"lease.coordination.k8s.io/gpu-scheduler", "lease.coordination.k8s.io/gpu-scheduler-controller"}
WAIT: Final = ("--wait", "--timeout=3m")


@pytest.fixture
def emptied(cluster: Cluster) -> Iterator[None]:
    """Delete afterwards what the releases leave, so that the next case begins on an empty cluster."""
    yield
    helm(cluster, "uninstall", CHECK, "-n", "default", "--ignore-not-found", "--wait")
    for namespace in (SYSTEM, "kube-system"):
        helm(cluster, "uninstall", "gpu-scheduler", "-n", namespace, "--ignore-not-found", "--wait")
        for name in SECRETS:
            cluster.kubectl("delete", "secret", "-n", namespace, name, "--ignore-not-found")
        for lease in ("gpu-scheduler", "gpu-scheduler-controller"):
            cluster.kubectl("delete", "lease", "-n", namespace, lease, "--ignore-not-found")
    cluster.kubectl("delete", "namespace", SYSTEM, "--ignore-not-found")
    cluster.kubectl("delete", "crd", "--ignore-not-found", "gpunodes.agentaflow.io", "gpuworkloads.agentaflow.io")


@pytest.mark.usefixtures("emptied")
def test_the_third_sources_flow(cluster: Cluster, images: Images, tmp_path: Path) -> None:
    """Certificates by the verb, the caBundle as a value, both charts, an upgrade, and nothing left that is not told."""
    assert helm(cluster, "version").startswith("version")
    cluster.kubectl("create", "namespace", SYSTEM)
    bundle = _applied_certificates(cluster, tmp_path / "certs")
    given = ("--set", "webhook.enabled=true", "--set", f"webhook.caBundle={bundle}", *with_image(images.scheduler))

    helm(cluster, "install", "gpu-scheduler", "charts/gpu-scheduler", "-n", SYSTEM, *given, *WAIT)
    assert bundle in helm(cluster, "get", "values", "gpu-scheduler", "-n", SYSTEM)
    message = helm(cluster, "test", "gpu-scheduler", "-n", SYSTEM, "--timeout=2m")
    assert "Succeeded" in message
    check = (*with_image(images.check), "--set", "waitForScheduler=true")
    helm(cluster, "install", CHECK, "charts/gpu-scheduler-check", "-n", "default", *check, *WAIT)
    wait_placed(cluster)
    helm(cluster, "test", CHECK, "-n", "default", "--timeout=3m")

    # The source's cure of a broken certificate: all of it anew. A new CA has to be trusted, and kubelets bring a
    # changed Secret into a running pod only after a minute.
    cluster.kubectl("delete", "secret", "gpu-scheduler-webhook-tls", "gpu-scheduler-webhook-ca", "-n", SYSTEM)
    bundle = _applied_certificates(cluster, tmp_path / "new")
    cluster.kubectl("rollout", "restart", "-n", SYSTEM, "deployment/gpu-scheduler-webhook")
    before = check_pods(cluster)
    changed = (
        "--reuse-values",
        "--set",
        f"webhook.caBundle={bundle}",
        "--set",
        "scheduler.logLevel=DEBUG",
        "--set",
        "webhook.replicas=1",
    )
    helm(cluster, "upgrade", "gpu-scheduler", "charts/gpu-scheduler", "-n", SYSTEM, *changed, *WAIT)
    helm(cluster, "test", "gpu-scheduler", "-n", SYSTEM, "--timeout=2m")
    assert cluster.get("deployment", "-n", SYSTEM, "gpu-scheduler-webhook")["spec"]["replicas"] == 1

    helm(cluster, "uninstall", "gpu-scheduler", "-n", SYSTEM, "--wait", "--timeout=2m")
    wait_placed(cluster)
    assert check_pods(cluster) == before
    helm(cluster, "uninstall", CHECK, "-n", "default", "--wait", "--timeout=2m")

    wait_left(cluster, {f"namespace/{SYSTEM}", *KEPT, *LEASES})


@pytest.mark.usefixtures("emptied")
def test_the_fourth_sources_namespace(cluster: Cluster, images: Images) -> None:
    """In kube-system, with a certificate that the release issues; its account is gone when helm is done; twice."""
    first = ("gpu-scheduler", "charts/gpu-scheduler", "-n", "kube-system", *with_image(images.scheduler), *WAIT)
    deployment = ("--set", "statefulSet.enabled=false")

    helm(cluster, "install", *first)
    assert not [name for name in named_objects(cluster) if "issuer" in name]
    helm(cluster, "test", "gpu-scheduler", "-n", "kube-system", "--timeout=2m")
    helm(cluster, "install", CHECK, "charts/gpu-scheduler-check", *with_image(images.check), *WAIT)
    wait_placed(cluster)
    secret = cluster.get("secret", "-n", "kube-system", "gpu-scheduler-webhook-tls")["data"]
    helm(cluster, "upgrade", *first)
    assert secret == cluster.get("secret", "-n", "kube-system", "gpu-scheduler-webhook-tls")["data"]

    shorter = "podAnnotations.gpu-scheduling-map=0=node1:0\\,1\n1=node2:2"
    chart = "charts/gpu-scheduler-check"
    helm(cluster, "upgrade", CHECK, chart, "--set-string", shorter, "--reuse-values", *WAIT)
    eventually("two check pods are left", lambda: len(check_pods(cluster)) == 2, 60)
    helm(cluster, "upgrade", CHECK, chart, *with_image(images.check), *deployment, *WAIT)
    helm(cluster, "test", CHECK, "--timeout=3m")
    helm(cluster, "uninstall", CHECK, "--wait", "--timeout=2m")
    helm(cluster, "uninstall", "gpu-scheduler", "-n", "kube-system", "--wait", "--timeout=2m")

    wait_left(cluster, {*KEPT, *LEASES})


def _applied_certificates(cluster: Cluster, folder: Path) -> str:
    """Make certificates, apply their Secrets; return the CA as a value of the chart."""
    _program("certificates", "--out", str(folder), "-n", SYSTEM)
    cluster.kubectl("apply", "-f", str(folder / "webhook-tls-secret.yaml"))
    return base64.b64encode((folder / "ca.crt").read_bytes()).decode()


def _program(*words: str) -> None:
    done = subprocess.run(
        (sys.executable, "-m", "gpu_scheduler", *words),
        env={**os.environ, "PYTHONPATH": str(ROOT / "scheduler")},
        capture_output=True,
        text=True,
        timeout=limit(60),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
