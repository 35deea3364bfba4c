"""The seeds of the fuzzer: one valid input of each format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import yaml

from tests.objects import pod, review

FIXTURES: Final = Path(__file__).resolve().parents[2] / "scheduler/unit_tests/kube/fixtures"
BETWEEN: Final = b"\x00"
"""A separator between two watches in an input: no JSON contains it."""


MAP: Final = "0=node1:0,1\n1=node2:2\n"


def _events(name: str) -> bytes:
    """Return a fixture's events: added, modified and deleted."""
    body = yaml.safe_load((FIXTURES / f"{name}.yaml").read_text())
    body["metadata"]["resourceVersion"] = "7"
    return b"".join(
        json.dumps({"type": kind, "object": body}).encode() + b"\n" for kind in ("ADDED", "MODIFIED", "DELETED")
    )


def _added(body: object) -> bytes:
    return json.dumps({"type": "ADDED", "object": body}).encode() + b"\n"


# In the order in which scheduler/watches.py names the watches.
NODES, CORDONS, MONITORS, STRATEGY, LIMITS, FOREIGN_PODS, CLAIMS, VOLUMES, CLASSES, PODS = (
    bytes([number]) for number in range(20, 30)
)
_NODE: Final = {
    "metadata": {
        "name": "node1",
        "labels": {"gpu-node-name": "gpus"},
        "annotations": {"agentaflow.gpu/devices": '[{"index": 0, "memoryTotalMiB": 8192, "health": "healthy"}]'},
    },
    "status": {
        "allocatable": {"pods": "110", "cpu": "8", "memory": "8Gi", "nvidia.com/gpu": "2"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
_POD: Final = pod("train-0", MAP, nodeSelector={"a": "b"}, tolerations=[{"operator": "Exists"}])
_COUNT: Final = {**pod("a"), "metadata": {"name": "a", "uid": "u", "annotations": {"agentaflow.gpu/count": "1"}}}
_ENDED: Final = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}\n'
_ERROR: Final = b'{"type":"ERROR","object":{"code":410,"reason":"Expired","message":"too old"}}\n'
_DEBUGGED: Final = review(
    pod("train-0", MAP, ephemeralContainers=[{"name": "debugger"}]),
    operation="UPDATE",
    subResource="ephemeralcontainers",
    oldObject=pod("train-0", MAP),
)
_JOB: Final = review(
    {
        "metadata": {"name": "job", "annotations": {"agentaflow.gpu/count": "1"}},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": {"containers": []}}}}},
    },
    kind={"group": "kubeflow.org", "version": "v1", "kind": "PyTorchJob"},
)

MAPS: Final = (
    MAP.encode(),
    b"# who\r\n 0 = gpu-1.example.com : 0 ,\t1 \r\n\n7=a:",
    b"0=n:GPU-8f5b1c3e-0c4a-4e5e-9d6b-2f0a7c1d2e3f\n1=n:MIG-41b3359c-e721-56e5-8009-12e5797ed514",
    b"2147483647=a:2147483647\n00=a:0\n1=a:0,0",
)
REVIEWS: Final = tuple(
    json.dumps(each).encode()
    for each in (review(pod("train-0", MAP)), review(_POD), review(_COUNT), _DEBUGGED, _JOB, review(None))
)
WATCHES: Final = (
    NODES + _added(_NODE) + BETWEEN + PODS + _added(_POD) + _ENDED + _added(_COUNT),
    NODES + _events("node_ready") + BETWEEN + PODS + _events("pod_statefulset_bound"),
    NODES + _events("node_cordoned") + BETWEEN + PODS + _events("pod_waiting") + _ERROR,
    FOREIGN_PODS + _events("pod_statefulset_bound"),
    CORDONS + _added({"metadata": {"name": "node1"}, "spec": {"cordoned": [{"device": "*", "until": "x"}]}}),
    MONITORS + _added({"metadata": {"name": "node1"}, "spec": {"renewTime": "2026-11-21T01:00:00.000000Z"}}),
    STRATEGY + _added({"metadata": {"name": "gpu-scheduler"}, "data": {"SCHEDULING_STRATEGY": "best_fit"}}),
    LIMITS + _added({"metadata": {"name": "gpu-scheduler-limits"}, "data": {"limits": "d: devices=1\n*: devices=x"}}),
    CLAIMS + _added({"metadata": {"name": "c", "namespace": "d"}, "spec": {"storageClassName": "s"}}),
    VOLUMES + _added({"metadata": {"name": "v"}, "spec": {"nodeAffinity": {"required": None}}}),
    CLASSES + _added({"metadata": {"name": "s"}, "volumeBindingMode": "WaitForFirstConsumer"}),
)
OBJECTS: Final = tuple(
    json.dumps(each).encode()
    for each in (
        {
            "metadata": {"name": "w", "namespace": "d", "uid": "u", "generation": 2},
            "spec": {
                "priority": 5,
                "gpuMemoryRequired": 8192,
                "schedulingStrategy": "best_fit",
                "gpuRequirements": {"gpuCount": 2, "exclusiveAccess": False, "gpuType": "A100", "minGPUMemory": 1},
                "estimatedDuration": "1h30m",
                "retryPolicy": {"limit": 3},
                "podTemplate": {"spec": {"containers": []}},
            },
            "status": {"phase": "Running", "attempt": 1, "conditions": []},
        },
        {
            **pod("train-0", MAP),
            "status": {
                "phase": "Failed",
                "reason": "Evicted",
                "containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}],
            },
        },
        {"metadata": {"name": "node1"}, "spec": {"nodeName": "node1"}, "status": {"devices": [{"index": 0}]}},
    )
)
