"""The proof fails for each wrong placement: it names the pod, and shows its events and log."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.cluster.clusters import CHECK, HOME, run_playbook
from tests.cluster.verify.test_placement import EXPECTED

if TYPE_CHECKING:
    from subprocess import CompletedProcess

WRONG_MAP = """\
0=node1:0,1
1=node2:2
2=node3:0,1,3
3=node4:3
4=node4:3
"""


@pytest.mark.promise("up-4")
def test_evidence_has_every_check_pod() -> None:
    """The run wrote a row for each pod of the map, the list of pods, and the output of the check pods of two nodes."""
    report, pods = ((HOME / "evidence" / name).read_text() for name in ("validation-report.md", "pods.txt"))

    for (namespace, pod), (node, devices) in EXPECTED.items():
        assert f"| {namespace} | {pod} | {node}:{devices} | {node}:{devices} | ok | " in report
        assert re.search(rf"^{namespace} +{pod} .* {node} ", pods, re.MULTILINE), pod
        if (namespace, node) in {("default", "node3"), ("default", "node4")}:
            log = (HOME / "evidence" / f"{node}.log").read_text()
            assert f"==> {namespace}/{pod} <==\nNode Name: {node}\nCUDA_VISIBLE_DEVICES: {devices}\n" in log


@pytest.mark.promise("up-3")
def test_proof_fails_when_one_expected_device_differs() -> None:
    """With one expected device changed the proof exits non-zero and shows that pod's events and log."""
    done = run_playbook("playbooks/verify.yml", "-e", json.dumps({"gpu_scheduling_map": WRONG_MAP}))

    assert_reports(f"{CHECK}-2", done)
    assert "node3:0,1,3" in done.stdout


def assert_reports(pod: str, done: CompletedProcess[str]) -> None:
    """Check that the proof failed and printed the pod's name, its events and its log."""
    assert done.returncode != 0
    assert f"default/{pod}" in done.stdout
    assert "Events of default/" + pod in done.stdout
    assert "Log of default/" + pod in done.stdout
    assert "CUDA_VISIBLE_DEVICES: " in done.stdout
