"""Role check on an API server: it upgrades the namespace of the bare pods, and leaves a user's pod of such a name."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests import deployer, objects
from tests.cluster.plays import Run, run
from tests.integration.accounts import create_account
from tests.integration.control_plane import ControlPlane
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.integration.programs import program
from tests.messages import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.objects import Object

pytestmark = [pytest.mark.timeout(300), pytest.mark.plays]

PODS: Final = "/api/v1/namespaces/gpu-scheduler-tests/pods"
STATEFULSETS: Final = "/apis/apps/v1/namespaces/default/statefulsets"
NAMESPACE: Final = "/api/v1/namespaces/gpu-scheduler-tests"
CONTAINER: Final = {"name": "check", "ready": True, "image": "check", "imageID": "", "restartCount": 0}
READY: Final[Object] = {
    "status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [CONTAINER],
    }
}


class ReadyPods(threading.Thread):
    """Reports each StatefulSet and pod as ready, in place of controllers and kubelets."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(daemon=True)
        self._plane = plane
        self.stopped = threading.Event()

    def run(self) -> None:
        """Report until it is stopped."""
        kube = self._plane.kube
        while not self.stopped.wait(0.2):
            for workload in (kube.get(STATEFULSETS) or {"items": []})["items"]:
                replicas, metadata = workload["spec"]["replicas"], workload["metadata"]
                counts = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas", "availableReplicas"), replicas)
                revisions = {
                    "observedGeneration": metadata["generation"],
                    "currentRevision": "1",
                    "updateRevision": "1",
                }
                if {**workload["status"], **counts, **revisions} != workload["status"]:
                    kube.patch(f"{STATEFULSETS}/{metadata['name']}/status", {"status": {**counts, **revisions}})
            for pod in (kube.get(PODS) or {"items": []})["items"]:
                # A pod may be deleted meanwhile.
                if pod["status"]["phase"] != "Running":
                    kube.merge(f"{PODS}/{pod['metadata']['name']}/status", READY)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server whose pods and StatefulSets are ready as soon as they are there."""
    found = ControlPlane(tmp_path_factory.mktemp("check"))
    ready = ReadyPods(found)
    try:
        found.kube.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM_NAMESPACE}})
        create_account(found, "deployer", yaml.safe_load(deployer.CLUSTER_ROLE.read_text()))
        ready.start()
        yield found
    finally:
        ready.stopped.set()
        ready.join()
        found.stop()


def check(plane: ControlPlane, folder: Path, *options: str) -> Run:
    """Run role check as on an existing cluster, as a user who has no right but those of deployer.yaml."""
    given = {
        "kubeconfig": str(plane.kubeconfig(folder / "kubeconfig", plane.service_account_token("default", "deployer"))),
        "kube_context": "test",
        "kubectl_program": str(program("kubectl")),
        "check_wait_timeout": 30,
        "check_image": f"registry.example.com/team/check@sha256:{'d' * 64}",
    }
    words = ("site.yml", "-i", "inventory/existing", "-e", json.dumps(given), "--tags", "check", *options)
    return run("ansible-playbook", *words)


def uids(plane: ControlPlane) -> dict[str, str]:
    """Return name → uid of the bare pods."""
    found: Any = plane.kube.get(PODS)
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in found["items"]}


def modes(plane: ControlPlane) -> dict[str, str]:
    """Return mode → level of Pod Security in the namespace of the bare pods."""
    labels: dict[str, str] = plane.kube.get(NAMESPACE)["metadata"]["labels"]  # type: ignore[index]  # it exists
    return {key: level for key, level in labels.items() if key.startswith("pod-security")}


@pytest.mark.promise("up-6")
def test_an_upgrade_lets_the_tests_namespace_take_any_pod(plane: ControlPlane, tmp_path: Path) -> None:
    """Earlier versions enforced `restricted` there. What their manager set and ours no longer says is gone."""
    labels = dict.fromkeys(
        (f"pod-security.kubernetes.io/{mode}" for mode in ("enforce", "audit", "warn")), "restricted"
    )
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpu-scheduler-tests", "labels": labels}}
    path = f"{NAMESPACE}?fieldManager=gpu-scheduler-ansible&force=true"
    status, _ = plane.kube.call("PATCH", path, body, content_type="application/apply-patch+yaml")
    assert status == 201

    check(plane, tmp_path).succeeded()

    assert modes(plane) == {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("audit", "warn")}
    users = objects.pod("as-written", "0=node1:0,1")
    assert plane.kube.create(PODS, users)["spec"]["containers"][0].get("securityContext") is None


@pytest.mark.promise("up-2")
def test_a_users_pod_takes_the_place_of_one_of_ours(plane: ControlPlane, tmp_path: Path) -> None:
    """It is named and stays, in check mode too; the others are ours, and the next run changes nothing."""
    check(plane, tmp_path).succeeded()
    plane.kube.delete(f"{PODS}/webhook-test-0")
    plane.kube.create(PODS, objects.pod("webhook-test-0", "0=node1:0,1"))
    before = uids(plane)

    preview = check(plane, tmp_path, "--check").succeeded()
    first = check(plane, tmp_path).succeeded()
    second = check(plane, tmp_path).succeeded()

    assert uids(plane) == before
    for each in (preview, first, second):
        assert text_of("check: pods of users stay", ns="gpu-scheduler-tests", pods="webhook-test-0") in each.output
    assert second.changed == {}


@pytest.mark.promise("up-2")
def test_our_pod_is_back_when_the_users_is_gone(plane: ControlPlane, tmp_path: Path) -> None:
    """The next run makes it anew."""
    plane.kube.delete(f"{PODS}/webhook-test-0")

    check(plane, tmp_path).succeeded()

    assert set(uids(plane)) >= {"webhook-test-0", "webhook-test-1", "webhook-test-2"}
    ours: Any = plane.kube.get(f"{PODS}/webhook-test-0")
    assert "pod-revision" in ours["metadata"]["labels"]
