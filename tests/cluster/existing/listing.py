"""Lists everything in a cluster, of each kind that its API server knows."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.cluster.clusters import Cluster

# The cluster itself writes these continuously.
RESTLESS: Final = {"events", "events.events.k8s.io", "leases.coordination.k8s.io", "componentstatuses", "nodes"}
OURS: Final = re.compile(r"gpu-scheduler|agentaflow|webhook-test-")
DEPLOYER: Final = "gpu-scheduler-deployer"
"""The account that the cluster's administrator made on the page; uninstalling leaves it."""


def objects(cluster: Cluster) -> list[dict[str, Any]]:
    """Return every object of every kind that can be listed, except those that the cluster writes continuously."""
    listed = cluster.kubectl("api-resources", "--verbs=list", "--output=name").stdout.split()
    kinds = ",".join(kind for kind in listed if kind not in RESTLESS)
    found: list[dict[str, Any]] = cluster.get(kinds, "--all-namespaces")["items"]
    return found


def name_of(found: dict[str, Any]) -> str:
    """Return kind, namespace and name of an object, as one text."""
    return f"{found['kind']} {found['metadata'].get('namespace', '')}/{found['metadata']['name']}"


def versions(cluster: Cluster) -> dict[str, str]:
    """Return every object as text, nodes included, without its status: that is written at any time."""
    # A list of one kind leaves out what each of its items is.
    nodes = [{**node, "kind": "Node"} for node in cluster.get("nodes")["items"]]
    return {name_of(each): _without_status(each) for each in (*objects(cluster), *nodes)}


def _without_status(found: dict[str, Any]) -> str:
    written = {"resourceVersion", "managedFields"}
    metadata = {key: value for key, value in found["metadata"].items() if key not in written}
    rest = {key: value for key, value in found.items() if key != "status"}
    return json.dumps(rest | {"metadata": metadata}, sort_keys=True)


def of_ours(cluster: Cluster) -> dict[str, str]:
    """Return name and uid of each object that has a name or a label of ours; Leases included."""
    leases = cluster.get("leases", "--all-namespaces")["items"]
    found = {}
    for each in (*objects(cluster), *leases):
        metadata = each["metadata"]
        words = (metadata["name"], metadata.get("namespace", ""), *metadata.get("labels", {}).items())
        if any(OURS.search(str(word)) for word in words) and metadata["name"] != DEPLOYER:
            found[name_of(each)] = metadata["uid"]
    return found


def left_of_ours(cluster: Cluster, kept: frozenset[str] = frozenset()) -> list[str]:
    """Return the objects of ours that stay, except those of the kinds in `kept`.

    Wait for the garbage collector, which deletes what the deleted objects owned.
    """

    def left() -> list[str]:
        return [name for name in of_ours(cluster) if name.split()[0] not in kept]

    with suppress(AssertionError):
        eventually("nothing of ours to be left", lambda: not left(), 30, 2)
    return left()
