"""A scripted cluster, and the options with which the CLI reaches it."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from gpu_scheduler.cli.options import Options
from unit_tests.kube.server import FakeServer, Reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.objects import Object

Capsys = pytest.CaptureFixture[str]
SYSTEM = "/namespaces/gpu-scheduler-system"
DEPLOYMENT = f"/apis/apps/v1{SYSTEM}/deployments/gpu-scheduler"
SETTINGS = f"/api/v1{SYSTEM}/configmaps/gpu-scheduler-settings"
LIMITS = f"/api/v1{SYSTEM}/configmaps/gpu-scheduler-limits"
LEASE = f"/apis/coordination.k8s.io/v1{SYSTEM}/leases/gpu-scheduler"
MONITORS = "/apis/coordination.k8s.io/v1/namespaces/gpu-scheduler-monitor/leases"
WORKLOADS = "/apis/agentaflow.io/v1/gpuworkloads"
GPU_NODES = "/apis/agentaflow.io/v1/gpunodes"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
CONTROLLERS = {
    "statefulsets": "/apis/apps/v1/statefulsets",
    "deployments": "/apis/apps/v1/deployments",
    "replicasets": "/apis/apps/v1/replicasets",
    "jobs": "/apis/batch/v1/jobs",
}
MISSING = Reply(404, {"message": "not found"})
MAP = "0=node1:0,1\n1=node1:1\n"


def items(*bodies: Object) -> Reply:
    """Return a list of these objects."""
    return Reply(body={"metadata": {}, "items": list(bodies)})


def lease(name: str, age: float = 0.0, **spec: object) -> Object:
    """Return a Lease that was renewed `age` seconds ago and lasts 15 s."""
    renewed = (datetime.now(UTC) - timedelta(seconds=age)).isoformat()
    spec = {"holderIdentity": "gpu-scheduler-0_1", "renewTime": renewed, "leaseDurationSeconds": 15, **spec}
    return {"metadata": {"name": name, "namespace": "any"}, "spec": spec}


def deployment(**env: str) -> Reply:
    """Return the scheduler's Deployment with this environment."""
    variables = [{"name": name, "value": value} for name, value in env.items()]
    spec = {"template": {"spec": {"containers": [{"name": "scheduler", "env": variables}]}}}
    return Reply(body={"metadata": {"name": "gpu-scheduler"}, "spec": spec})


def settings(strategy: str) -> Reply:
    """Return the ConfigMap of the dynamic settings."""
    return Reply(body={"metadata": {"name": "gpu-scheduler-settings"}, "data": {"strategy": strategy}})


def limits(text: str) -> Reply:
    """Return the ConfigMap of the namespaces' limits."""
    return Reply(body={"metadata": {"name": "gpu-scheduler-limits"}, "data": {"limits": text}})


def device(index: int, **more: object) -> Object:
    """Return a device as its monitor lists it."""
    uuid = f"GPU-{index:08x}-0000-4000-8000-000000000000"
    known = {"model": "NVIDIA L4", "memoryTotalMiB": 24576, "memoryUsedMiB": 512, "utilization": 10}
    return {"index": index, "uuid": uuid, "health": "healthy", "temperature": 40, "power": 60, **known, **more}


def node(name: str, *devices: Object, **more: object) -> Object:
    """Return a Ready node that lists these devices; without devices, it has no list."""
    annotations = {"agentaflow.gpu/devices": json.dumps(devices)} if devices else {}
    labels = {"agentaflow.gpu/utilization-tier": "low"}
    status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {}, "capacity": {}}
    metadata = {"name": name, "annotations": annotations, "labels": labels}
    return {"metadata": metadata, "spec": {}, "status": status, **more}


def pod(name: str, node: str | None = None, devices: str = "", message: str = "", **annotations: str) -> Object:
    """Return a pod of ours with MAP: running on `node`, or pending with this message if `node` is None."""
    given = {key.replace("_", "-"): text for key, text in annotations.items()}
    prefixed = {f"agentaflow.gpu/{key}": text for key, text in given.items()} or {"gpu-scheduling-map": MAP}
    assigned = {"agentaflow.gpu/assigned-devices": devices} if node else {}
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    meta = {"namespace": "ml", "name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {
        "metadata": {**meta, "annotations": {**prefixed, **assigned}},
        "spec": {"schedulerName": "gpu-scheduler", "nodeName": node, "containers": [{"name": "main"}]},
        "status": {"phase": "Running" if node else "Pending", "conditions": [condition] if message else []},
    }


@asynccontextmanager
async def cluster(tmp_path: Path, **replies: Reply) -> AsyncIterator[tuple[FakeServer, Options]]:
    """Run an empty cluster, except for these replies: nodes, pods, lease, monitors, workloads and so on."""
    usual = {
        "deployment": (DEPLOYMENT, MISSING),
        "settings": (SETTINGS, MISSING),
        "limits": (LIMITS, MISSING),
        "lease": (LEASE, Reply(body=lease("gpu-scheduler"))),
        "nodes": ("/api/v1/nodes", items()),
        "pods": ("/api/v1/pods", items()),
        "mine": ("/api/v1/namespaces/ml/pods", items()),
        "monitors": (MONITORS, items()),
        "gpu_nodes": (GPU_NODES, items()),
        "slices": (SLICES, MISSING),
        "claims": (CLAIMS, MISSING),
        "workloads": (WORKLOADS, MISSING),
        "my_workloads": (WORKLOADS.replace("v1/", "v1/namespaces/ml/"), MISSING),
        **{name: (path, items()) for name, path in CONTROLLERS.items()},
        **{f"my_{name}": (path.replace("v1/", "v1/namespaces/ml/"), items()) for name, path in CONTROLLERS.items()},
    }
    server = FakeServer()
    await server.start()
    for name, (path, reply) in usual.items():
        server.on("GET", path, replies.get(name, reply))
    config = tmp_path / "kubeconfig"
    config.write_text(json.dumps(kubeconfig(server.url)), encoding="utf-8")
    try:
        yield server, Options(kubeconfig=str(config))
    finally:
        await server.stop()


def kubeconfig(server: str, *, name: str = "test", namespace: str | None = "ml", current: bool = True) -> Object:
    """Return a kubeconfig with one context."""
    context: Object = {"cluster": name, "user": name, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        **({"current-context": name} if current else {}),
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": name, "user": {"token": "secret"}}],
        "contexts": [{"name": name, "context": context}],
    }
