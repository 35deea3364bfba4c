"""Runs helm and the command line against the test cluster, and tells what an installation has left there."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import yaml

from tests.cluster.clusters import CHECK, ROOT, Cluster
from tests.cluster.verify.test_placement import EXPECTED
from tests.integration.programs import program
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from pathlib import Path

PLACED: Final = {pod: seen for (namespace, pod), seen in EXPECTED.items() if namespace == "default"}
KINDS: Final = (
    "namespaces",
    "all",
    "clusterroles",
    "clusterrolebindings",
    "flowschemas",
    "roles",
    "rolebindings",
    "serviceaccounts",
    "configmaps",
    "secrets",
    "resourcequotas",
    "poddisruptionbudgets",
    "leases",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
)


@dataclass(frozen=True, slots=True)
class Images:
    """The two images that the cluster's nodes have: name and tag."""

    scheduler: tuple[str, str]
    check: tuple[str, str]


def images_of(manifests: Path) -> Images:
    """Return the images that the manifests name."""

    def image(file: str, kind: str) -> tuple[str, str]:
        objects = yaml.safe_load_all((manifests / file).read_text())
        pod = next(one for one in objects if one and one["kind"] == kind)["spec"]["template"]["spec"]
        name, _, tag = pod["containers"][0]["image"].rpartition(":")
        return name, tag

    return Images(image("gpu-scheduler.yaml", "Deployment"), image("gpu-scheduler-check.yaml", "StatefulSet"))


def helm(cluster: Cluster, *words: str) -> str:
    """Run helm against the cluster; return what it prints. Raise with it if it fails."""
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "HELM_KUBECONTEXT": f"kind-{cluster.name}"}
    done = subprocess.run(
        (str(program("helm")), *words),
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=limit(300),
        check=False,
    )
    assert done.returncode == 0, f"helm {' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


def with_image(image: tuple[str, str]) -> tuple[str, ...]:
    """Return helm's words for an image."""
    name, tag = image
    return ("--set", f"image.repository={name}", "--set-string", f"image.tag={tag}")


def check_pods(cluster: Cluster) -> dict[str, str]:
    """Return uid by name of the check pods."""
    pods = cluster.get("pods", "-n", "default", "-l", f"app.kubernetes.io/name={CHECK}")["items"]
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}


def wait_placed(cluster: Cluster) -> None:
    """Wait until each check pod runs on the node of its line, and sees that line's devices inside its container."""

    def seen() -> dict[str, tuple[str, str]]:
        pods = cluster.get("pods", "-n", "default", "-l", f"app.kubernetes.io/name={CHECK}")["items"]
        running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        return {
            pod["metadata"]["name"]: (
                pod["spec"]["nodeName"],
                cluster.environment("default", pod["metadata"]["name"])["CUDA_VISIBLE_DEVICES"],
            )
            for pod in running
        }

    eventually(f"the check pods are placed: {PLACED}", lambda: seen() == PLACED, 90, 1)


def wait_left(cluster: Cluster, expected: set[str]) -> None:
    """Wait until exactly these objects have a name of ours; pods take seconds to end."""
    with suppress(AssertionError):
        eventually("nothing else is left", lambda: named_objects(cluster) == expected, 60, 2)
    assert named_objects(cluster) == expected


def named_objects(cluster: Cluster) -> set[str]:
    """Return kind/name of every object whose name is one of ours, but for events and endpoints."""
    found = set()
    for kind in KINDS:
        listed = cluster.kubectl("get", kind, "--all-namespaces", "-o", "name", "--ignore-not-found").stdout.split()
        # The cluster's own nodes, and what is named after them, begin with its name.
        found |= {name for name in listed if "gpu-scheduler" in name and cluster.name not in name}
    return found
