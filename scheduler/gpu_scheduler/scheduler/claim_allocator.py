"""Allocates ResourceClaims to the devices of a placement, before the pod is bound; withdraws what no pod needs.

LAW: every write asks the fence. A claim of ours is used only if it has the content that this scheduler writes, one of
a user only if it is the one that was decided on. An allocation of other pods is never changed. What the writes need,
they read from the API server: a claim may be older than this process.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from gpu_scheduler import names
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.text import number_of, sentence
from gpu_scheduler.kube.http.client import JSON, MERGE, NoResponseError, NotSentError, segment, status_message
from gpu_scheduler.kube.objects.decoding import UNREADABLE
from gpu_scheduler.kube.objects.meta import ReadStruct
from gpu_scheduler.kube.resource import EventHandler
from gpu_scheduler.scheduler.ports import ClaimAllocator, Failed, NotSent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpu_scheduler.core.decision import Bind, ClaimAllocation
    from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim
    from gpu_scheduler.core.refs import PodRef
    from gpu_scheduler.kube.http.client import ApiClient, ApiResponse
    from gpu_scheduler.kube.leader_election import Fence
    from gpu_scheduler.kube.objects.device_classes import DeviceClass

Body: TypeAlias = "dict[str, Any]"

API: Final = "resource.k8s.io/v1"
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""Keeps a claim that is allocated. kube-controller-manager removes it when it clears the allocation."""
TRIES: Final = 3
"""How often a claim is read again after another pod of its workload has changed it in between."""
_CHANGED_EACH_TIME: Final = "others change it all the time"
MANAGER: Final = {"fieldManager": names.SCHEDULER_NAME}
"""By this name of an allocation's author a policy knows which of the allocations of users' claims are ours."""
MOST_UNANSWERED: Final = 1024
"""How many withdrawals without an answer are remembered."""
FORBIDDEN, NOT_FOUND, CONFLICT = 403, 404, 409


class _Meta(ReadStruct):
    uid: str
    resource_version: str
    deletion_timestamp: str | None = None
    finalizers: list[str] | None = None
    owner_references: list[dict[str, Any]] | None = None


class _Allocation(ReadStruct):
    devices: dict[str, Any] | None = None


class _Status(ReadStruct):
    allocation: _Allocation | None = None
    reserved_for: list[dict[str, Any]] | None = None


class _Claim(ReadStruct):
    """A claim as it is needed for the next write."""

    metadata: _Meta
    spec: dict[str, Any]
    status: _Status | None = None

    @property
    def results(self) -> list[Body] | None:
        """The allocated devices; None if there is no allocation."""
        allocation = None if self.status is None else self.status.allocation
        return None if allocation is None else (allocation.devices or {}).get("results", [])

    @property
    def consumers(self) -> list[Body]:
        """What it is reserved for."""
        return [] if self.status is None else self.status.reserved_for or []


_claims = msgspec.json.Decoder(_Claim)


class _UnfinishedError(Exception):
    """A claim could not be allocated now."""

    def __init__(self, result: Failed | NotSent) -> None:
        super().__init__(str(result))
        self.result = result


@immutable
class _Wanted:
    """What a claim must have."""

    path: str
    body: Body
    """The claim as it is created, if it is ours."""
    owner: Body
    devices: Body
    """What it is allocated."""
    node: str
    consumer: Body
    name: str
    uid: str = ""
    """The uid of a claim that its user made; empty for ours."""

    @property
    def allocation(self) -> Body:
        """The allocation, for one node alone."""
        field = {"key": "metadata.name", "operator": "In", "values": [self.node]}
        return {
            "devices": self.devices,
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        }


class DeviceClasses(EventHandler["DeviceClass"]):
    """The DeviceClasses of the cluster, by name."""

    def __init__(self) -> None:
        """Start empty."""
        self._known: dict[str, DeviceClass] = {}

    def applied(self, value: DeviceClass) -> None:
        """Store a class."""
        self._known[value.name] = value

    def forgotten(self, value: DeviceClass) -> None:
        """Remove a class."""
        self._known.pop(value.name, None)

    def may_give_gpus(self, name: str) -> bool:
        """Whether the devices of a class may be GPUs. A class that is not known may be any."""
        return name not in self._known or self._known[name].may_give_gpus

    def config(self, requests: Iterable[Body]) -> list[Body]:
        """Return the configuration that these requests of a claim get from their classes."""
        by_class = [(each["exactly"]["deviceClassName"], each["name"]) for each in requests]
        known = [(self._known[name], request) for name, request in by_class if name in self._known]
        return [entry for found, request in known for entry in found.allocated([request])]


class ApiClaimAllocator(ClaimAllocator):
    """Writes claims, but only while the fence lets this replica write."""

    def __init__(self, api: ApiClient, fence: Fence, classes: DeviceClasses) -> None:
        """Create the allocator; it sends nothing before `allocate`."""
        self._api = api
        self._fence = fence
        self._classes = classes
        self._unanswered: dict[str, str] = {}
        """By path of a claim: at which version it was to be withdrawn. Without an answer, this may still happen."""

    def may_give_gpus(self, device_class: str) -> bool:
        """Whether a claim may be allocated GPUs from this class, see ClaimAllocator."""
        return self._classes.may_give_gpus(device_class)

    async def allocate(self, bind: Bind) -> dict[str, str] | Failed | NotSent:
        """Allocate one claim after the other, see ClaimAllocator: for a new claim one POST and one PATCH."""
        try:
            return {claim.name: await self._allocate(_wanted(bind, claim, self._classes)) for claim in bind.claims}
        except _UnfinishedError as error:
            return error.result

    async def release(self, pod: PodRef, claims: Sequence[AllocatedClaim]) -> str | None:
        """Withdraw from one claim after the other, see ClaimAllocator: for each one GET and one PATCH."""
        try:
            for claim in claims:
                await self._release(_path(claim.namespace, claim.name), pod)
        except _UnfinishedError as error:
            return str(error)
        return None

    async def _allocate(self, wanted: _Wanted) -> str:
        claim = None if wanted.uid else await self._create(wanted)
        for _ in range(TRIES):
            claim = claim or await self._read(wanted.path) or await self._create(wanted)
            version = None if claim is None else await self._reserve(claim, wanted)
            if version is not None:
                return version
            claim = None
        raise _failed(f"{wanted.name}: {_CHANGED_EACH_TIME}")

    async def _create(self, wanted: _Wanted) -> _Claim | None:
        """Create the claim and return it. Return None if there is one with its name. Only its user makes a user's."""
        if wanted.uid:
            raise _failed(f"{wanted.name}: it is gone")
        answer = await self._send("POST", wanted.path.rpartition("/")[0], wanted.body)
        return None if answer.status == CONFLICT else _decoded(answer)

    async def _reserve(self, claim: _Claim, wanted: _Wanted) -> str | None:
        """Reserve the claim for the pod. Return its version then, or None if it has to be read again."""
        current = claim.results is not None and _same(claim.results, wanted.devices["results"])
        others = [each for each in claim.consumers if each != wanted.consumer]
        _check(claim, wanted, others, current=current)
        version = claim.metadata.resource_version
        reserved = len(others) < len(claim.consumers)
        if current and reserved and self._unanswered.get(wanted.path) != version:
            return version
        if claim.results is not None and (reserved or not current):
            # It has other devices, which no other pod has; or an earlier withdrawal may still come. That has no effect
            # after this one: the claim has another version then.
            await self._withdraw(wanted.path, version, others)
            return None
        meta = _missing_meta(claim, wanted)
        if meta:
            answer = await self._patch(wanted.path, version, {"metadata": meta})
            if answer is None:
                return None
            version = answer.metadata.resource_version
        status: Body = {"reservedFor": [*others, wanted.consumer]}
        if not current:
            status["allocation"] = wanted.allocation
        answer = await self._patch(f"{wanted.path}/status", version, {"status": status})
        return None if answer is None else answer.metadata.resource_version

    async def _release(self, path: str, pod: PodRef) -> None:
        for _ in range(TRIES):
            claim = await self._read(path)
            if claim is None or all(each.get("uid") != pod.uid for each in claim.consumers):
                return
            others = [each for each in claim.consumers if each.get("uid") != pod.uid]
            version = claim.metadata.resource_version
            try:
                if await self._withdraw(path, version, others):
                    return
            except _UnfinishedError:
                if len(self._unanswered) >= MOST_UNANSWERED:
                    del self._unanswered[next(iter(self._unanswered))]
                self._unanswered[path] = version
                raise
        raise _failed(f"{path.rpartition('/')[2]}: {_CHANGED_EACH_TIME}")

    async def _withdraw(self, path: str, version: str, others: list[Body]) -> bool:
        """Reserve the claim for `others` alone. Without any, clear its allocation. False if it has another version."""
        status: Body = {"reservedFor": others} if others else {"reservedFor": None, "allocation": None}
        return await self._patch(f"{path}/status", version, {"status": status}) is not None

    async def _read(self, path: str) -> _Claim | None:
        """Return the claim, or None if there is none."""
        try:
            answer = await self._api.call("GET", path)
        except NoResponseError as error:
            raise _failed(str(error)) from error
        return None if answer.status == NOT_FOUND else _decoded(answer)

    async def _patch(self, path: str, version: str, body: Body) -> _Claim | None:
        """Change the claim if it still has this version, and return it. Return None if it has another."""
        meta = {**body.get("metadata", {}), "resourceVersion": version}
        answer = await self._send("PATCH", path, {**body, "metadata": meta})
        return None if answer.status in {CONFLICT, NOT_FOUND} else _decoded(answer)

    async def _send(self, method: Literal["POST", "PATCH"], path: str, body: Body) -> ApiResponse:
        kind = MERGE if method == "PATCH" else JSON
        data, guard = msgspec.json.encode(body), self._fence.may_write
        try:
            return await self._api.call(method, path, query=MANAGER, body=data, content_type=kind, guard=guard)
        except NotSentError as error:
            raise _UnfinishedError(NotSent("this replica's Lease no longer allows a write")) from error
        except NoResponseError as error:
            raise _failed(str(error)) from error


def _check(claim: _Claim, wanted: _Wanted, others: list[Body], *, current: bool) -> None:
    """Check that the claim may be given to the pod. `current`: it has the wanted devices; `others` have it too."""
    name = wanted.name
    if claim.metadata.deletion_timestamp:
        raise _failed(f"{name}: it is being deleted")
    if wanted.uid and claim.metadata.uid != wanted.uid:
        raise _failed(f"{name}: it was made anew")
    if not wanted.uid and claim.spec != wanted.body["spec"]:
        raise _failed(f"{name}: it has another spec than this scheduler writes; delete it")
    if others and wanted.uid:
        raise _failed(f"{name}: it is allocated for {number_of(len(others), 'other pod')}", Reason.GPU_HELD)
    if others and claim.results is not None and not current:
        raise _failed(f"{name}: it is allocated other GPUs for {number_of(len(others), 'pod')}", Reason.GPU_HELD)


def _missing_meta(claim: _Claim, wanted: _Wanted) -> Body:
    """Return the owners and finalizers that a claim must get before its allocation; empty if it has them.

    A user's claim belongs to whom its author says.
    """
    owners, finalizers = claim.metadata.owner_references or [], claim.metadata.finalizers or []
    protected = [*(each for each in finalizers if each != FINALIZER), FINALIZER]
    if wanted.uid:
        return {} if FINALIZER in finalizers else {"finalizers": protected}
    if FINALIZER in finalizers and any(each["uid"] == wanted.owner["uid"] for each in owners):
        return {}
    kept = [each for each in owners if each["uid"] != wanted.owner["uid"]]
    return {"finalizers": protected, "ownerReferences": [*kept, wanted.owner]}


def _wanted(bind: Bind, claim: ClaimAllocation, classes: DeviceClasses) -> _Wanted:
    """Return what a claim must have: a request for each driver, with as many devices as it is allocated.

    A claim of a user has its own request.
    """
    requests, results = [], []
    of_user = claim.of_user and claim.of_user.request
    by_driver = groupby(sorted(claim.devices, key=lambda device: device.driver), key=lambda device: device.driver)
    for number, (driver, devices) in enumerate(by_driver):
        request = of_user.name if of_user else f"gpus-{number}"
        found = [{"request": request, "driver": driver, "pool": each.pool, "device": each.device} for each in devices]
        device_class = of_user.device_class if of_user else driver
        exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": len(found)}
        requests.append({"name": request, "exactly": exactly})
        results += found
    config = classes.config(requests)
    pod = bind.pod
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
    if claim.owner is not None:
        of_all = claim.owner
        owner = {"apiVersion": of_all.api_version, "kind": of_all.kind, "name": of_all.name, "uid": of_all.uid}
    meta = {"name": claim.name, "finalizers": [FINALIZER], "ownerReferences": [owner]}
    return _Wanted(
        path=_path(pod.namespace, claim.name),
        body={
            "apiVersion": API,
            "kind": "ResourceClaim",
            "metadata": meta,
            "spec": {"devices": {"requests": requests}},
        },
        owner=owner,
        devices={"results": results, **({"config": config} if config else {})},
        node=bind.placement.node,
        consumer={"resource": "pods", "name": pod.name, "uid": pod.uid},
        name=claim.name,
        uid=claim.of_user.uid if claim.of_user else "",
    )


def _same(results: list[Body], wanted: list[Body]) -> bool:
    """Whether an allocation has the wanted devices; the API server may have added fields to each."""
    found = [{key: each.get(key) for key in wanted[0]} for each in results] if wanted else results
    return sorted(found, key=str) == sorted(wanted, key=str)


def _decoded(answer: ApiResponse) -> _Claim:
    if not answer.ok:
        raise _refused(answer)
    try:
        return _claims.decode(answer.body)
    except UNREADABLE as error:
        raise _failed(f"the answer cannot be read: {error}") from error


def _refused(answer: ApiResponse) -> _UnfinishedError:
    message = status_message(answer)
    # The admission plugin for quotas has no reason of its own: its messages have these words.
    quota = answer.status == FORBIDDEN and "exceeded quota" in message
    reason = Reason.QUOTA_EXCEEDED if quota else Reason.BIND_FAILED
    return _failed(f"HTTP {answer.status}: {message}", reason, answer.retry_after or 0.0)


def _failed(why: str, reason: Reason = Reason.BIND_FAILED, retry_after: float = 0.0) -> _UnfinishedError:
    message = sentence(reason, f"cannot allocate the pod's ResourceClaim: {why}", "trying again by itself")
    return _UnfinishedError(Failed(message, retry_after, reason))


def _path(namespace: str, name: str) -> str:
    return f"/apis/{API}/namespaces/{segment(namespace)}/resourceclaims/{segment(name)}"
