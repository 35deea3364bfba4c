"""On an existing cluster the plays make no cluster: no container engine, no node image, and evidence of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.contracts import roles
from tests.contracts.cluster_modules import load_module
from tests.contracts.host import Host, nodes
from tests.contracts.paths import REACHED
from tests.contracts.roles import ROOT
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ACCESS: Final = load_module("roles", "preflight", "library", "cluster_access.py")
OF_KIND: Final = ("container_engine", "node_image", "kind_cluster")
EXISTING: Final = ("existing", "aks")
REGISTRY: Final = "registry.example.com/team"
DIGEST: Final = f"@sha256:{'d' * 64}"
BY_DIGEST: Final = {"scheduler_image": f"{REGISTRY}/s{DIGEST}", "check_image": f"{REGISTRY}/c{DIGEST}"}


@pytest.mark.promise("up-10")
@pytest.mark.parametrize("role", OF_KIND)
def test_main_play_makes_a_cluster_for_kind_alone(role: str) -> None:
    """Each task of these roles has the condition on the provider, whichever tags are given."""
    conditions = [way.conditions for way in REACHED if way.play == "playbooks/site.yml" and way.task.role == role]

    assert conditions
    assert [each for each in conditions if "cluster_provider == 'kind'" not in each] == []


@pytest.mark.promise("up-10")
def test_no_program_runs_for_a_cluster_that_is_there(tmp_path: Path) -> None:
    """Neither docker nor kind nor apt-get is called, even where a kind cluster runs and its node images are cached."""
    host = Host(tmp_path)
    host.containers = nodes(ROOT)
    (tmp_path / "cache/gpu-scheduler/node_image_source").write_text("build\n")
    run = host.play("site.yml", "existing", "--tags", ",".join((*OF_KIND, "images")), kube_context="prod")

    assert run.status == 0, run.output
    assert run.calls == []
    assert "changed=0" in run.output


def values(inventory: str, names: Iterable[str], *rows: dict[str, Any], **environment: str) -> list[dict[str, Any]]:
    """Return the inventory's variables `names` as Ansible evaluates them, with the variables of each row."""
    task = {"ansible.builtin.debug": {"msg": "FOUND {{ found | to_json }} END"}}
    found: dict[str, Any] = {"found": "{{ {" + ", ".join(f"'{name}': {name}" for name in names) + "} }}"}
    plays: list[dict[str, Any]] = [{"hosts": "localhost", "vars": {**row, **found}, "tasks": [task]} for row in rows]
    done = subprocess.run(
        ("ansible-playbook", "-i", f"inventory/{inventory}", "/dev/stdin"),
        input=json.dumps(plays),
        cwd=ROOT,
        env={
            **os.environ,
            **environment,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
        },
        capture_output=True,
        text=True,
        timeout=limit(60),
        check=False,
    )
    printed = done.stdout.replace('\\"', '"')
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(part.partition(" END")[0]) for part in printed.split('"FOUND ')[1:]]


@cache
def own_values(inventory: str) -> dict[str, Any]:
    """Return what an inventory says by itself of the variables that the following tests ask for."""
    names = ("evidence_dir", "gpu_scheduling_map", "check_tolerations", "cluster_provider", "kube_context")
    (found,) = values(inventory, names, {})
    return found


DELIVERIES: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "no registry: the nodes hold the images": ({}, "none"),
    "a registry": ({"image_registry": REGISTRY}, "push"),
    "one image is given with its digest": (
        {"image_registry": REGISTRY, "scheduler_image": BY_DIGEST["scheduler_image"]},
        "push",
    ),
    "both images are given with their digests": ({"image_registry": REGISTRY, **BY_DIGEST}, "none"),
}


def test_images_are_pushed_only_where_a_registry_and_an_image_without_digest_ask_for_it(tmp_path: Path) -> None:
    """Delivery and base image of an existing cluster, beside a cache in which a kind cluster's images were built."""
    (tmp_path / "gpu-scheduler").mkdir()
    (tmp_path / "gpu-scheduler" / "node_image_source").write_text("build\n")
    rows = [row for row, _ in DELIVERIES.values()]
    found = values("existing", ("images_delivery", "images_base_images"), *rows, XDG_CACHE_HOME=str(tmp_path))

    assert dict(zip(DELIVERIES, (each["images_delivery"] for each in found), strict=True)) == {
        name: delivery for name, (_, delivery) in DELIVERIES.items()
    }
    assert {tuple(each["images_base_images"]) for each in found} == {
        ("python:3.13-slim", "gpu-scheduler/python-base:3.13-trixie")
    }


@pytest.mark.parametrize("text", ["", "\n", "buil"])
def test_damaged_note_of_the_images_source_is_as_none(tmp_path: Path, text: str) -> None:
    """Each play reads it, with whatever tags: it must not end in an error of templates."""
    (tmp_path / "gpu-scheduler").mkdir()
    (tmp_path / "gpu-scheduler" / "node_image_source").write_text(text)
    (found,) = values("kind", ("images_base_images", "image_source"), {}, XDG_CACHE_HOME=str(tmp_path))

    assert found == {"images_base_images": ["gpu-scheduler/python-base:3.13-trixie"], "image_source": "build"}


@pytest.mark.promise("up-4")
@pytest.mark.parametrize(("inventory", "folder"), [("kind", ""), ("existing", "/existing"), ("aks", "/aks")])
def test_only_the_kind_cluster_writes_the_committed_evidence(tmp_path: Path, inventory: str, folder: str) -> None:
    """Another inventory has a folder of its own, which git ignores."""
    assert own_values(inventory)["evidence_dir"] == f"{ROOT}/evidence{folder}"
    assert is_ignored(tmp_path, f"evidence{folder}/pods.txt") is (inventory != "kind")


def is_ignored(folder: Path, path: str) -> bool:
    """Return whether git ignores the file: in a repository of its own, because a copy of the checkout is none."""
    subprocess.run(("git", "init", "--quiet", str(folder)), check=True)
    shutil.copy(ROOT / ".gitignore", folder)
    return subprocess.run(("git", "check-ignore", "--quiet", path), cwd=folder, check=False).returncode == 0


def test_what_users_write_about_their_cluster_is_ignored_by_git(tmp_path: Path) -> None:
    """local.yml and map.yml beside an inventory's facts are read after them, and never committed."""
    for inventory in ("kind", *EXISTING):
        folder, own = f"inventory/{inventory}/group_vars/all", {"local.yml", "map.yml"}
        assert [name for name in own if not is_ignored(tmp_path, f"{folder}/{name}")] == []
        assert max({path.name for path in (ROOT / folder).iterdir()} - own) < min(own)


def test_aks_differs_from_existing_in_few_variables() -> None:
    """It has the facts of existing by a link, and overrides only variables that are there."""
    folder = ROOT / "inventory" / "aks" / "group_vars" / "all"
    own = roles.read("inventory", "aks", "group_vars", "all", "facts.yml")
    found = own_values("aks")

    assert (folder / "10_existing.yml").resolve() == ROOT / "inventory/existing/group_vars/all/facts.yml"
    assert set(own) <= set(roles.read("inventory", "existing", "group_vars", "all", "facts.yml"))
    assert "=aks-workerpool-25338008-vmss000000:" in found["gpu_scheduling_map"]
    assert {each["key"] for each in found["check_tolerations"]} == {"sku", "nvidia.com/gpu"}
    assert (found["cluster_provider"], found["kube_context"]) == ("existing", "")


@pytest.mark.parametrize(
    ("inventory", "given", "remedy"),
    [
        ("existing", {}, "make up INVENTORY=inventory/existing ARGS='-e kube_context=NAME'"),
        ("aks", {"kube_context": "prod"}, "make up INVENTORY=inventory/aks ARGS='-e kube_context=prod'"),
    ],
)
def test_status_names_the_command_of_its_inventory(
    tmp_path: Path, inventory: str, given: dict[str, str], remedy: str
) -> None:
    """What repairs a missing part is the same inventory's command."""
    run = Host(tmp_path).play("playbooks/status.yml", inventory, **given)

    assert run.status == 0, run.output
    assert remedy in run.output


def test_kubectl_that_is_missing_is_named(tmp_path: Path) -> None:
    """`make status` then names the variable, not the kubeconfig."""
    program = "/nowhere/kubectl"
    run = Host(tmp_path).play("playbooks/status.yml", "existing", kube_context="prod", kubectl_program=program)

    assert "Cluster prod does not answer: check kubectl_program" in run.output


SHORT: Final = "gpu-scheduler:dev-1a2b"
LISTING: Final[dict[str, tuple[list[list[str]], list[str]]]] = {
    "no nodes were read": ([], []),
    "no node lists it": ([["docker.io/library/other:1"], []], [SHORT]),
    "a node lists it": ([[], [SHORT]], []),
    "a node lists it as container runtimes write it": ([["sha256:0", f"docker.io/library/{SHORT}"]], []),
}


@pytest.mark.parametrize("name", LISTING)
def test_image_without_a_registry_is_looked_for_on_the_nodes(name: str) -> None:
    """Nobody serves it under that name, so pods of a node that lacks it wait for ever."""
    nodes, missing = LISTING[name]
    bodies = [{"status": {"images": [{"names": names, "sizeBytes": 1}]}} for names in nodes]

    assert ACCESS.unlisted([SHORT], bodies) == missing


def test_what_a_role_has_installed_is_read_from_its_record() -> None:
    """A record that is not there, or that may not be read, names nothing."""
    lines = "v1 Namespace gpu-scheduler-monitor 1\napps/v1 DaemonSet gpu-scheduler-monitor/gpu-scheduler-monitor 2\n"

    assert ACCESS.daemonsets_of({"data": {"objects": lines}}) == ["gpu-scheduler-monitor/gpu-scheduler-monitor"]
    assert ACCESS.daemonsets_of({}) == []


# What the user says → the roles that would remove untold what they installed, and the source of the drivers.
SAID: Final[dict[str, tuple[dict[str, str], list[str], str]]] = {
    "nothing": ({}, ["monitor", "driver"], "none"),
    "no monitors": ({"monitor_source": "none"}, [], "none"),
    "monitors": ({"monitor_source": "nvml"}, ["driver"], "none"),
    "no claims": ({"monitor_source": "nvml", "isolation": "env"}, [], "none"),
    "claims, and no word of monitors": ({"isolation": "dra"}, ["monitor", "driver"], "none"),
    "claims": ({"monitor_source": "nvml", "isolation": "dra"}, [], "nvidia"),
    "claims without our drivers": ({"monitor_source": "nvml", "isolation": "dra", "driver_source": "none"}, [], "none"),
}


def test_monitors_and_drivers_are_removed_only_by_a_value_that_somebody_has_set() -> None:
    """What the inventory leaves out is the same as before for a cluster that has neither."""
    rows = [said for said, _, _ in SAID.values()]
    names = ("preflight_unsaid_removals", "driver_source", "preflight_monitor_source", "scheduler_isolation")
    found = values("existing", names, *rows)

    assert {
        name: (each["preflight_unsaid_removals"], each["driver_source"]) for name, each in zip(SAID, found, strict=True)
    } == {name: (removals, source) for name, (_, removals, source) in SAID.items()}
    assert (found[0]["preflight_monitor_source"], found[0]["scheduler_isolation"]) == ("none", "env")
