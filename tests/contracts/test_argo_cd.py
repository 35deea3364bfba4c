"""The files of argocd/: what they install, in which order, with which rights, and what they leave to the cluster."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests import argo_cd
from tests.contracts import roles
from tests.contracts.rendering import rendered

if TYPE_CHECKING:
    from pathlib import Path

SETS: Final = (argo_cd.COMPLETE, argo_cd.ONE_CLUSTER)
NAMES: Final = {
    argo_cd.COMPLETE: ["gpu-scheduler-local-cluster", "gpu-scheduler-check-local-cluster"],
    argo_cd.ONE_CLUSTER: ["gpu-scheduler", "gpu-scheduler-check"],
}
STANDARD: Final = "pod-security.kubernetes.io/"


@pytest.mark.parametrize("name", SETS)
def test_applications_have_sources_and_destinations_of_the_project(name: str) -> None:
    """Both charts are there, from the project's one repository, into namespaces that it allows."""
    project = argo_cd.read(argo_cd.PROJECT)
    made = argo_cd.applications(name)

    assert [each["metadata"]["name"] for each in made] == NAMES[name]
    for each in made:
        spec = each["spec"]
        assert spec["project"] == project["metadata"]["name"]
        assert [spec["source"]["repoURL"]] == project["spec"]["sourceRepos"]
        assert (roles.ROOT / spec["source"]["path"] / "Chart.yaml").is_file(), spec["source"]["path"]
        assert spec["destination"]["namespace"] in {each["namespace"] for each in project["spec"]["destinations"]}


@pytest.mark.parametrize("name", SETS)
def test_scheduler_goes_before_the_check_service(name: str) -> None:
    """The steps of the strategy, which Argo CD follows, have the order of the waves, and the deletion the other one."""
    made = argo_cd.applications(name)
    strategy = argo_cd.read(name)["spec"]["strategy"]
    selected = []
    for step in strategy["rollingSync"]["steps"]:
        (expression,) = step["matchExpressions"]
        assert expression["operator"] == "In"
        labels = ((each, each["metadata"]["labels"][expression["key"]]) for each in made)
        selected.append([each for each, value in labels if value in expression["values"]])
    charts = [[each["spec"]["source"]["path"] for each in step] for step in selected]
    waves = [int(each["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"]) for step in selected for each in step]

    assert charts == [["charts/gpu-scheduler"], ["charts/gpu-scheduler-check"]]
    assert waves == [0, 1]
    assert (strategy["type"], strategy["deletionOrder"]) == ("RollingSync", "Reverse")
    assert "applicationsetcontroller.enable.progressive.syncs" in (argo_cd.FOLDER / name).read_text()


def test_only_labelled_clusters_are_selected() -> None:
    """The Secret has the label that both generators select; a cluster without it gets no Application."""
    secret = argo_cd.read(argo_cd.SECRET)
    generators = argo_cd.read(argo_cd.COMPLETE)["spec"]["generators"]

    assert (secret["metadata"]["name"], secret["metadata"]["namespace"]) == ("local-cluster", "argocd")
    assert secret["metadata"]["labels"] == {
        "argocd.argoproj.io/secret-type": "cluster",
        "environment": "gpu-enabled",
    }
    assert [each["clusters"]["selector"]["matchLabels"] for each in generators] == [{"environment": "gpu-enabled"}] * 2


@pytest.mark.parametrize("name", SETS)
def test_applications_sync_prune_and_repair(name: str, tmp_path: Path) -> None:
    """The scheduler's namespace gets the Pod Security labels of the play; `default` gets none."""
    scheduler, check = (each["spec"]["syncPolicy"] for each in argo_cd.applications(name))
    (namespace,) = (each for each in rendered(tmp_path, ["certificates"]) if each["kind"] == "Namespace")
    given = namespace["metadata"]["labels"].items()
    standard = {key: value for key, value in given if key.startswith(STANDARD)}
    labels = scheduler.pop("managedNamespaceMetadata")["labels"]

    assert scheduler == check
    assert check["automated"] == {"prune": True, "selfHeal": True}
    assert set(check["syncOptions"]) == {
        "CreateNamespace=true",
        "ServerSideApply=true",
        "RespectIgnoreDifferences=true",
    }
    assert check["retry"]["limit"] > 0
    assert {key: value for key, value in labels.items() if key.startswith(STANDARD)} == standard
    assert standard


@pytest.mark.parametrize("name", SETS)
def test_placement_is_that_of_the_default_inventory(name: str) -> None:
    """Argo CD proves the same map as `make up`."""
    check = argo_cd.applications(name)[1]["spec"]["source"]["helm"]
    values: Any = yaml.safe_load(check["values"])
    facts = roles.read("inventory", "kind", "group_vars", "all", "facts.yml")

    assert values["podAnnotations"]["gpu-scheduling-map"] == facts["gpu_scheduling_map"]


def test_hosts_are_examples_that_are_marked() -> None:
    """Addresses are of example.com or of the cluster itself, and a mark stands above each value to edit."""
    for path in sorted(argo_cd.FOLDER.iterdir()):
        lines = path.read_text().splitlines()
        addresses = re.findall(r"https://([^/\s\"']+)", "\n".join(lines))
        assert set(addresses) <= {"git.example.com", "kubernetes.default.svc"}
        for number, line in enumerate(lines):
            if "example.com" in line:
                assert any("# Edit: " in each for each in lines[number - 3 : number]), (path, line)
