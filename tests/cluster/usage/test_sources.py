"""Runs the rows of docs/sources.md that are marked `run`, in their order, and demands what each says.

The manifests are the sources' own. The tests' cluster has no registry: the nodes have the check image under the names
that these manifests use, and a policy of the tests lets kubelets take an image that they have, whatever its tag.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from tests import source_page
from tests.cluster.clusters import HOME, TESTS, Cluster, Json, run_playbook
from tests.cluster.usage.reader import Reader
from tests.cluster.verify import system
from tests.messages import text_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("images")]

SOURCES: Final = source_page.read()
IMAGES: Final = ("busybox:latest", "busybox:1.35", "gpu-scheduler-check:latest")
NODES: Final = ("node1", "node2", "node3", "node4")
WRITTEN: Final = [*IMAGES, "busybox"]
TASK: Final = "technical-task"
GUIDE: Final = {"webhook-test-0": "node1:0,1", "webhook-test-1": "node2:2", "webhook-test-2": "node3:0,1,2"}
POLICY: Final = "images-of-the-sources"
REGISTRATION: Final = "admissionregistration.k8s.io/v1"
PRESENT: Final[tuple[Json, ...]] = (
    {
        "apiVersion": REGISTRATION,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": POLICY},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ]
            },
            "matchConditions": [{"name": "named", "expression": f"object.spec.containers[0].image in {WRITTEN}"}],
            "reinvocationPolicy": "Never",
            "mutations": [
                {
                    "patchType": "JSONPatch",
                    "jsonPatch": {
                        "expression": "[JSONPatch{op: 'replace', path: '/spec/containers/0/imagePullPolicy',"
                        " value: 'IfNotPresent'}]"
                    },
                }
            ],
        },
    },
    {
        "apiVersion": REGISTRATION,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": POLICY},
        "spec": {"policyName": POLICY},
    },
)


@pytest.fixture(scope="module")
def images(cluster: Cluster, image: str) -> Iterator[None]:
    """Give the nodes the images that the sources name; take them away afterwards."""
    for node in NODES:
        for name in IMAGES:
            names = (f"docker.io/library/{image}", f"docker.io/library/{name}")
            cluster.on_node(node, "ctr", "--namespace=k8s.io", "images", "tag", "--force", *names)
    try:
        for body in PRESENT:
            cluster.create(body)
        eventually("kubelets to take the images that they have", partial(_takes_present, cluster), 30, 0.5)
        yield
    finally:
        for body in PRESENT:
            cluster.kubectl("delete", "--ignore-not-found", body["kind"], POLICY)
        for node in NODES:
            removed = (f"docker.io/library/{name}" for name in IMAGES)
            cluster.on_node(node, "ctr", "--namespace=k8s.io", "images", "remove", *removed)


def _takes_present(cluster: Cluster) -> bool:
    words = ("--image=busybox", "--dry-run=server", "-o", "jsonpath={.spec.containers[0].imagePullPolicy}")
    return cluster.kubectl("run", "asked", *words).stdout == "IfNotPresent"


@pytest.fixture
def reader(cluster: Cluster, tmp_path: Path, healthy: None) -> Iterator[Reader]:
    """Return a reader. Delete afterwards what the sources create in any namespace but that of their tests."""
    found = Reader(cluster, tmp_path)
    yield found
    found.leave()
    # A shell that is a container's first process ignores SIGTERM.
    names = ("gpu-test-0", "gpu-test-1", "test-gpu-pod")
    cluster.kubectl("delete", "pod", "-n", "default", "--ignore-not-found", "--grace-period=1", "--wait", *names)
    cluster.kubectl("delete", "namespace", TASK, "--ignore-not-found", "--wait")
    cluster.kubectl("label", "nodes", "--all", "gpu-node-name-")


@pytest.fixture
def bare_pods(cluster: Cluster) -> Iterator[None]:
    """Give the play's bare pods their names back after the test."""
    yield
    cluster.kubectl("delete", "pod", "-n", TESTS, "--ignore-not-found", "--grace-period=1", "--wait", *GUIDE)
    done = run_playbook("site.yml", "--tags", "check,evidence")
    assert done.returncode == 0, done.stdout


def type_rows(reader: Reader, source: str) -> None:
    """Type the rows of the source that are marked `run`."""
    for row in SOURCES[source]:
        if row.status == source_page.RUN:
            reader.type(row)


@pytest.mark.promise("map-1", "map-2", "map-10", "index-4", "index-6", "index-11", "env-1", "env-5")
def test_the_projects_page(reader: Reader) -> None:
    """Its pods run on the nodes that their maps name, by aliases, and see their devices."""
    type_rows(reader, "The project's page")


@pytest.mark.promise("map-1", "index-4", "env-1")
@pytest.mark.usefixtures("bare_pods")
def test_the_complete_setup_guide(cluster: Cluster, reader: Reader) -> None:
    """From the labels to the report. Then `make up` leaves the guide's pods, and proves them by their own map."""
    type_rows(reader, "The complete setup guide")
    system.wait_healthy(cluster)
    before = uids(cluster)

    done = run_playbook("site.yml", "--tags", "check,evidence")

    assert done.returncode == 0, done.stdout
    # Ansible folds long messages.
    output = " ".join(done.stdout.split())
    assert text_of("check: pods of users stay", ns=TESTS, pods=", ".join(GUIDE)) in output
    assert uids(cluster) == before
    report = (HOME / "evidence" / "validation-report.md").read_text()
    for name, placement in GUIDE.items():
        row = f"| {TESTS} | {name} | {placement} (its own map: a user's pod) | {placement} | ok | {before[name]} |"
        assert row in report


@pytest.mark.promise("map-1", "index-2", "share-1")
def test_the_technical_task(reader: Reader) -> None:
    """Five replicas, each on its node; two of them share a GPU, as the map says. All log it."""
    type_rows(reader, "The technical task")


def test_agentaflows_page(reader: Reader) -> None:
    """The verbs, the strategies and the ports of health and metrics."""
    type_rows(reader, "AgentaFlow's page")


def uids(cluster: Cluster) -> dict[str, str]:
    """Return name → uid of the pods with the names of the guide's."""
    return {name: cluster.get("pod", "-n", TESTS, name)["metadata"]["uid"] for name in GUIDE}
