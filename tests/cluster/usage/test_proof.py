"""The proof as a user runs it: it passes on the healthy cluster, and fails for a pod of another scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.clusters import CHECK, Cluster, run_playbook
from tests.cluster.verify.test_proof import assert_reports
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.promise("up-3")
def test_proof_passes_as_the_cluster_stands() -> None:
    """`make verify` succeeds on the healthy cluster and changes nothing."""
    done = run_playbook("playbooks/verify.yml")

    assert done.returncode == 0, done.stdout
    assert "changed=0" in done.stdout


@pytest.fixture
def misplaced(cluster: Cluster) -> Iterator[str]:
    """Create one check pod again with the default scheduler; restore the original afterwards."""
    name = f"{CHECK}-2"
    pod = cluster.get("pod", "-n", "default", name)
    kept = {key: pod["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
    for key in [key for key in kept["annotations"] if key.startswith("agentaflow.gpu/assigned-")]:
        del kept["annotations"][key]
    spec = pod["spec"]
    spec["schedulerName"] = "default-scheduler"
    del spec["nodeName"]
    # The StatefulSet would replace this pod by its own.
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
    """A check pod that another scheduler placed fails the proof, even if node and variable are right."""
    assert_reports(misplaced, run_playbook("playbooks/verify.yml"))
