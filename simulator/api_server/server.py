"""The API server in memory: answers lists, GETs, Bindings, status patches, events, and requests for Leases and claims.

It follows Kubernetes in what a scheduler sees: uid preconditions, resourceVersion checks, and which pods can be bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final

import msgspec

from gpu_scheduler.kube.http.client import ApiResponse
from simulator.api_server.store import Collection, Object, Selector, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PAGE: Final = 10
"""Objects of a page: a server may give fewer than were asked for."""
NAMESPACE: Final = "gpu-scheduler-system"
MONITORS: Final = "gpu-scheduler-monitor"

_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/"
_STORAGE: Final = "/apis/storage.k8s.io/v1/storageclasses"
_DEVICES: Final = "/apis/resource.k8s.io/v1/"
_COLLECTIONS: Final = {
    "/api/v1/pods": "pods",
    "/api/v1/nodes": "nodes",
    "/api/v1/persistentvolumeclaims": "claims",
    "/api/v1/persistentvolumes": "volumes",
    _STORAGE: "classes",
    f"/api/v1/namespaces/{NAMESPACE}/configmaps": "settings",
    f"{_LEASES}{MONITORS}/leases": "monitors",
    **{f"{_DEVICES}{name}": name for name in ("resourceslices", "deviceclasses", "resourceclaims")},
}
_POD_PARTS: Final = 7


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request, and the replica that sends it."""

    who: str
    verb: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(slots=True)
class Hooks:
    """Callbacks for what happens at the server, called at once."""

    bound: list[Callable[[Object, Object], None]] = field(default_factory=list)
    """Get the pod and the Binding of each bind that succeeds."""
    conditions: list[Callable[[Object, str], None]] = field(default_factory=list)
    """Get the pod and the message of each condition that is written."""
    asked: list[Callable[[ApiRequest, int], None]] = field(default_factory=list)
    """Get every request and the status of its answer."""


class Server:
    """All collections, and the requests to them."""

    def __init__(self) -> None:
        """Begin without objects."""
        versions = count(1)
        self.collections = {name: Collection(versions) for name in (*_COLLECTIONS.values(), "leases")}
        self.pods = self.collections["pods"]
        self.nodes = self.collections["nodes"]
        self.leases = self.collections["leases"]
        self.resource_claims = self.collections["resourceclaims"]
        self.hooks = Hooks()
        self.answering = False
        """Whether a request makes the changes that happen now."""
        self._pages: dict[str, tuple[int, list[bytes]]] = {}
        self._lists = count(1)
        self._uids = count(1)

    def answer(self, request: ApiRequest) -> ApiResponse:
        """Execute the request and give the answer."""
        self.answering = True
        try:
            answer = self._answer(request)
        finally:
            self.answering = False
        for hook in self.hooks.asked:
            hook(request, answer.status)
        return answer

    def collection(self, path: str) -> Collection:
        """Return the collection that a path names."""
        return self.collections[_COLLECTIONS[path]]

    def _answer(self, request: ApiRequest) -> ApiResponse:
        if request.path in _COLLECTIONS:
            return self._list(request)
        if request.path.startswith(_LEASES):
            return self._lease(request)
        if request.path.startswith(_DEVICES):
            return self._resource_claim(request)
        if request.path.endswith("/events"):
            return ApiResponse(201, b"{}")
        return self._pod(request)

    def _pod(self, request: ApiRequest) -> ApiResponse:
        parts = request.path.split("/")
        entry = self.pods.entries.get(f"{parts[4]}/{parts[6]}") if len(parts) >= _POD_PARTS else None
        if entry is None:
            return refusal(404, f'pods "{parts[-1]}" not found')
        if request.verb == "GET":
            return ApiResponse(200, entry.raw)
        body = msgspec.json.decode(request.body or b"{}")
        if body["metadata"].get("uid", entry.object["metadata"]["uid"]) != entry.object["metadata"]["uid"]:
            return refusal(409, "the UID in the precondition does not match the UID in record")
        return self._bind(entry.object, body) if parts[-1] == "binding" else self._write_condition(entry.object, body)

    def _bind(self, pod: Object, binding: Object) -> ApiResponse:
        meta, spec = pod["metadata"], pod["spec"]
        if meta.get("deletionTimestamp"):
            return refusal(409, f"pod {meta['name']} is being deleted, cannot be assigned to a host")
        if spec.get("nodeName"):
            return refusal(409, f"pod {meta['name']} is already assigned to node {spec['nodeName']}")
        if pod["status"]["phase"] in {"Succeeded", "Failed"}:
            return refusal(409, f"pod {meta['name']} has ended")
        pod = _copied(pod)
        pod["spec"]["nodeName"] = binding["target"]["name"]
        pod["metadata"]["annotations"].update(binding["metadata"].get("annotations", {}))
        pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
        self.pods.put(key_of(pod), pod)
        for hook in self.hooks.bound:
            hook(pod, binding)
        return ApiResponse(201, b"{}")

    def _write_condition(self, pod: Object, body: Object) -> ApiResponse:
        pod = _copied(pod)
        given = body["status"]["conditions"][0]
        others = [each for each in pod["status"].get("conditions", ()) if each["type"] != given["type"]]
        pod["status"]["conditions"] = [*others, given]
        self.pods.put(key_of(pod), pod)
        for hook in self.hooks.conditions:
            hook(pod, given["message"])
        return ApiResponse(200, self.pods.entries[key_of(pod)].raw)

    def _list(self, request: ApiRequest) -> ApiResponse:
        collection, token = self.collection(request.path), request.query.get("continue", "")
        if token:
            if token not in self._pages:
                return refusal(410, "the provided continue parameter is too old")
            version, items = self._pages.pop(token)
        else:
            selector = Selector(request.query.get("fieldSelector", ""))
            version = max(each.version for each in self.collections.values())
            items = [entry.raw for entry in collection.entries.values() if selector.takes(entry.fields)]
        page, rest = items[:PAGE], items[PAGE:]
        following = ""
        if rest:
            following = f"{next(self._lists)}"
            self._pages[following] = (version, rest)
        meta = b'{"metadata":{"resourceVersion":"%d","continue":"%s"},"items":[' % (version, following.encode())
        return ApiResponse(200, meta + b",".join(page) + b"]}")

    def _lease(self, request: ApiRequest) -> ApiResponse:
        body = msgspec.json.decode(request.body) if request.body else {}
        key = f"{NAMESPACE}/{body['metadata']['name'] if request.verb == 'POST' else request.path.rpartition('/')[2]}"
        entry = self.leases.entries.get(key)
        if request.verb == "GET":
            return refusal(404, "not found") if entry is None else ApiResponse(200, entry.raw)
        if request.verb == "POST" and entry is not None:
            return refusal(409, "already exists")
        if request.verb == "PUT" and (
            entry is None or entry.object["metadata"]["resourceVersion"] != body["metadata"].get("resourceVersion")
        ):
            return refusal(409, "the object has been modified")
        self.leases.put(key, body)
        return ApiResponse(200, self.leases.entries[key].raw)

    def _resource_claim(self, request: ApiRequest) -> ApiResponse:
        """Create, give or patch one ResourceClaim. A patch needs the version that it names."""
        namespace, _, *rest = request.path.split("/")[5:]
        body = msgspec.json.decode(request.body or b"{}")
        key = f"{namespace}/{rest[0] if rest else body['metadata']['name']}"
        entry = self.resource_claims.entries.get(key)
        if request.verb == "POST":
            if entry is not None:
                return refusal(409, "already exists")
            made = {
                **body,
                "metadata": {**body["metadata"], "namespace": namespace, "uid": f"claim-{next(self._uids)}"},
            }
        elif entry is None:
            return refusal(404, "not found")
        elif request.verb == "GET":
            return ApiResponse(200, entry.raw)
        elif entry.object["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            return refusal(409, "the object has been modified")
        elif rest[-1] == "status":
            made = {**entry.object, "status": _merged(entry.object.get("status", {}), body["status"])}
            if _is_invalid(entry.object, made["status"]):
                return refusal(422, "an allocation is changed, or a reservation is not allowed")
        else:
            made = {**entry.object, "metadata": {**entry.object["metadata"], **body["metadata"]}}
        self.resource_claims.put(key, {**made, "metadata": dict(made["metadata"])})
        return ApiResponse(200, self.resource_claims.entries[key].raw)


def refusal(code: int, message: str) -> ApiResponse:
    """Return an error, with a Status object."""
    return ApiResponse(code, msgspec.json.encode({"kind": "Status", "code": code, "message": message}))


def _copied(pod: Object) -> Object:
    """Copy a pod, so that the metadata, spec and status of the copy can be changed without changing the original."""
    meta = {**pod["metadata"], "annotations": dict(pod["metadata"].get("annotations") or {})}
    return {**pod, "metadata": meta, "spec": dict(pod["spec"]), "status": dict(pod["status"])}


def _merged(before: Object, patch: Object) -> Object:
    """Apply a merge patch whose fields replace those before; None removes one."""
    return {key: value for key, value in {**before, **patch}.items() if value is not None}


def _is_invalid(claim: Object, status: Object) -> bool:
    """Whether a claim may not get this status: an allocation is only cleared, and what is deleted is not reserved."""
    before, allocation = claim.get("status", {}), status.get("allocation")
    added = [each for each in status.get("reservedFor", ()) if each not in before.get("reservedFor", ())]
    changed = allocation is not None and before.get("allocation", allocation) != allocation
    unallocated = allocation is None and "reservedFor" in status
    return changed or unallocated or bool(added and "deletionTimestamp" in claim["metadata"])
