"""The proof can fail: each wrong placement is found, named, and shown with its events and log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cluster.clusters import CHECK, HOME, ROOT, Cluster, run_playbook
from tests.cluster.verify.masking import masked
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from subprocess import CompletedProcess

WRONG_MAP = """\
0=node1:0,1
1=node2:2
2=node3:0,1,3
3=node4:3
4=node4:3
"""


@pytest.mark.parametrize("name", ["pods.txt", "node3.log", "node4.log", "validation-report.md"])
@pytest.mark.promise("up-4")
def test_evidence_is_what_a_fresh_run_writes(name: str) -> None:
    """The committed evidence equals what this run wrote, but for what differs from cluster to cluster."""
    committed = (ROOT / "evidence" / name).read_text()
    written = (HOME / "evidence" / name).read_text()

    assert masked(committed) == masked(written)


@pytest.mark.promise("up-3")
def test_proof_passes_as_the_cluster_stands() -> None:
    """`make verify` succeeds on the healthy cluster and changes nothing."""
    done = run_playbook("playbooks/verify.yml")

    assert done.returncode == 0, done.stdout
    assert "changed=0" in done.stdout


@pytest.mark.promise("up-3")
def test_proof_fails_when_one_expected_device_differs() -> None:
    """With one expected device changed the proof exits non-zero and shows that pod's events and log."""
    done = run_playbook("playbooks/verify.yml", "-e", json.dumps({"gpu_scheduling_map": WRONG_MAP}))

    assert_tells_of(f"{CHECK}-2", done)
    assert "node3:0,1,3" in done.stdout


@pytest.fixture
def misplaced(cluster: Cluster) -> Iterator[str]:
    """Re-create one check pod under the default scheduler; give it back to ours afterwards."""
    name = f"{CHECK}-2"
    pod = cluster.get("pod", "-n", "default", name)
    kept = {key: pod["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
    for key in [key for key in kept["annotations"] if key.startswith("agentaflow.gpu/assigned-")]:
        del kept["annotations"][key]
    spec = pod["spec"]
    spec["schedulerName"] = "default-scheduler"
    del spec["nodeName"]
    # The StatefulSet would put its own pod in the place of this one.
    cluster.kubectl("delete", "statefulset", "-n", "default", CHECK, "--cascade=orphan")
    cluster.kubectl("delete", "pod", "-n", "default", name, "--wait")
    cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": spec})
    cluster.kubectl("wait", "--for=condition=Ready", "-n", "default", f"pod/{name}", "--timeout=60s")
    yield name
    cluster.kubectl("delete", "pod", "-n", "default", name, "--wait")
    healed = run_playbook("site.yml", "--tags", "check")
    assert healed.returncode == 0, healed.stdout
    eventually("the proof to pass again", lambda: run_playbook("playbooks/verify.yml").returncode == 0, 60)


@pytest.mark.promise("up-3")
def test_proof_fails_for_a_pod_of_another_scheduler(misplaced: str) -> None:
    """A check pod that another scheduler placed fails the proof, even where node and variable happen to fit."""
    assert_tells_of(misplaced, run_playbook("playbooks/verify.yml"))


def assert_tells_of(pod: str, done: CompletedProcess[str]) -> None:
    """The proof failed and printed the pod's name, its events and its log."""
    assert done.returncode != 0
    assert f"default/{pod}" in done.stdout
    assert "Events of default/" + pod in done.stdout
    assert "Log of default/" + pod in done.stdout
    assert "CUDA_VISIBLE_DEVICES: " in done.stdout
