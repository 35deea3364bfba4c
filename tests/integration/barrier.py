"""A barrier: a program has seen what a test has written, and what follows from it is done.

A test writes a sentinel: an object of a watched resource that causes nothing. Its resourceVersion is higher than that
of every earlier write to the same API server. When the program says that it has applied this version, and in the same
answer that nothing is due, then it has decided on all earlier writes of that resource.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tests import objects

if TYPE_CHECKING:
    from tests.integration.command import Command
    from tests.integration.namespace import Namespace

_numbers = itertools.count(1)


def settle(namespace: Namespace, *programs: Command) -> None:
    """Wait until the programs have seen all pods and nodes as they are now, and have done what follows.

    What a program itself writes while it does so, a bind for example, it may not have seen yet.
    """
    versions = {"pods": pod_sentinel(namespace)}
    if node := node_sentinel(namespace):
        versions["nodes"] = node
    for program in programs:
        program.wait_seen(versions)


def pod_sentinel(namespace: Namespace) -> str:
    """Create and delete a pod of ours that is gated, so that no program acts on it. Return its version."""
    name = f"barrier{next(_numbers)}-0"
    gated = [{"name": "example.com/barrier"}]
    body = objects.pod(name, "0=barrier:0\n", objects.literal("0"), schedulingGates=gated)
    created = namespace.kube.create(namespace.pods, body)
    namespace.delete(name)
    return str(created["metadata"]["resourceVersion"])


def node_sentinel(namespace: Namespace) -> str:
    """Change an annotation of a node that no program reads. Return the node's version; empty if there is no node."""
    _, found = namespace.kube.call("GET", "/api/v1/nodes?limit=1")
    for each in found["items"]:
        return touch(namespace, f"/api/v1/nodes/{each['metadata']['name']}")
    return ""


def touch(namespace: Namespace, path: str) -> str:
    """Change an annotation of this object that no program reads. Return its version."""
    mark = {"metadata": {"annotations": {"example.com/barrier": str(next(_numbers))}}}
    return str(namespace.kube.patch(path, mark)["metadata"]["resourceVersion"])
