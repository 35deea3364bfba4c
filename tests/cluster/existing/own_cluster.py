"""The cluster of scenario existing: not made by the play, two control planes, a registry that its nodes pull from.

`make` and `unmake` can be called repeatedly. `unmake` removes everything, from any state.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.cluster.clusters import ROOT, Cluster
from tests.cluster.existing.registry import Registry
from tests.contracts.loading import load
from tests.waiting import eventually, limit

NAME: Final = "test-existing-cluster"
"""Not a name of ours: kind puts it into the names of nodes and pods, among which the cases look for what we left."""
HOME: Final = Path("/var/lib") / NAME
"""Not below root's home: a user without rights works in it, too."""
KUBE: Final = ROOT / ".kube" / NAME
CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpu-scheduler"
KIND: Final = ROOT / ".venv" / "bin" / "kind"
REGISTRY: Final = Registry(HOME / "registry")

GPU_NODES: Final = ("gpu-a-0001", "gpu-a-0002", "gpu-b-0001")
OTHER_NODE: Final = "cpu-0001"
ALIAS: Final = {"gpu-b-0001": "trainer"}
"""Nodes that maps may name otherwise, by their label gpu-node-name."""
LABELS: Final = {"example.com/pool": "gpu", "agentaflow.gpu/enabled": "true"}
"""Labels of the GPU nodes that their operator sets and that our installation must leave alone."""
TAINT: Final = "nvidia.com/gpu=present:NoSchedule"

LOAD_BALANCER: Final = "docker.io/envoyproxy/envoy:v1.36.2"
"""The image that kind v0.33.0 starts in front of two control planes."""

CLUSTER: Final = Cluster(KUBE / "config", NAME)


def docker(*words: str, stdin: str | None = None, check: bool = True) -> str:
    """Return the output of docker; raise with its output when it fails and `check` is true."""
    command = ("docker", *words)
    # Without buildx only the classic builder works.
    environment = {**os.environ, "DOCKER_BUILDKIT": "0"}
    done = subprocess.run(
        command, input=stdin, env=environment, capture_output=True, text=True, timeout=limit(300), check=False
    )
    assert not check or done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout.strip() if done.returncode == 0 else ""


def containers() -> list[str]:
    """Return the names of the cluster's containers, the load balancer's included."""
    return sorted(
        docker(
            *("ps", "--all", "--filter", f"label=io.x-k8s.kind.cluster={NAME}", "--format", "{{.Names}}"), check=False
        ).split()
    )


def make() -> None:
    """Make cluster and registry if they are missing."""
    HOME.mkdir(exist_ok=True)
    built = _source() == "build"
    if not CLUSTER.kubeconfig.exists() and (left := containers()):
        # From a run whose engine had stopped when it should have removed them.
        docker("rm", "--force", "--volumes", *left)
    if not containers():
        if built and not docker("image", "inspect", LOAD_BALANCER, check=False):
            docker("build", "--network=none", f"--tag={LOAD_BALANCER}", str(Path(__file__).parent / "load_balancer"))
        _create(built=built)
    if built:
        _connect_pods()
    REGISTRY.start()
    for node in _nodes():
        REGISTRY.let_node_pull(node["container"], _gateway())
    _mark_nodes()
    eventually("all nodes and CoreDNS to be ready", _is_ready, 240, 2)


def unmake() -> None:
    """Remove the cluster, the registry, and every file."""
    REGISTRY.stop()
    if found := containers():
        docker("rm", "--force", "--volumes", *found)
    for folder in (HOME, KUBE):
        shutil.rmtree(folder, ignore_errors=True)


def _source() -> str:
    """Return whether role node_image pulled the images or built them."""
    return (CACHE / "node_image_source").read_text(encoding="utf-8").strip()


def _create(*, built: bool) -> None:
    def joins(name: str) -> dict[str, Any]:
        patch = {"kind": "JoinConfiguration", "nodeRegistration": {"name": name}}
        return {"role": "worker", "kubeadmConfigPatches": [json.dumps(patch)]}

    patches = (
        {"kind": "KubeletConfiguration", "failCgroupV1": False},
        {"kind": "InitConfiguration", "timeouts": {"kubernetesAPICall": "5m0s"}},
    )
    configuration = {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "name": NAME,
        "networking": {"disableDefaultCNI": built},
        "kubeadmConfigPatches": [json.dumps(patch) for patch in patches],
        "nodes": [{"role": "control-plane"}] * 2 + [joins(name) for name in (*GPU_NODES, OTHER_NODE)],
    }
    KUBE.mkdir(parents=True, exist_ok=True)
    # create.yml gives the name of the image that role node_image has just pulled or built.
    command = (KIND, "create", "cluster", "--retain", "--config=-", f"--image={os.environ['NODE_IMAGE']}")
    # All output goes to the terminal: kind says what it does, and why it failed.
    subprocess.run(
        (*command, f"--kubeconfig={CLUSTER.kubeconfig}"),
        input=json.dumps(configuration),
        text=True,
        check=True,
        timeout=limit(600),
    )


def _nodes() -> list[dict[str, str]]:
    """Return each node's name, container, address and the range of its pods."""
    found = []
    for node in CLUSTER.get("nodes")["items"]:
        container = node["spec"]["providerID"].rsplit("/", 1)[-1]
        addresses = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        found.append(
            {
                "name": node["metadata"]["name"],
                "container": container,
                "address": docker("inspect", container, "--format", addresses),
                "pod_cidr": node["spec"].get("podCIDR", ""),
            }
        )
    return found


def _connect_pods() -> None:
    """Set up the pod network, as role kind_cluster does for the image that has none."""
    network = load("roles", "kind_cluster", "library", "kind_pod_network.py")

    def with_ranges() -> list[dict[str, str]]:
        nodes = _nodes()
        return nodes if all(node["pod_cidr"] for node in nodes) else []

    nodes = eventually("a range of addresses for each node", with_ranges, 60, 1)
    for node in nodes:
        network.settle(node, nodes, dry=False)


def _gateway() -> str:
    """Return this host's address in kind's network."""
    listed = docker("network", "inspect", "kind", "--format", "{{range .IPAM.Config}}{{.Gateway}} {{end}}")
    return next(address for address in listed.split() if "." in address)


def _mark_nodes() -> None:
    """Label and taint the nodes, as their operator does."""
    kubectl = partial(CLUSTER.kubectl, check=True)
    labels = [f"{key}={value}" for key, value in LABELS.items()]
    kubectl("label", "--overwrite", "node", *GPU_NODES, *labels)
    kubectl("taint", "--overwrite", "node", *GPU_NODES, TAINT)
    for node, name in ALIAS.items():
        kubectl("label", "--overwrite", "node", node, f"gpu-node-name={name}")


def _is_ready() -> bool:
    ready = "jsonpath={range .items[*]}{.status.conditions[?(@.type=='Ready')].status} {end}"
    nodes = CLUSTER.kubectl("get", "nodes", "-o", ready, check=False).stdout.split()
    pods = CLUSTER.kubectl("get", "pods", "-n", "kube-system", "-l", "k8s-app=kube-dns", "-o", ready, check=False)
    return len(nodes) == len(GPU_NODES) + 3 and {*nodes, *pods.stdout.split()} == {"True"} and bool(pods.stdout)


if __name__ == "__main__":
    {"make": make, "unmake": unmake}[sys.argv[1]]()
