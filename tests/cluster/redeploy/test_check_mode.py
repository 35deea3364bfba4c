"""Check mode reports what would change, and changes nothing in the cluster or on the host."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.cluster import plays
from tests.cluster.clusters import HOME, ROOT, Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECK: Final = (*plays.SITE, "--check", "--diff")
CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpu-scheduler"

# The cluster itself writes these continuously.
RESTLESS: Final = {"events", "events.events.k8s.io", "leases.coordination.k8s.io", "componentstatuses", "nodes"}
RECORD: Final = "the role's record"
"""What module applied_record reports: it returns what it deleted beside it, and the record's difference."""
# Bytes. For larger files time and size replace the content: hashing the images would take longer than the run.
LARGE: Final = 50_000_000


def _versions(cluster: Cluster) -> dict[str, str]:
    """Return every object's resourceVersion; of nodes only spec and labels, because kubelets renew the status."""
    listed = cluster.kubectl("api-resources", "--verbs=list", "--output=name").stdout.split()
    kinds = ",".join(kind for kind in listed if kind not in RESTLESS)
    objects = cluster.get(kinds, "--all-namespaces")["items"]
    nodes = cluster.get("nodes")["items"]
    return {
        f"{found['kind']} {found['metadata'].get('namespace', '')}/{found['metadata']['name']}": found["metadata"][
            "resourceVersion"
        ]
        for found in objects
    } | {
        f"Node {node['metadata']['name']}": json.dumps([node["spec"], node["metadata"]["labels"]], sort_keys=True)
        for node in nodes
    }


def _content(path: Path) -> str:
    if path.is_symlink():
        return str(path.readlink())
    size = path.stat().st_size
    return f"{size} {path.stat().st_mtime_ns}" if size > LARGE else hashlib.sha256(path.read_bytes()).hexdigest()


def _files() -> dict[str, str]:
    """Return every file of the host that a run may write, with its content's checksum."""
    folders = (ROOT / ".kube", ROOT / ".venv" / "bin", ROOT / "evidence", CACHE)
    found = (path for folder in folders for path in folder.rglob("*") if path.is_symlink() or path.is_file())
    # The engine's own log grows by itself; Go's caches are left by the build of programs.
    skipped = (CACHE / "engine" / "dockerd.log", CACHE / "go")
    return {
        str(path): _content(path) for path in found if not any(path.is_relative_to(excepted) for excepted in skipped)
    }


def _objects(run: plays.Run) -> list[str]:
    """Return kind and name of each object that a changed task of the run reported as changed."""
    named = []
    for event in plays.events(run.output):
        if event["_event"] != "v2_runner_on_ok":
            continue
        for result in event["hosts"].values():
            if not result.get("changed"):
                continue
            found: dict[str, Any] = result.get("result", {"results": []})
            named += [
                f"{part['result']['kind']}/{part['result']['metadata']['name']}"
                for part in found.get("results", [result])
                if part.get("changed")
            ]
            named += [RECORD] if "deleted" in result and result.get("diff") else []
    return named


@pytest.fixture
def unregistered(cluster: Cluster) -> Iterator[None]:
    """Delete the webhook's mutating registration; restore it afterwards."""
    cluster.kubectl("delete", "mutatingwebhookconfiguration", "gpu-scheduler-webhook")
    yield
    plays.run(*plays.SITE, "--tags", "webhook").succeeded()


@pytest.mark.usefixtures("unregistered")
def test_check_mode_names_exactly_what_is_missing(cluster: Cluster) -> None:
    """With one object deleted, check mode runs all roles, reports that object alone and writes nothing."""
    versions, files = _versions(cluster), _files()
    run = plays.run(*CHECK).succeeded()

    assert {"webhook"} == set(run.changed)
    # The record has the uid of each object, and the missing one would get a new uid.
    assert _objects(run) == ["MutatingWebhookConfiguration/gpu-scheduler-webhook", RECORD]
    assert versions == _versions(cluster)
    assert files == _files()


def test_check_mode_without_a_cluster_reports_that_one_would_be_made(cluster: Cluster) -> None:
    """Without a cluster, check mode reports that it would be created, and succeeds."""
    versions, files = _versions(cluster), _files()
    nowhere = HOME.parent / "gpu-scheduler-nowhere" / "config"
    run = plays.run(*CHECK, "-e", "cluster_name=gpu-scheduler-nowhere", "-e", f"kubeconfig={nowhere}").succeeded()

    assert {"kind_cluster"} == set(run.changed)
    assert versions == _versions(cluster)
    assert files == _files()
