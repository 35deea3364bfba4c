"""A container has the device files of its line and no other, whatever its processes do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.clusters import CHECK, TESTS, Cluster
from tests.cluster.isolation.containers import allocated, containers, line, make_files, opened
from tests.cluster.isolation.starts import run
from tests.cluster.verify.test_placement import EXPECTED

if TYPE_CHECKING:
    from tests.cluster.verify.pods import Json, MakePod

REPLICAS = {name: placed for (namespace, name), placed in EXPECTED.items() if namespace == "default"}


@pytest.mark.promise("isolate-2")
@pytest.mark.parametrize("name", REPLICAS)
def test_a_replica_has_the_files_of_its_line(cluster: Cluster, name: str) -> None:
    """Its variable has their UUIDs in the order of the line, and its claims are allocated these GPUs."""
    node, indices = REPLICAS[name]
    expected = line(cluster, node, *map(int, indices.split(",")))

    assert containers(cluster, node)[name] == expected
    assert allocated(cluster)[node][name] == set(expected.variable)


@pytest.mark.promise("isolate-1")
def test_replicas_whose_lines_name_one_gpu_share_its_claim(cluster: Cluster) -> None:
    """Lines 3 and 4 name GPU 3 of node4."""
    names = {
        claim["resourceClaimName"]
        for number in (3, 4)
        for claim in cluster.get("pod", "-n", "default", f"{CHECK}-{number}")["spec"]["resourceClaims"]
    }

    (name,) = names
    claim = cluster.get("resourceclaim", "-n", "default", name)
    assert {user["name"] for user in claim["status"]["reservedFor"]} == {f"{CHECK}-3", f"{CHECK}-4"}


def test_a_file_of_the_line_can_be_opened(cluster: Cluster) -> None:
    """No driver has the numbers of a simulated GPU, so the kernel finds none behind a file that may be opened."""
    assert opened(cluster, "default", f"{CHECK}-0", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2") == [
        "ENXIO",
        "ENXIO",
        "ENOENT",
    ]


def test_root_cannot_open_another_gpu(cluster: Cluster, make_pod: MakePod) -> None:
    """Neither with the variable set to it nor with a device file made for it: the kubelet's cgroup forbids it."""
    pod = _as_root(make_pod("root-0", "0=node2:3"))
    pod["spec"]["containers"][0]["command"] = ["env", "CUDA_VISIBLE_DEVICES=4", "sleep", "infinity"]
    name = run(cluster, pod)
    make_files(cluster, TESTS, name, "/nvidia3", "/nvidia4")

    assert containers(cluster, "node2")[name].files == {"nvidia3"}
    assert opened(cluster, TESTS, name, "/dev/nvidia3", "/nvidia3", "/nvidia4") == ["ENXIO", "ENXIO", "EPERM"]


def test_a_pod_without_a_claim_has_no_gpu(cluster: Cluster, make_pod: MakePod) -> None:
    """A pod of kube-scheduler on a node with GPUs, whose root makes a device file."""
    pod = _as_root(make_pod("without-0", "", scheduler="default-scheduler"))
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "node2"}
    name = run(cluster, pod)
    make_files(cluster, TESTS, name, "/nvidia2")

    assert "nvidia" not in cluster.exec(TESTS, name, "ls", "/dev")
    assert opened(cluster, TESTS, name, "/nvidia2") == ["EPERM"]


def _as_root(pod: Json) -> Json:
    """Return the pod as one whose container has the rights that a container runtime gives by itself."""
    (container,) = pod["spec"]["containers"]
    container["securityContext"] = {"runAsUser": 0}
    return pod
