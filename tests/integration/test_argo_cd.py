"""The files of argocd/ at a real API server that has Argo CD's own kinds, and beside what helm makes of our charts."""

from __future__ import annotations

import copy
import subprocess
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from tests import argo_cd
from tests.integration.control_plane import ControlPlane
from tests.integration.kinds import define
from tests.integration.programs import program
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.kube_client import KubeClient
    from tests.objects import Object

PLURALS: Final = {"AppProject": "appprojects", "ApplicationSet": "applicationsets", "Application": "applications"}
STRICT: Final = "?fieldValidation=Strict"
SETS: Final = (argo_cd.COMPLETE, argo_cd.ONE_CLUSTER)
FILES: Final = (argo_cd.PROJECT, argo_cd.COMPLETE, argo_cd.ONE_CLUSTER, argo_cd.SECRET)


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeClient]:
    """A control plane with Argo CD's kinds."""
    plane = ControlPlane(tmp_path_factory.mktemp("plane"))
    try:
        define(plane.kube, "argo-cd")
        plane.kube.create("/api/v1/namespaces", {"metadata": {"name": "argocd"}})
        yield plane.kube
    finally:
        plane.stop()


def path_of(kind: str) -> str:
    """Return the API path of a kind in namespace argocd."""
    if kind == "Secret":
        return "/api/v1/namespaces/argocd/secrets"
    return f"/apis/argoproj.io/v1alpha1/namespaces/argocd/{PLURALS[kind]}"


@pytest.mark.parametrize("name", FILES)
def test_file_is_accepted_without_an_unknown_field(kube: KubeClient, name: str) -> None:
    """The object is created, and is stored as it is written."""
    body = argo_cd.read(name)
    stored = kube.create(path_of(body["kind"]) + STRICT, body)

    assert body["metadata"]["namespace"] == "argocd"
    if "spec" in body:
        assert stored["spec"] == body["spec"]


@pytest.mark.parametrize("name", SETS)
def test_applications_are_accepted_without_an_unknown_field(kube: KubeClient, name: str) -> None:
    """An ApplicationSet's schema says little about its template: the Applications that it makes are created too."""
    for body in argo_cd.applications(name):
        metadata = {**body["metadata"], "namespace": "argocd"}
        stored = kube.create(path_of("Application") + STRICT, {**body, "metadata": metadata})

        assert stored["spec"] == body["spec"]


def test_field_that_argo_cd_does_not_know_is_refused(kube: KubeClient) -> None:
    """The check is strict: a misspelt field is an error."""
    body = copy.deepcopy(argo_cd.applications(argo_cd.ONE_CLUSTER)[0])
    body["metadata"] |= {"name": "misspelt", "namespace": "argocd"}
    body["spec"]["syncPolicy"]["automated"]["selfheal"] = True
    status, answer = kube.call("POST", path_of("Application") + STRICT, body)

    assert status == 400
    assert 'unknown field "spec.syncPolicy.automated.selfheal"' in answer["message"]


# What a chart makes with other values than those of the files.
OTHER_VALUES: Final = {
    "gpu-scheduler": (
        "monitor.source=simulated,isolation.mode=dra,observability.mode=always,observability.receiver=slack",
        "webhook.enabled=false,injectionPolicy.enabled=true",
    ),
    "gpu-scheduler-check": ("statefulSet.enabled=false",),
}


def made_by_helm(application: Object, values: str = "") -> list[Object]:
    """Return what Argo CD would apply for an Application: what helm makes, without helm's own tests."""
    source, destination = application["spec"]["source"], application["spec"]["destination"]
    given = source["helm"]
    words = ["template", given["releaseName"], str(argo_cd.FOLDER.parent / source["path"]), "--values=-"]
    words += [f"--set-string={each['name']}={each['value']}" for each in given["parameters"]]
    words += [f"--set={values}"] if values else []
    # Argo CD gives helm the versions of the cluster.
    command = (str(program("helm")), *words, f"--namespace={destination['namespace']}", "--kube-version=1.36.0")
    done = subprocess.run(
        command, input=given["values"], capture_output=True, text=True, timeout=limit(60), check=False
    )
    assert done.returncode == 0, done.stderr
    found = [each for each in yaml.safe_load_all(done.stdout) if each]
    return [each for each in found if (each["metadata"].get("annotations") or {}).get("helm.sh/hook") != "test"]


def group_kind(body: Object) -> tuple[str, str]:
    """Return API group and kind of an object."""
    group, slash, _ = body["apiVersion"].partition("/")
    return (group if slash else ""), body["kind"]


def entries_for(body: Object, project: Object) -> list[Object]:
    """Return the entries of the project's lists that allow an object."""
    entries = project["namespaceResourceWhitelist" if "namespace" in body["metadata"] else "clusterResourceWhitelist"]
    return [
        each
        for each in entries
        if (each["group"], each["kind"]) == group_kind(body)
        and fnmatchcase(body["metadata"]["name"], each.get("name", "*"))
    ]


def everything(applications: Iterable[Object]) -> Iterator[Object]:
    """Yield what the charts make, with each of the values."""
    for application in applications:
        for values in ("", *OTHER_VALUES[application["spec"]["source"]["helm"]["releaseName"]]):
            yield from made_by_helm(application, values)


@pytest.mark.parametrize("name", SETS)
def test_project_allows_exactly_what_the_charts_make(name: str) -> None:
    """Each object is allowed, in its namespace, and no entry is left over."""
    project = argo_cd.read(argo_cd.PROJECT)["spec"]
    namespaces = {each["namespace"] for each in project["destinations"]}
    used, reached = [], set()
    for body in everything(argo_cd.applications(name)):
        allowed = entries_for(body, project)
        assert allowed, (body["kind"], body["metadata"]["name"])
        used += allowed
        reached.add(body["metadata"].get("namespace"))

    assert reached - {None} == namespaces
    entries = project["clusterResourceWhitelist"] + project["namespaceResourceWhitelist"]
    assert [each for each in entries if each not in used] == []


@pytest.mark.parametrize("name", SETS)
def test_what_the_cluster_writes_is_left_alone(name: str) -> None:
    """The CA of both registrations, and the strategy: objects that the chart makes."""
    for application in argo_cd.applications(name):
        ignored = [
            ((each.get("group", ""), each["kind"]), each["name"], path)
            for each in application["spec"]["ignoreDifferences"]
            for path in [*each.get("jqPathExpressions", []), *each.get("jsonPointers", [])]
        ]
        assert ignored == [
            *(
                (("admissionregistration.k8s.io", kind), "gpu-scheduler-webhook", ".webhooks[]?.clientConfig.caBundle")
                for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
            ),
            (("", "ConfigMap"), "gpu-scheduler-settings", "/data"),
        ]
    made = {
        (group_kind(each), each["metadata"]["name"]): each
        for each in made_by_helm(next(iter(argo_cd.applications(name))))
    }
    assert {(kind, called) for kind, called, _ in ignored} <= made.keys()
    for kind, called, path in ignored:
        if path == "/data":
            assert "data" not in made[kind, called]
        else:
            assert all("caBundle" not in each["clientConfig"] for each in made[kind, called]["webhooks"])


@pytest.mark.parametrize("name", SETS)
def test_images_come_from_the_registry_of_the_file(name: str) -> None:
    """Every container has an image of the one address that a user edits."""
    for application in argo_cd.applications(name):
        chart = application["spec"]["source"]["helm"]["releaseName"]
        images = set(_images(made_by_helm(application)))

        assert len(images) == 1
        assert images.pop().startswith(f"registry.example.com/team/{chart}:")


def _images(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "containers":
                yield from (each["image"] for each in inner if "image" in each)
            yield from _images(inner)
    elif isinstance(value, list):
        for each in value:
            yield from _images(each)
