"""The source of the images, their age and their version of Kubernetes."""

from __future__ import annotations

import json
import os
import re
import subprocess
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.contracts.loading import load
from tests.contracts.roles import ROOT
from tests.waiting import limit

if TYPE_CHECKING:
    from pathlib import Path

age = load("roles", "node_image", "filter_plugins", "node_image_age.py")
rule = load("roles", "node_image", "filter_plugins", "node_image_source.py")

ROWS = {
    "the inventory's setting overrides everything else": ("pull", "build", True, False, "pull"),
    "the setting build builds although a registry answers": ("build", "pull", True, True, "build"),
    "a first run pulls where a registry answers": ("auto", "", False, True, "pull"),
    "a first run builds where no registry answers": ("auto", "", False, False, "build"),
    "a host without a network keeps the images that it pulled": ("auto", "pull", True, False, "pull"),
    "a registry that comes back changes nothing": ("auto", "build", True, True, "build"),
    "an interrupted build continues where no registry answers": ("auto", "build", False, False, "build"),
    "an interrupted build is dropped where a registry answers": ("auto", "build", False, True, "pull"),
    "an interrupted pull becomes a build where no registry answers": ("auto", "pull", False, False, "build"),
    "an invalid record is ignored": ("auto", "half", True, False, "build"),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_source(row: tuple[str, str, bool, bool, str]) -> None:
    """Each row's sentence holds."""
    asked, recorded, complete, answers, source = row

    assert rule.node_image_source(asked, recorded, complete=complete, answers=answers) == source


KUBERNETES = ROOT / "roles/node_image/files/go/kubernetes"
VERSION = re.findall(r"k8s\.io/kubernetes v(\S+)", (KUBERNETES / "go.mod").read_text())[0]


def test_pulled_image_has_the_version_that_is_built() -> None:
    """The image to pull, pinned by digest, and every staging module have the version of Kubernetes in go.mod."""
    replaced = re.findall(r"^replace \S+ => \S+ v(\S+)$", (KUBERNETES / "go.mod").read_text(), flags=re.MULTILINE)

    assert re.fullmatch(rf"kindest/node:v{VERSION}@sha256:[0-9a-f]{{64}}\n", (KUBERNETES / "pulled-image").read_text())
    assert set(replaced) == {VERSION.replace("1.", "0.", 1)}


def test_version_stands_in_one_place() -> None:
    """No other file of roles, inventories, plays and scenarios names the version, so nothing else changes with it."""
    listed = ("git", "grep", "--untracked", "-lE", rf"v?\b[01]\.{re.escape(VERSION.partition('.')[2])}\b")
    places = ("roles", "inventory", "playbooks", "molecule", "plugins", "README.md", ":!*/files/go/*")
    found = subprocess.run((*listed, "--", *places), cwd=ROOT, capture_output=True, text=True, check=False)

    assert (found.stdout, found.stderr) == ("", "")


def test_cluster_gets_the_images_of_role_node_image() -> None:
    """Both roles get the images of either source from the inventory, which derives them from one folder."""
    values = evaluated("node_images", "kind_cluster_images", "node_image_node_pulled", "node_image_node_built")
    images = {"pull": (KUBERNETES / "pulled-image").read_text().strip(), "build": f"gpu-scheduler/node:v{VERSION}"}

    assert values["node_images"] == values["kind_cluster_images"] == images
    assert values["node_image_node_pulled"] == images["pull"]
    assert values["node_image_node_built"] == images["build"]


def test_builds_use_a_go_that_every_module_accepts(tmp_path: Path) -> None:
    """The role looks for the newest Go that one of its modules asks for."""
    files = ROOT / "roles/node_image/files/go"
    asked = [re.findall(r"^go (\S+)$", path.read_text(), flags=re.MULTILINE)[0] for path in files.glob("*/go.mod")]
    tasks = [
        {"ansible.builtin.include_vars": {"dir": str(ROOT / "roles/node_image/vars/main")}},
        {"ansible.builtin.debug": {"msg": {"needed": "{{ _node_image_go_needed }}"}}},
    ]
    variables = {"role_path": str(ROOT / "roles/node_image")}
    (tmp_path / "play.yml").write_text(
        json.dumps([{"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": tasks}])
    )

    assert shown("ansible-playbook", "-i", "inventory/kind", str(tmp_path / "play.yml"))["needed"] == max(
        asked, key=lambda version: [int(number) for number in version.split(".")]
    )


def evaluated(*names: str) -> dict[str, object]:
    """Return the values of these variables of the kind inventory, as a play has them."""
    given = json.dumps({"msg": {name: f"{{{{ {name} }}}}" for name in names}})
    return shown("ansible", "localhost", "-i", "inventory/kind", "-m", "ansible.builtin.debug", "-a", given)


def shown(*command: str) -> dict[str, object]:
    """Run Ansible; return the values of the message that it shows."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"},
        capture_output=True,
        text=True,
        timeout=limit(60),
        check=True,
    )
    message = done.stdout[done.stdout.index('"msg": ') + len('"msg": ') :]
    values, _ = json.JSONDecoder().raw_decode(message)
    return values  # type: ignore[no-any-return]


def days_ago(days: float) -> str:
    """Return the stamp of that time."""
    return (datetime.now(UTC) - timedelta(days=days)).strftime("%Y%m%dT%H%M")


BUILT = {"node": "0123456789ab", "python": "ba9876543210"}
PULLED = {"node": "kindest/node@sha256:11", "python": "python:3.13-slim", "stamp": days_ago(3)}


def inspected(**stamps: str) -> str:
    """Return what the engine says of images that were built at these times."""
    labels = [{"gpu-scheduler.content": f"{BUILT[image]}-{stamp}", "other": "x"} for image, stamp in stamps.items()]
    return "".join(f'["name:tag"] [] {json.dumps(label)}\n' for label in labels)


PULLED_BOTH = '["python:3.13-slim"] ["python@sha256:22"] null\n[] ["kindest/node@sha256:11"] null\n'

# what the engine says, source, days, stamp of the last pull → missing, old.
STATES = {
    "a first run lacks both images": ("", "build", 30, "", ["node", "python"], []),
    "images of another recipe are missing": (
        '{"gpu-scheduler.content":"aaaaaaaaaaaa-20260101T0000"}',
        *("build", 30, "", [*BUILT], []),
    ),
    "images without a time are missing": ('{"gpu-scheduler.content":"0123456789ab"}', "build", 30, "", [*BUILT], []),
    "new images stay": (inspected(node=days_ago(29), python=days_ago(1)), "build", 30, "", [], []),
    "an image is old after its days": (inspected(node=days_ago(31), python=days_ago(1)), "build", 30, "", [], ["node"]),
    "with 0 days each image is old": (inspected(node=days_ago(0), python=days_ago(0)), "build", 0, "", [], [*BUILT]),
    "days may be text, as -e gives them": (
        inspected(node=days_ago(2), python=days_ago(0)),
        "build",
        "1",
        "",
        [],
        ["node"],
    ),
    "a pulled node image never gets old": (PULLED_BOTH, "pull", 1, days_ago(0), [], []),
    "a Python image is old where nothing says when it was pulled": (PULLED_BOTH, "pull", 30, "", [], ["python"]),
    "a missing image is not old too": ('[] ["kindest/node@sha256:11"] null', "pull", 30, "", ["python"], []),
}


@pytest.mark.parametrize("row", STATES.values(), ids=STATES)
def test_state_of_the_images(row: tuple[str, str, int, str, list[str], list[str]]) -> None:
    """Each row's sentence holds."""
    output, source, days, stamp, missing, old = row

    assert age.node_image_state(output, source, days, BUILT, PULLED | {"stamp": stamp}) == {
        "missing": missing,
        "old": old,
    }


def test_newest_archive_of_the_present_recipe_counts() -> None:
    """Archives of other recipes, other images and partial ones have no say."""
    paths = [
        f"/cache/images/{name}"
        for name in (
            "node-0123456789ab-20261101T0000.tar",
            "node-0123456789ab-20261102T0930.tar",
            "node-ffffffffffff-20261103T0000.tar",
        )
    ]

    assert age.node_image_stamp(paths, "node-0123456789ab") == "20261102T0930"
    assert age.node_image_stamp(paths, "python-0123456789ab") == ""
    assert age.node_image_stamp([], "node-0123456789ab") == ""
