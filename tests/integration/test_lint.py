"""lint --live finds what the scheduler would wait for, with the right to read and no other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests import objects
from tests.integration.accounts import allow_everywhere, rights
from tests.integration.installed import Installed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace


@pytest.fixture
def reader(kinds: ControlPlane, populated: Namespace, tmp_path: Path) -> Installed:
    """The command line, for a user who may get and list everything, and write nothing."""
    name = populated.name
    allow_everywhere(populated.kube, name, "reader", f"{name}-reader", rights("*", "get", "list", group="*"))
    return Installed(tmp_path, kinds, kinds.service_account_token(name, "reader"), name)


def written(folder: Path, *bodies: dict[str, Any]) -> str:
    path = folder / "work.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies}), encoding="utf-8")
    return str(path)


def pod(name: str, text: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", **objects.pod(name, text)}


@pytest.mark.promise("lint-5")
def test_lint_finds_what_the_cluster_does_not_have(reader: Installed, populated: Namespace, tmp_path: Path) -> None:
    """A node that does not exist, with the nearest one; a GPU that does not; one that is held; a taint."""
    populated.patch_node("node4", {"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}})
    file = written(
        tmp_path,
        pod("far-0", "0=nod1:0\n"),
        pod("large-0", "0=node2:7\n"),
        pod("second-0", "0=node1:0\n"),
        pod("tainted-0", "0=node4:0\n"),
        pod("right-0", "0=small:0\n"),
    )
    before = {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in _pods(populated)}

    found = {each["name"]: each for each in reader.items("lint", "--live", file, code=1)}

    assert {name: (each["severity"], each["finding"]) for name, each in found.items()} == {
        "far-0": ("error", "NodeNotFound"),
        "large-0": ("error", "GpuNotFound"),
        "second-0": ("warning", "GpuHeld"),
        "tainted-0": ("error", "TaintNotTolerated"),
    }
    assert 'did you mean "node1"?' in found["far-0"]["message"]
    assert found["second-0"]["message"].startswith(f"GPU 0 of node1 is held by {populated.name}/train-0")
    assert {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in _pods(populated)} == before


@pytest.mark.promise("lint-5")
def test_what_runs_already_has_no_finding(reader: Installed, populated: Namespace, tmp_path: Path) -> None:
    """A pod does not wait for itself."""
    text = "0=node1:0,1\n1=node2:2\n"

    assert reader.items("lint", "--live", written(tmp_path, pod("train-0", text), pod("train-1", text))) == []


def _pods(namespace: Namespace) -> list[Any]:
    _, answer = namespace.kube.call("GET", namespace.pods)
    return list(answer["items"])
