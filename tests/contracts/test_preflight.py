"""Invalid input stops the play before any change, and the message names the variable and the remedy."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.contracts.loading import load
from tests.contracts.roles import ROOT
from tests.waiting import limit

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.plays

# A name of its own, so that no cluster of that name exists and every check of the host applies.
CLUSTER = "no-such-cluster"

REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "too little memory": ({"preflight_memory_mib": 10**9}, ("MiB of memory are available", "preflight_memory_mib")),
    "too little disk": ({"preflight_cache_mib": 10**9, "preflight_engine_mib": 10**9}, ("MiB free", "make room")),
}
# Without a cluster, and without an engine: what an existing cluster asks of this host.
EXISTING: Final = {"cluster_provider": "existing", "kube_context": "there", "kubeconfig": "/nowhere/config"}
PUSHED: Final = {"image_registry": "127.0.0.1:1/team"}
DIGEST: Final = f"127.0.0.1:1/team/image@sha256:{'0' * 64}"

ON_EXISTING: dict[str, tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]] = {
    "nothing is asked of the host": (
        {"kubectl_program": "/bin/true", "preflight_memory_mib": 10**9, "preflight_cache_mib": 10**9},
        ("Cannot read kubeconfig '/nowhere/config' (no such file or directory): set kubeconfig",),
        ("The host needs", "A registry does not answer:"),
    ),
    "kubectl is missing, and an engine to push with": (
        {"kubectl_program": "no-such-kubectl", **PUSHED},
        (
            "kubectl_program is 'no-such-kubectl', and this host has no such program: install kubectl, or set",
            "No container engine answers, and image_registry is set, so images are built and pushed from here: start",
        ),
        ("git is missing", "MiB"),
    ),
    "images with digests need no engine, and no registry is asked": (
        {"kubectl_program": "/bin/true", **PUSHED, "scheduler_image": DIGEST, "check_image": DIGEST},
        ("Cannot read kubeconfig",),
        ("container engine", "127.0.0.1:1: "),
    ),
}


def preflight(
    values: dict[str, Any], cache: Path, inventory: str = "kind", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the checks alone, with these variables of the user and an empty cache."""
    given = {"cluster_name": CLUSTER, "cache_dir": str(cache), **values}
    command = ("ansible-playbook", "-i", f"inventory/{inventory}", "site.yml", "--tags", "preflight", "-e")
    return subprocess.run(
        (*command, json.dumps(given)),
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=limit(120),
        check=False,
    )


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_with_its_remedy(name: str, tmp_path: Path) -> None:
    """The message names each wrong value with the remedy, and nothing was changed."""
    values, sentences = REFUSED[name]
    done = preflight(values, tmp_path / "cache")

    assert done.returncode != 0
    for sentence in sentences:
        assert sentence in " ".join(done.stdout.split())
    assert "changed=0" in done.stdout
    assert not (tmp_path / "cache").exists()


def test_taken_port_is_named(tmp_path: Path) -> None:
    """A port that is in use is named, with its variable."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = preflight({"kind_cluster_api_port": port}, tmp_path / "cache")

    assert done.returncode != 0
    assert f"Port {port} (kind_cluster_api_port) is taken" in " ".join(done.stdout.split())


@pytest.mark.parametrize("name", ON_EXISTING)
def test_existing_cluster_asks_of_this_host_only_what_it_needs(name: str, tmp_path: Path) -> None:
    """With `cluster_provider: existing` neither memory, disk, git nor root matter, and an engine only to push."""
    values, sentences, silent = ON_EXISTING[name]
    done = preflight({**EXISTING, **values}, tmp_path / "cache", "existing", DOCKER_HOST=f"unix://{tmp_path}/no.sock")
    reported = " ".join(done.stdout.split())

    assert done.returncode != 0
    assert [sentence for sentence in sentences if sentence not in reported] == [], reported
    assert [sentence for sentence in silent if sentence in reported] == [], reported
    assert "changed=0" in reported


def test_registry_that_does_not_answer_is_a_warning(tmp_path: Path) -> None:
    """The engine may reach it, with a CA or a proxy of its own, so the push decides."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "docker").write_text("#!/bin/sh\necho '/tmp||https://registry.example.com/v1/'\n")
    (programs / "docker").chmod(0o755)
    values = {**EXISTING, **PUSHED, "kubectl_program": "/bin/true"}
    done = preflight(values, tmp_path / "cache", "existing", PATH=f"{programs}:{os.environ['PATH']}")
    reported = " ".join(done.stdout.split())

    assert "image_registry: http://127.0.0.1:1 (" in reported
    assert "the push decides; if it fails, correct image_registry" in reported
    assert "Cannot read kubeconfig" in reported


# A host on which an engine answers this user, and whose registry does not answer.
HOST: Final = {
    "system": "Linux",
    "machine": "x86_64",
    "python": "3.13.1",
    "is_debian": True,
    "port_is_free": True,
    "programs": [],
    "memory_mib": 10**6,
    "disks": [{"path": "/", "free_mib": 10**6, "device": 1}],
    "engine_answers": True,
    "engine_denied": False,
    "engine_root": "/",
    "engine_free_mib": 10**6,
    "engine_device": 1,
    "engine_registry": "http://127.0.0.1:1",
    "images_built": False,
    "archives": [],
    "cluster_runs": False,
    "cluster_exists": False,
}
NO_ROOT: Final = "building the images needs root, which this user cannot become, because this host has no sudo: install"

# Where images come from, what this user needs to be root, what an earlier run has decided; whether the run goes on, and
# what it says.
ROOTLESS: dict[str, tuple[str, str, str, bool, str]] = {
    "no registry": ("auto", "", "", False, f"node_image_source auto), and {NO_ROOT} sudo, run as root, or make it"),
    "images are to be built": (
        "build",
        "",
        "",
        False,
        f"node_image_source is build, and {NO_ROOT} sudo, run as root, or",
    ),
    "images were pulled by an earlier run": ("auto", "", "pull", True, ""),
    "sudo wants a password": ("auto", "password", "", True, "give it (example: make up ARGS=--ask-become-pass)"),
}


@pytest.mark.parametrize("name", ROOTLESS)
def test_user_of_an_engine_who_cannot_become_root_is_told_before_images_are_built(name: str, tmp_path: Path) -> None:
    """The right to use Docker is enough where a registry answers; debootstrap and chroot need root."""
    source, root, decided, passes, said = ROOTLESS[name]
    if decided:
        (tmp_path / "node_image_source").write_text(decided)
    host = {**HOST, "root_by": root}
    done = preflight({"__preflight_host": host, "node_image_source": source}, tmp_path)
    reported = " ".join(done.stdout.split()).replace("''", "'")

    assert (done.returncode == 0) is passes, reported
    assert said in reported
    assert ("needs root" in reported) is not passes


def test_what_a_user_needs_to_be_root_is_asked_of_sudo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without sudo there is no way; with it, it says whether it wants a password."""
    host_info = load("roles", "preflight", "library", "host_info.py")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = [host_info.root_by()]
    for status in (0, 1):
        (tmp_path / "sudo").write_text(f"#!/bin/sh\nexit {status}\n")
        (tmp_path / "sudo").chmod(0o755)
        found.append(host_info.root_by())

    assert found == ["", "sudo", "password"]


# An existing cluster on which nothing is wrong but what a test adds.
CLUSTER_FOUND: Final = {
    "version": "1.36.4",
    "problems": [],
    "nodes": [],
    "node_names": [],
    "error": "",
    "unlisted_images": [],
    "daemonsets": {},
}
MONITORS: Final = "gpu-scheduler-monitor/gpu-scheduler-monitor"
FOUND: dict[str, tuple[dict[str, Any], bool, str]] = {
    "monitors that the run would remove": (
        {"daemonsets": {"monitor": [MONITORS]}},
        False,
        f"would remove the monitors of the cluster (DaemonSet {MONITORS}), and monitor_source is not set: set it as it",
    ),
    "an image that no node has": (
        {"unlisted_images": ["gpu-scheduler:1"]},
        True,
        "Warning: scheduler_image is 'gpu-scheduler:1', which names no registry, and no node lists that image",
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_an_existing_cluster_would_lose_or_lacks_is_said(name: str, tmp_path: Path) -> None:
    """Removing must be said by the user; an image may be held without being listed, so that is a warning."""
    found, passes, said = FOUND[name]
    images = {"scheduler_image": "gpu-scheduler:1", "check_image": "registry.example.com/check:1"}
    values = {**EXISTING, **images, "kubectl_program": "/bin/true", "__preflight_cluster": {**CLUSTER_FOUND, **found}}
    done = preflight(values, tmp_path / "cache", "existing")
    reported = " ".join(done.stdout.split()).replace("''", "'")

    assert (done.returncode == 0) is passes, reported
    assert said in reported


def test_host_without_proc_has_no_memory_to_measure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The facts of the host are read on macOS too."""
    host_info = load("roles", "preflight", "library", "host_info.py")
    monkeypatch.setattr(host_info, "MEMINFO", tmp_path / "meminfo")

    assert host_info.memory_mib() == 0
