"""`gpu-scheduler doctor` on a cluster with kubelets: nothing is wrong, and what is damaged is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from gpu_scheduler.cli.doctor.examine import CHECKS
from tests.cluster.clusters import ROOT, Cluster
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.clusters import Json

BINDING: Final = "validatingadmissionpolicybinding/gpu-scheduler-inputs"


def _doctor(cluster: Cluster) -> tuple[int, list[Json]]:
    """Run the verb of this checkout. Return its exit code and what is wrong."""
    done = subprocess.run(
        (sys.executable, "-m", "gpu_scheduler", "doctor", "-o", "json"),
        env={**os.environ, "PYTHONPATH": str(ROOT / "scheduler"), "KUBECONFIG": str(cluster.kubeconfig)},
        capture_output=True,
        text=True,
        timeout=limit(60),
        check=False,
    )
    assert done.stdout, done.stderr
    items = json.loads(done.stdout)["items"]
    assert {item["check"] for item in items} == {check.name for check in CHECKS}
    return done.returncode, [item for item in items if item["result"] != "ok"]


def _is_well(cluster: Cluster, last: list[object]) -> bool:
    last[:] = [_doctor(cluster)]
    return last == [(0, [])]


@pytest.fixture
def without_binding(cluster: Cluster) -> Iterator[None]:
    """Delete the binding of a policy; create it again after the test."""
    manifest = cluster.kubectl("get", BINDING, "-o", "json").stdout
    body = json.loads(manifest)
    body["metadata"] = {key: body["metadata"].get(key, {}) for key in ("name", "labels", "annotations")}
    cluster.kubectl("delete", BINDING)
    yield
    cluster.create(body)


@pytest.mark.promise("doctor-1")
def test_a_healthy_cluster_has_no_finding(cluster: Cluster, healthy: None) -> None:
    """Every check passes, with the versions, Leases and certificates of a real installation."""
    last: list[object] = []
    try:
        eventually("nothing to be wrong", partial(_is_well, cluster, last), 60, 1)
    except AssertionError as error:
        error.add_note(str(last))
        raise


@pytest.mark.promise("doctor-1")
def test_a_binding_that_is_gone_is_named(cluster: Cluster, healthy: None, without_binding: None) -> None:
    """With its remedy, and exit code 1."""
    code, wrong = _doctor(cluster)

    assert code == 1
    assert [(item["check"], item["object"], item["remedy"]) for item in wrong] == [
        ("policies", "validatingadmissionpolicybinding/gpu-scheduler-inputs", "make up ARGS='--tags policies'")
    ]
