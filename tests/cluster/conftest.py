"""Fixtures for the tests on molecule's cluster, which `site.yml` created just before."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests import objects
from tests.cluster.clusters import CHECK, TESTS, Cluster
from tests.cluster.verify import system
from tests.cluster.verify.pods import selected
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.cluster.verify.pods import Json, MakePod


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """Return the running test cluster."""
    found = Cluster()
    assert found.kubectl("version", check=False).returncode == 0, "no test cluster: run `molecule converge`"
    return found


@pytest.fixture(scope="session")
def image(cluster: Cluster) -> str:
    """Return the check image's reference. Every node has this image."""
    template = cluster.get("statefulset", "-n", "default", CHECK)["spec"]["template"]
    reference: str = template["spec"]["containers"][0]["image"]
    return reference


@pytest.fixture
def healthy(cluster: Cluster) -> Iterator[None]:
    """Wait for two replicas of each component, before and after the test."""
    system.wait_healthy(cluster)
    yield
    system.wait_healthy(cluster)


@pytest.fixture
def make_pod(cluster: Cluster, image: str) -> Iterator[Callable[..., dict[str, Any]]]:
    """Return a function that describes one of our pods. Delete the pods of these names after the test."""
    names: list[str] = []

    def describe(name: str, text: str, *, scheduler: str = "gpu-scheduler") -> dict[str, Any]:
        names.append(name)
        container = {
            "name": "test",
            "image": image,
            "env": [
                {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            ],
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        }
        body = objects.pod(name, text, scheduler=scheduler, terminationGracePeriodSeconds=1, containers=[container])
        body["metadata"]["namespace"] = TESTS
        return {"apiVersion": "v1", "kind": "Pod", **body}

    yield describe
    if names:
        cluster.kubectl("delete", "pod", "-n", TESTS, "--ignore-not-found", "--wait", *names)


@pytest.fixture
def make_workload(cluster: Cluster, make_pod: MakePod) -> Iterator[Callable[..., None]]:
    """Return a function that creates a controller with our pods. Delete controllers and pods after the test."""
    made: list[str] = []

    def create(kind: str, name: str, text: str, /, **spec: Json) -> None:
        api, pod = "batch/v1" if kind == "Job" else "apps/v1", make_pod(name, text)
        labels = {"app": name}
        annotations = {**pod["metadata"]["annotations"], **spec.pop("annotations", {})}
        template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod["spec"]}
        if kind == "Job":
            template["spec"]["restartPolicy"] = "Never"
        else:
            spec["selector"] = {"matchLabels": labels}
        made.append(f"{kind}/{name}")
        manifest = {
            "apiVersion": api,
            "kind": kind,
            "metadata": {"name": name, "namespace": TESTS},
            "spec": {**spec, "template": template},
        }
        cluster.create(manifest)

    yield create
    if made:
        cluster.kubectl("delete", "-n", TESTS, "--ignore-not-found", "--wait", "--cascade=foreground", *made)


@pytest.fixture
def describe_many(cluster: Cluster, make_pod: MakePod) -> Iterator[Callable[..., Json]]:
    """Return a function that describes a list of numbered pods of ours, each with a map. Delete them after the test."""
    templates: dict[str, Json] = {}

    def describe(name: str, numbers: Iterable[int], text: Callable[[int], str]) -> Json:
        if name not in templates:
            templates[name] = make_pod(name, "")
        items = []
        for number in numbers:
            metadata = {
                "name": f"{name}-{number}",
                "namespace": TESTS,
                "labels": {"app": name},
                "annotations": {"gpu-scheduling-map": text(number)},
            }
            items.append({**templates[name], "metadata": metadata})
        return {"apiVersion": "v1", "kind": "List", "items": items}

    yield describe
    for name in templates:
        # One request: kubectl itself deletes five a second.
        cluster.kubectl("delete", "--raw", f"/api/v1/namespaces/{TESTS}/pods?labelSelector=app%3D{name}")
        eventually(f"the pods {name} to be gone", partial(_gone, cluster, name), 90, 0.5)


def _gone(cluster: Cluster, name: str) -> bool:
    return not selected(cluster, f"app={name}")
