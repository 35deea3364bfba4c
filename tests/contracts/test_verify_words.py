"""The proof of `make verify` and the verb `verify` share no code: where they compare the same, their words agree."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpu_scheduler.cli.container_environments import read_state
from gpu_scheduler.cli.snapshot import ClusterObjects, Snapshot, read_node, read_pod
from gpu_scheduler.cli.verification import Records, pod_views, read_environment
from gpu_scheduler.core.policy import Policy
from tests import objects
from tests.contracts.loading import load

evidence = load("roles", "evidence", "filter_plugins", "evidence.py")

NAME = "gpu-scheduler-check-0"
MAP = "0=node1:0,1"
PCI = "CUDA_DEVICE_ORDER=PCI_BUS_ID\0"
CASES = {
    "all as the map says": ("node1", f"CUDA_VISIBLE_DEVICES=0,1\0{PCI}"),
    "another node": ("node2", f"CUDA_VISIBLE_DEVICES=0,1\0{PCI}"),
    "other devices": ("node1", f"CUDA_VISIBLE_DEVICES=3\0{PCI}"),
    "devices in another order": ("node1", f"CUDA_VISIBLE_DEVICES=1,0\0{PCI}"),
    "no such variable": ("node1", PCI),
    "another order of devices": ("node1", "CUDA_VISIBLE_DEVICES=0,1\0CUDA_DEVICE_ORDER=FASTEST_FIRST\0"),
    "everything": ("node2", "PATH=/bin\0"),
}


def pod_on(node: str) -> dict[str, Any]:
    """Return the check pod as it is after its Binding to `node`, by hand if that is not the line's."""
    body = objects.pod(NAME, MAP, objects.literal("0,1"), nodeName=node)
    body["metadata"] |= {"namespace": "default", "uid": "uid-0"}
    return {"kind": "Pod", **body, "status": {"phase": "Running"}}


@pytest.mark.parametrize(("node", "environment"), CASES.values(), ids=CASES)
def test_both_say_the_same(node: str, environment: str) -> None:
    """The verb has a reason for each fault that the proof names, it begins with the same words, and it has no other."""
    pod, nodes = pod_on(node), [{"kind": "Node", **objects.node(name)} for name in ("node1", "node2")]
    expected = [{"namespace": "default", "name": NAME, "node": "node1", "devices": "0,1"}]
    item = {"namespace": "default", "pod": NAME, "container": "main"}
    answers = [{"item": item, "rc": 0, "stdout": environment}]

    (row,) = evidence.proof({"items": [*nodes, pod]}, expected, answers, "gpu-scheduler")
    raw = json.dumps(pod).encode()
    one, (_, state) = read_pod(raw), read_state(raw)
    listed = tuple(read_node(json.dumps(each).encode()) for each in nodes)
    snapshot = Snapshot(Policy(), ClusterObjects(listed, (one,)))
    records = Records(snapshot.nodes, snapshot.ledger)
    (view,) = pod_views(one, state.index, records, {(one.ref, "main"): read_environment(environment.encode())})

    faults = row["verdict"].split(", ")
    reasons = (view["why"] or view["verdict"]).split("; ")
    assert [reason.startswith(fault) for fault, reason in zip(faults, reasons, strict=True)] == [True] * len(faults)
    assert (row["verdict"] == "ok") == (view["verdict"] == "ok")
