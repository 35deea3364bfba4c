"""The verb `verify` on real kubelets: what is true, what was forged, and what cannot be read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.cluster.clusters import ROOT, TESTS, Cluster
from tests.cluster.verify.pods import runs, waits
from tests.cluster.verify.test_placement import EXPECTED
from tests.messages import text_of
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.verify.pods import Json, MakePod

    Verify = Callable[..., list[Json]]

UNSEEN: Final = 3


@pytest.fixture
def verify(cluster: Cluster) -> Verify:
    """Return a function that runs the verb, which must end with this exit code, and returns its items."""
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "PYTHONPATH": str(ROOT / "scheduler")}

    def run(*words: str, code: int) -> list[Json]:
        command = (sys.executable, "-m", "gpu_scheduler", "verify", *words, "-o", "json")
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit(120), check=False)
        assert done.returncode == code, done.stdout + done.stderr
        items: list[Json] = json.loads(done.stdout)["items"]
        return items

    return run


def _running(cluster: Cluster, name: str) -> bool:
    return runs(cluster.get("pod", "-n", TESTS, name))


@pytest.mark.promise("verify-1")
@pytest.mark.parametrize("namespace", ["default", TESTS])
def test_each_check_pod_is_ok(cluster: Cluster, verify: Verify, namespace: str) -> None:
    """For each pod of the map, the verb finds what the proof of `make verify` finds."""
    names = [name for where, name in EXPECTED if where == namespace]

    found = {each["name"]: each for each in verify(*names, "-n", namespace, code=0)}

    assert set(found) == set(names)
    for name, view in found.items():
        node, devices = EXPECTED[namespace, name]
        actual = {"visibleDevices": devices, "deviceOrder": "PCI_BUS_ID", "deviceFiles": None}
        assert (view["verdict"], view["why"], view["node"], view["actual"]) == ("ok", None, node, actual), name
        assert view["expected"] == {"node": node, "visibleDevices": devices, "source": "map"}


@pytest.mark.promise("verify-2")
def test_forged_pods_differ(cluster: Cluster, make_pod: MakePod, verify: Verify) -> None:
    """A pod that was bound past the scheduler to another node, and one whose first process has another environment."""
    cluster.create(make_pod("elsewhere-0", "0=node9:47"))
    eventually("it to wait", partial(waits, cluster, "elsewhere-0", "NodeNotFound"))
    cluster.bind(TESTS, "elsewhere-0", "node2")
    other = make_pod("other-env-0", "0=node3:47")
    other["spec"]["containers"][0]["command"] = ["env", "CUDA_VISIBLE_DEVICES=7", "sleep", "infinity"]
    cluster.create(other)
    for name in ("elsewhere-0", "other-env-0"):
        eventually(f"{name} to run", partial(_running, cluster, name), 60)

    found = {each["name"]: each for each in verify("elsewhere-0", "other-env-0", "-n", TESTS, code=1)}

    assert {name: each["verdict"] for name, each in found.items()} == dict.fromkeys(found, "differs")
    assert found["elsewhere-0"]["why"] == text_of("verify: another node", node="node9")
    assert (found["elsewhere-0"]["node"], found["elsewhere-0"]["actual"]["visibleDevices"]) == ("node2", "47")
    assert found["other-env-0"]["why"] == "wrong devices"
    assert found["other-env-0"]["expected"]["visibleDevices"] == "47"
    assert found["other-env-0"]["actual"]["visibleDevices"] == "7"


@pytest.mark.promise("verify-3")
def test_a_container_without_programs_is_unseen(cluster: Cluster, make_pod: MakePod, verify: Verify) -> None:
    """The image of the pods' sandboxes, which every node has, consists of one program that only waits."""
    listed = cluster.on_node("node3", "ctr", "--namespace=k8s.io", "images", "list", "--quiet").split()
    pod: dict[str, Any] = make_pod("bare-0", "0=node3:48")
    pod["spec"]["containers"][0]["image"] = next(name for name in listed if "/pause:" in name)
    cluster.create(pod)
    eventually("bare-0 to run", partial(_running, cluster, "bare-0"), 60)

    (view,) = verify("bare-0", "-n", TESTS, code=UNSEEN)

    assert (view["verdict"], view["why"], view["actual"]) == (
        "unseen",
        text_of("verify: the container has no cat"),
        None,
    )
    assert view["expected"] == {"node": "node3", "visibleDevices": "48", "source": "map"}


@pytest.mark.promise("verify-3")
def test_a_shared_process_namespace_is_unseen(cluster: Cluster, make_pod: MakePod, verify: Verify) -> None:
    """There process 1 is not the container's: its environment says nothing about the container."""
    pod: dict[str, Any] = make_pod("shared-0", "0=node3:49")
    pod["spec"]["shareProcessNamespace"] = True
    pod["spec"]["containers"][0]["command"] = ["sleep", "infinity"]
    cluster.create(pod)
    eventually("shared-0 to run", partial(_running, cluster, "shared-0"), 60)

    (view,) = verify("shared-0", "-n", TESTS, code=UNSEEN)

    assert (view["verdict"], view["actual"]) == ("unseen", None)
    assert view["why"] == text_of("verify: process 1 is that of the pod")
