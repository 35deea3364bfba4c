"""A scripted cluster on which gpu-scheduler is installed."""

from __future__ import annotations

from base64 import b64encode
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from gpu_scheduler.certificates.issuing import Terms, issue, issue_ca, names_of, read_authority
from gpu_scheduler.cli.doctor.expected import GUARDS, KINDS, WEBHOOKS
from gpu_scheduler.cli.doctor.reading import ServerClock
from unit_tests.cli.doctor.healthy import PRIORITIES
from unit_tests.cli.scripted_cluster import MISSING, SYSTEM, cluster, items
from unit_tests.kube.server import FakeServer, Reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from gpu_scheduler.cli.options import Options
    from tests.objects import Object

NAMESPACE = "gpu-scheduler-system"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PODS = f"/api/v1{SYSTEM}/pods"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
DAY = timedelta(days=1)
NOW = datetime.now(UTC)
CA = issue_ca(3000 * DAY, NOW)
PAIR = issue(read_authority(CA), Terms(names_of("gpu-scheduler-webhook", NAMESPACE), 300 * DAY, 30 * DAY), NOW)
FORBIDDEN = Reply(403, {"message": "not for you"})
BUILD = 'gpu_scheduler_build_info{commit="0a1b2c3",version="0.1.0"} 1.0\n'
READY = Reply(body="[+]caches ok\nreadyz check passed\n")
CLOCK = ServerClock(NOW, 0.0)


def named(name: str, **spec: object) -> Object:
    return {"metadata": {"name": name}, "spec": spec}


def own_pod(name: str, component: str, phase: str = "Running", app: str = "gpu-scheduler") -> Object:
    """Return a pod of ours with the port of its probes."""
    labels = {"app.kubernetes.io/name": app, "app.kubernetes.io/component": component}
    container = {
        "name": "main",
        "ports": [{"name": "https", "containerPort": 8443}, {"name": "http", "containerPort": 8080}],
    }
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [container]},
        "status": {"phase": phase},
    }


def workload(name: str, **meta: object) -> Object:
    """Return a Deployment with two available replicas."""
    template = {"spec": {"containers": [{"name": "main", "image": "registry.invalid/gpu-scheduler:1"}]}}
    return {
        "metadata": {"name": name, **meta},
        "spec": {"replicas": 2, "template": template},
        "status": {"availableReplicas": 2},
    }


def policy(name: str) -> Object:
    return named(name, failurePolicy="Fail", policyName=name, validationActions=["Deny"])


def registration(*webhooks: str) -> Reply:
    bundle = b64encode(CA["ca.crt"]).decode()
    found = [{"name": each, "clientConfig": {"caBundle": bundle}} for each in webhooks]
    return Reply(body={"metadata": {"name": "gpu-scheduler-webhook"}, "webhooks": found})


def probed(*variables: str) -> Reply:
    """Return the answer to a dry run: a pod whose container has these variables."""
    container = {"name": "probe", "env": [{"name": each} for each in variables]}
    return Reply(201, {"metadata": {"name": "probe"}, "spec": {"containers": [container]}})


def proxied(name: str, path: str) -> str:
    return f"{PODS}/{name}:8080/proxy/{path}"


SECRET = Reply(
    body={"metadata": {"name": "gpu-scheduler-webhook-tls"}, "data": {"tls.crt": b64encode(PAIR["tls.crt"]).decode()}}
)
HELM = {"labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": {"meta.helm.sh/release-name": "ours"}}
MONITORS = "/apis/apps/v1/namespaces/gpu-scheduler-monitor/daemonsets/gpu-scheduler-monitor"
DRIVERS = "/apis/apps/v1/namespaces/gpu-scheduler-driver/daemonsets/gpu-scheduler-driver"
MONITOR_LEASES = "/apis/coordination.k8s.io/v1/namespaces/gpu-scheduler-monitor/leases"
INSTALLED: dict[str, Reply] = {
    "/version": Reply(body={"major": "1", "minor": "36+"}),
    f"/apis/apps/v1{SYSTEM}/deployments": items(workload("gpu-scheduler", **HELM), workload("gpu-scheduler-webhook")),
    MONITORS: Reply(
        body={**workload("gpu-scheduler-monitor"), "status": {"desiredNumberScheduled": 4, "numberAvailable": 3}}
    ),
    DRIVERS: MISSING,
    f"/apis/batch/v1{SYSTEM}/cronjobs/gpu-scheduler-renewer": Reply(body={}),
    PODS: items(own_pod("gpu-scheduler-0", "scheduler"), own_pod("gpu-scheduler-webhook-0", "webhook")),
    proxied("gpu-scheduler-0", "readyz"): READY,
    proxied("gpu-scheduler-0", "metrics"): Reply(body=BUILD),
    proxied("gpu-scheduler-webhook-0", "readyz"): READY,
    proxied("gpu-scheduler-webhook-0", "metrics"): Reply(
        body=f"{BUILD}gpu_scheduler_certificate_expiry_seconds 86400.0\n"
    ),
    f"{ADMISSION}/mutatingwebhookconfigurations/gpu-scheduler-webhook": registration(*(WEBHOOKS - {"validate"})),
    f"{ADMISSION}/validatingwebhookconfigurations/gpu-scheduler-webhook": MISSING,
    f"/api/v1{SYSTEM}/secrets/gpu-scheduler-webhook-tls": SECRET,
    f"{ADMISSION}/validatingadmissionpolicies": items(*map(policy, GUARDS)),
    f"{ADMISSION}/validatingadmissionpolicybindings": items(*map(policy, GUARDS)),
    f"{ADMISSION}/mutatingadmissionpolicies/gpu-scheduler-injection": MISSING,
    f"{ADMISSION}/mutatingadmissionpolicybindings/gpu-scheduler-injection": MISSING,
    f"/apis/coordination.k8s.io/v1{SYSTEM}/leases/gpu-scheduler-controller": MISSING,
    "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas": items(*map(named, PRIORITIES)),
    **{
        f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind}": Reply(
            body={"status": {"conditions": [{"type": "Established", "status": "True"}]}}
        )
        for kind in KINDS
    },
}


@asynccontextmanager
async def installed(
    tmp_path: Path, changes: dict[str, Reply] | None = None, **replies: Reply
) -> AsyncIterator[tuple[FakeServer, Options]]:
    """Run a cluster with an installation, except for these replies by path, or by their name in `cluster`."""
    async with cluster(tmp_path, **replies) as (server, options):
        for path, reply in {**INSTALLED, **(changes or {})}.items():
            server.on("GET", path, reply)
        server.on("POST", PODS, probed("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"))
        server.on("POST", REVIEWS, Reply(201, {"status": {"allowed": True}}))
        yield server, options
