"""Containers of every kind get the variables: init, sidecar, ordinary, and one for debugging."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.clusters import CHECK, SYSTEM, TESTS, Cluster
from tests.cluster.verify.pods import runs, waits
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.cluster.verify.pods import MakePod

PRINT = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['CUDA_DEVICE_ORDER'])"
# Not the image's own program: its port can be used only once in a pod.
SLEEP = ("sleep", "infinity")


def _running(cluster: Cluster, name: str) -> dict[str, Any] | None:
    pod = cluster.get("pod", "-n", TESTS, name)
    return pod if runs(pod) else None


def _debugged(cluster: Cluster, name: str) -> bool:
    status = cluster.get("pod", "-n", TESTS, name)["status"]
    return any("running" in container["state"] for container in status.get("ephemeralContainerStatuses", []))


@pytest.mark.promise("map-2", "env-1", "env-2", "env-3")
def test_every_container_sees_the_devices(cluster: Cluster, make_pod: MakePod, image: str) -> None:
    """A pod with an init container, a sidecar and two others: each one's process sees the line's devices, in order.

    So does a debug container that is added to the running pod.
    """
    pod = make_pod("many-0", "0=node3:41,40")
    container = {**pod["spec"]["containers"][0], "command": SLEEP}
    prepare = {**container, "name": "prepare", "command": ["python3", "-c", PRINT]}
    sidecar = {**container, "name": "sidecar", "restartPolicy": "Always"}
    pod["spec"]["initContainers"] = [prepare, sidecar]
    pod["spec"]["containers"] = [{**container, "name": "main"}, {**container, "name": "second"}]
    cluster.create(pod)
    found = eventually("many-0 to run", partial(_running, cluster, "many-0"), 60)
    options = (f"--image={image}", "--container=debug", "--profile=restricted")
    cluster.kubectl("debug", "-n", TESTS, "many-0", *options, "--", *SLEEP)
    eventually("the debug container to run", partial(_debugged, cluster, "many-0"), 30)

    assert found["spec"]["nodeName"] == "node3"
    assert cluster.kubectl("logs", "-n", TESTS, "many-0", "-c", "prepare").stdout == "41,40 PCI_BUS_ID\n"
    for name in ("sidecar", "main", "second", "debug"):
        environment = cluster.environment(TESTS, "many-0", name)
        assert environment["CUDA_VISIBLE_DEVICES"] == "41,40", name
        assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID", name


@pytest.mark.promise("env-7")
def test_pod_bound_past_the_scheduler_sees_no_gpu(cluster: Cluster, make_pod: MakePod) -> None:
    """A pod that waits for its devices and is bound by hand has the variable empty: no GPU is visible to it."""
    cluster.create(make_pod("bound-by-hand", "0=node9:46"))
    eventually("it to wait", partial(waits, cluster, "bound-by-hand", "NodeNotFound"))
    cluster.bind(TESTS, "bound-by-hand", "node2")
    eventually("it to run", partial(_running, cluster, "bound-by-hand"), 30)

    assert cluster.environment(TESTS, "bound-by-hand")["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.promise("serve-4")
@pytest.mark.parametrize(
    ("namespace", "workload"),
    [(SYSTEM, "deployment/gpu-scheduler-webhook"), ("default", f"statefulset/{CHECK}")],
    ids=["the product's image", "the check's image"],
)
def test_images_have_nothing_that_gives_more_rights(cluster: Cluster, namespace: str, workload: str) -> None:
    """No file is setuid or setgid; bash (which can open connections) and openssl are removed."""
    script = "find / -xdev -type f -perm /6000 2>/dev/null; command -v bash openssl; true"
    assert cluster.kubectl("exec", "-n", namespace, workload, "--", "sh", "-c", script).stdout == ""
