"""Bad input stops the play before anything is changed, and the message names the variable and the fix."""

from __future__ import annotations

import json
import socket
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.contracts.roles import ROOT
from tests.waiting import limit

if TYPE_CHECKING:
    from pathlib import Path

# A name of its own, so that no cluster of that name is found and every check of the host applies.
CLUSTER = "no-such-cluster"

REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "too little memory": ({"preflight_memory_mib": 10**9}, ("MiB of memory are available", "preflight_memory_mib")),
    "too little disk": ({"preflight_cache_mib": 10**9, "preflight_engine_mib": 10**9}, ("MiB free", "make room")),
    "a registry to push to that does not answer": (
        {"image_registry": "127.0.0.1:1/team"},
        ("image_registry: http://127.0.0.1:1", "make the registry reachable"),
    ),
}


def preflight(values: dict[str, Any], cache: Path) -> subprocess.CompletedProcess[str]:
    """Run the checks alone, with these values given by the user and an empty cache."""
    given = {"cluster_name": CLUSTER, "cache_dir": str(cache), **values}
    command = ("ansible-playbook", "site.yml", "--tags", "preflight", "-e", json.dumps(given))
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit(120), check=False)


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_with_its_cure(name: str, tmp_path: Path) -> None:
    """Each wrong value is named with the fix, and nothing was changed."""
    values, sentences = REFUSED[name]
    done = preflight(values, tmp_path / "cache")

    assert done.returncode != 0
    for sentence in sentences:
        assert sentence in " ".join(done.stdout.split())
    assert "changed=0" in done.stdout
    assert not (tmp_path / "cache").exists()


def test_taken_port_is_named(tmp_path: Path) -> None:
    """A port that somebody listens on is named, with its variable."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = preflight({"kind_cluster_api_port": port}, tmp_path / "cache")

    assert done.returncode != 0
    assert f"Port {port} (kind_cluster_api_port) is taken" in " ".join(done.stdout.split())
