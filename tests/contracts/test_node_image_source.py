"""Where the images come from, row by row."""

from __future__ import annotations

import pytest

from tests.contracts.loading import load
from tests.contracts.roles import ROOT, defaults

rule = load("roles", "node_image", "filter_plugins", "node_image_source.py")

ROWS = {
    "the inventory's word counts, whatever else holds": ("pull", "build", True, False, "pull"),
    "a build is a build beside a registry": ("build", "pull", True, True, "build"),
    "a first run pulls where a registry answers": ("auto", "", False, True, "pull"),
    "a first run builds where none does": ("auto", "", False, False, "build"),
    "a laptop on a train keeps what it pulled": ("auto", "pull", True, False, "pull"),
    "a registry that comes back changes nothing": ("auto", "build", True, True, "build"),
    "a half-done build goes on where no registry answers": ("auto", "build", False, False, "build"),
    "a half-done build is dropped for a registry": ("auto", "build", False, True, "pull"),
    "a half-done pull without a registry becomes a build": ("auto", "pull", False, False, "build"),
    "a record of nonsense is none": ("auto", "half", True, False, "build"),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_source(row: tuple[str, str, bool, bool, str]) -> None:
    """Each row's sentence holds."""
    asked, recorded, complete, answers, source = row

    assert rule.node_image_source(asked, recorded, complete=complete, answers=answers) == source


def test_built_image_is_named_after_the_version_that_is_built() -> None:
    """The tag of the built node image is Kubernetes' version in go.mod, and both roles pin the same images."""
    go_mod = (ROOT / "roles/node_image/files/go/kubernetes/go.mod").read_text()
    version = next(line.split()[1] for line in go_mod.splitlines() if "k8s.io/kubernetes v" in line)
    inputs, cluster = defaults("node_image"), defaults("kind_cluster")

    assert inputs["node_image_node_built"].endswith(f":{version}")
    assert cluster["kind_cluster_images"] == {
        "pull": inputs["node_image_node_pulled"],
        "build": inputs["node_image_node_built"],
    }
