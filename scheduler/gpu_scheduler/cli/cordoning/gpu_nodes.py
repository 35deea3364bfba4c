"""Reads and writes the cordons of a GPUNode, and waits until the scheduler has confirmed them.

A write replaces exactly the version that was read: cordons that others write at the same time are never lost.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler import names
from gpu_scheduler.cli.options import FailedError
from gpu_scheduler.kube.http.client import MERGE, segment, status_message
from gpu_scheduler.kube.lists import get_one, list_all
from gpu_scheduler.kube.objects.agentaflow import API, GROUP, VERSION
from gpu_scheduler.kube.objects.cordons import read_node_cordons
from gpu_scheduler.kube.objects.nodes import read_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpu_scheduler.core.nodes.cordons import Cordon, NodeCordons
    from gpu_scheduler.core.nodes.nodes import Node
    from gpu_scheduler.kube.http.client import ApiClient, ApiResponse

MANAGER: Final = "gpu-scheduler-cli"
TRIES: Final = 5
"""Tries of a write that others keep overtaking."""
POLL: Final = 0.2
"""Seconds between two looks for the confirmation."""
_COLLECTION: Final = f"{API}/gpunodes"
_USER: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_NOT_FOUND, _CONFLICT = 404, 409


async def find_node(api: ApiClient, name: str) -> Node | None:
    """Return the node with this name, else the one with this alias; None if there is none, or several."""
    found = await get_one(api, f"node {name}", f"/api/v1/nodes/{segment(name)}", read_node)
    if found is not None:
        return found[1]
    aliased = await list_all(api, "nodes", "/api/v1/nodes", read_node, labels=f"{names.NODE_ALIAS}={name}")
    return aliased[0][1] if len(aliased) == 1 else None


async def read_user(api: ApiClient) -> str:
    """Return the name by which the API server knows the caller. FailedError if it does not say."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await api.call("POST", _USER, body=json.dumps(review).encode())
    if not answer.ok:
        raise _refused("ask who you are", answer)
    return str(json.loads(answer.body)["status"]["userInfo"]["username"])


async def read_cordons(api: ApiClient, node: str) -> NodeCordons | None:
    """Return the cordons of a node's GPUNode; None if there is no GPUNode."""
    found = await get_one(api, f"GPUNode {node}", f"{_COLLECTION}/{segment(node)}", read_node_cordons)
    return None if found is None else found[1]


async def change_cordons(
    api: ApiClient, node: str, change: Callable[[tuple[Cordon, ...]], Iterable[Cordon]], *, dry_run: bool = False
) -> NodeCordons | None:
    """Write what `change` makes of the node's cordons; return the GPUNode after the write.

    Nothing is written if nothing changes; None if there is no GPUNode and no cordon. FailedError if the API server
    refuses.
    """
    path, query = f"{_COLLECTION}/{segment(node)}", {"fieldManager": MANAGER, **({"dryRun": "All"} if dry_run else {})}
    for _ in range(TRIES):
        read = await api.call("GET", path)
        if not read.ok and read.status != _NOT_FOUND:
            raise _refused(f"read GPUNode {node}", read)
        before = read_node_cordons(bytes(read.body))[1] if read.ok else None
        had = before.cordons if before else ()
        wanted = tuple(change(had))
        if wanted == had:
            return before
        spec = {"nodeName": node, "cordoned": list(map(_entry, wanted))}
        if before is None:
            body: dict[str, Any] = {"apiVersion": f"{GROUP}/{VERSION}", "kind": names.NODE_KIND}
            body |= {"metadata": {"name": node}, "spec": spec}
            answer = await api.call("POST", _COLLECTION, query=query, body=json.dumps(body).encode())
        else:
            version = json.loads(read.body)["metadata"]["resourceVersion"]
            # In a merge patch, null removes the field.
            body = {"metadata": {"resourceVersion": version}, "spec": {"cordoned": spec["cordoned"] or None}}
            data = json.dumps(body).encode()
            answer = await api.call("PATCH", path, query=query, body=data, content_type=MERGE)
        if answer.ok:
            return read_node_cordons(bytes(answer.body))[1]
        # Somebody else has written meanwhile, or the kind's first object has just been made.
        if answer.status != _CONFLICT:
            raise _refused(f"write the cordons of node {node}", answer)
    raise FailedError(f"cannot write the cordons of node {node}: others keep changing them; try again")


async def wait_confirmed(api: ApiClient, written: NodeCordons, seconds: float) -> None:
    """Wait until a scheduler confirms: from then on no bind against the cordons can come. FailedError if none does."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                now = await read_cordons(api, written.node)
                # A later one than its own is that of an earlier GPUNode of its name, by a write that came late.
                if now is None or written.generation <= now.confirmed <= now.generation:
                    return
                await asyncio.sleep(POLL)
    except TimeoutError:
        raise FailedError(
            f"cannot tell whether the scheduler obeys the cordons of node {written.node} yet: they are written, and it "
            f"has not confirmed them within {seconds:g} s; see whether it runs (example: gpu-scheduler status)"
        ) from None


def _entry(cordon: Cordon) -> dict[str, Any]:
    return {
        "device": cordon.device,
        **({} if cordon.index is None else {"index": cordon.index}),
        "reason": cordon.reason,
        "by": cordon.by,
        "since": cordon.since,
        **({"until": cordon.until} if cordon.until else {}),
    }


def _refused(what: str, answer: ApiResponse) -> FailedError:
    message = status_message(answer)
    if answer.status == _NOT_FOUND:
        remedy = f"this cluster knows no {names.NODE_KIND}: install the kind (example: make up ARGS='--tags crds')"
    else:
        remedy = "see what you may do (example: kubectl auth can-i cordon gpunodes.agentaflow.io)"
    return FailedError(f"cannot {what}: HTTP {answer.status}: {message}; {remedy}")
