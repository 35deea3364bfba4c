"""ResourceClaims that are allocated before a bind: what is sent, and what each answer of the API server means."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpu_scheduler.core.decision import BY_MAP, Bind, ClaimAllocation
from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim
from gpu_scheduler.core.nodes.device_pools import DeviceId
from gpu_scheduler.core.pods.device_selector import DeviceSelector
from gpu_scheduler.core.pods.own_claim import ClaimRequest
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import Owner, PodRef
from gpu_scheduler.kube.objects.device_classes import DeviceClass
from gpu_scheduler.scheduler import claim_allocator
from gpu_scheduler.scheduler.claim_allocator import FINALIZER, ApiClaimAllocator, DeviceClasses
from gpu_scheduler.scheduler.ports import Failed, NotSent
from tests.messages import says, text_of
from unit_tests.fakes import Gate
from unit_tests.kube.server import FakeServer, Reply, connected
from unit_tests.scheduler.test_binder import ClosingGate

if TYPE_CHECKING:
    from gpu_scheduler.kube.http.client import ApiClient
    from tests.objects import Object

BASE: Final = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
CLAIM: Final = f"{BASE}/own"
STATUS: Final = f"{CLAIM}/status"
DRIVER: Final = "gpu.nvidia.com"
POD = PodRef("default", "train-0", "uid-1")
SET = Owner("StatefulSet", "train", "uid-of-set", "apps/v1")
DEVICES = tuple(DeviceId(DRIVER, "node1", f"gpu-{index}") for index in (3, 1))
BIND = Bind(
    POD, Placement("node1", ("GPU-3", "GPU-1"), 0), "", BY_MAP, "", claims=(ClaimAllocation("own", DEVICES, SET),)
)
OWNER = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "train", "uid": "uid-of-set"}
MINE = {"resource": "pods", "name": "train-0", "uid": "uid-1"}
THEIRS = {"resource": "pods", "name": "train-1", "uid": "uid-2"}
EXACTLY = {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 2}
SPEC = {"devices": {"requests": [{"name": "gpus-0", "exactly": EXACTLY}]}}
RESULTS = [{"request": "gpus-0", "driver": DRIVER, "pool": "node1", "device": device} for device in ("gpu-3", "gpu-1")]
NODE = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node1"]}]}
ALLOCATION = {"devices": {"results": RESULTS}, "nodeSelector": {"nodeSelectorTerms": [NODE]}}
QUOTA = 'resourceclaims "own" is forbidden: exceeded quota: few, requested: count/resourceclaims=1'
CUT = Reply(0)
CHANGED = Reply(409, {"message": "the object has been modified"})


def found(version: str = "7", status: Object | None = None, **more: Any) -> Reply:
    """Return the claim as the API server has it: by default as this scheduler creates it."""
    spec = more.pop("spec", SPEC)
    meta = {"uid": "uid-of-own", "finalizers": [FINALIZER], "ownerReferences": [OWNER], **more}
    return Reply(body={"metadata": {"resourceVersion": version, **meta}, "spec": spec, "status": status or {}})


def allocated(*consumers: Object, results: list[Object] = RESULTS, **more: Any) -> Reply:
    """Return the claim with an allocation that is reserved for these pods."""
    return found(status={"allocation": {"devices": {"results": results}}, "reservedFor": list(consumers)}, **more)


def put(status: Object, version: str = "7") -> tuple[str, str, Object]:
    return "PATCH", STATUS, {"status": status, "metadata": {"resourceVersion": version}}


def protect(*finalizers: str, **more: Any) -> tuple[str, str, Object]:
    """Return the PATCH that adds ours to these finalizers."""
    return "PATCH", CLAIM, {"metadata": {"finalizers": [*finalizers, FINALIZER], **more, "resourceVersion": "7"}}


CREATE = (
    "POST",
    BASE,
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "own", "finalizers": [FINALIZER], "ownerReferences": [OWNER]},
        "spec": SPEC,
    },
)
GET = "GET", CLAIM, ""
ALLOCATE = put({"reservedFor": [MINE], "allocation": ALLOCATION})


def failed(why: str, reason: Reason = Reason.BIND_FAILED, retry_after: float = 0.0) -> Failed:
    return Failed(text_of("a ResourceClaim is not allocated", reason=reason, why=why), retry_after, reason)


@dataclass
class Case:
    """What the API server answers, what is sent, and the result. A path without an answer is not asked."""

    result: Failed | None = None
    sent: list[tuple[str, str, Object | str]] = field(default_factory=list)
    post: tuple[Reply, ...] = (Reply(409),)
    get: tuple[Reply, ...] = ()
    meta: tuple[Reply, ...] = ()
    status: tuple[Reply, ...] = ()

    def script(self, server: FakeServer) -> None:
        for method, path, replies in (
            ("POST", BASE, self.post),
            ("GET", CLAIM, self.get),
            ("PATCH", CLAIM, self.meta),
            ("PATCH", STATUS, self.status),
        ):
            if replies:
                server.on(method, path, *replies)


def last_version(case: Case) -> str:
    body: Any = (*case.post, *case.get, *case.status)[-1].body
    return str(body["metadata"]["resourceVersion"])


def allocator_of(api: ApiClient, gate: Gate | None = None) -> ApiClaimAllocator:
    return ApiClaimAllocator(api, gate or Gate(), DeviceClasses())


def sent(server: FakeServer) -> list[tuple[str, str, Any]]:
    return [(each.method, each.path, each.body) for each in server.requests]


OTHER = [{**RESULTS[0], "device": "gpu-0"}]
CASES = {
    "a new claim takes two writes": Case(None, [CREATE, ALLOCATE], post=(found(),), status=(found("8"),)),
    "a claim that is reserved for the pod takes no more": Case(None, [CREATE, GET], get=(allocated(MINE),)),
    "fields that the API server adds to a result change nothing": Case(
        None,
        [CREATE, GET],
        get=(allocated(MINE, results=[{**each, "shareID": "", "tolerations": []} for each in RESULTS[::-1]]),),
    ),
    "a claim of another pod of the workload is shared": Case(
        None, [CREATE, GET, put({"reservedFor": [THEIRS, MINE]})], get=(allocated(THEIRS),), status=(found("8"),)
    ),
    "a claim that its controller has released is protected again": Case(
        None,
        [CREATE, GET, protect(ownerReferences=[OWNER]), put({"reservedFor": [MINE], "allocation": ALLOCATION}, "8")],
        get=(found(finalizers=[]),),
        meta=(found("8"),),
        status=(found("9"),),
    ),
    "owners and finalizers of others stay": Case(
        None,
        [
            CREATE,
            GET,
            protect("a.example/b", ownerReferences=[{"uid": "other"}, OWNER]),
            put({"reservedFor": [MINE], "allocation": ALLOCATION}, "8"),
        ],
        get=(found(finalizers=["a.example/b"], ownerReferences=[{"uid": "other"}]),),
        meta=(found("8"),),
        status=(found("9"),),
    ),
    "other GPUs of nobody are given back first": Case(
        None,
        [CREATE, GET, put({"allocation": None, "reservedFor": None}), GET, ALLOCATE],
        get=(allocated(results=OTHER), found()),
        status=(found("8"),),
    ),
    "other GPUs of other pods stay theirs": Case(
        failed("own: it is allocated other GPUs for 1 pod", Reason.GPU_HELD),
        [CREATE, GET],
        get=(allocated(THEIRS, results=OTHER),),
    ),
    "a claim that is being deleted": Case(
        failed("own: it is being deleted"), [CREATE, GET], get=(found(deletionTimestamp="2026-11-26T00:00:00Z"),)
    ),
    "a claim that a user wrote": Case(
        failed("own: it has another spec than this scheduler writes; delete it"),
        [CREATE, GET],
        get=(found(spec={"devices": {"requests": []}}),),
    ),
    "another pod of the workload was faster once": Case(
        None,
        [CREATE, ALLOCATE, GET, put({"reservedFor": [THEIRS, MINE]})],
        post=(found(),),
        get=(allocated(THEIRS),),
        status=(CHANGED, found("9")),
    ),
    "others are faster all the time": Case(
        failed("own: others change it all the time"),
        [CREATE, ALLOCATE, GET, ALLOCATE, GET, ALLOCATE],
        post=(found(),),
        get=(found(),),
        status=(CHANGED,),
    ),
    "a claim that is gone in between is created anew": Case(
        None,
        [CREATE, ALLOCATE, GET, CREATE, put({"reservedFor": [MINE], "allocation": ALLOCATION}, "1")],
        post=(found(), found("1")),
        get=(Reply(404),),
        status=(Reply(404), found("2")),
    ),
    "a claim that the quota forbids": Case(
        failed(f"HTTP 403: {QUOTA}", Reason.QUOTA_EXCEEDED), [CREATE], post=(Reply(403, {"message": QUOTA}),)
    ),
    "a missing right": Case(
        failed("HTTP 403: no resourceclaims/binding"),
        [CREATE, ALLOCATE],
        post=(found(),),
        status=(Reply(403, {"message": "no resourceclaims/binding"}),),
    ),
    "an API server that asks for patience": Case(
        failed("HTTP 429: slow down", retry_after=7.0),
        [CREATE],
        post=(Reply(429, {"message": "slow down"}, {"Retry-After": "7"}),),
    ),
}


@pytest.mark.promise("isolate-3")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_claims_are_allocated_with_as_few_writes_as_possible(case: Case) -> None:
    """A claim is used only if it is as this scheduler writes it, and what other pods have stays theirs."""
    async with connected() as (server, api):
        case.script(server)
        result = await allocator_of(api).allocate(BIND)

        assert sent(server) == case.sent
        assert result == (case.result or {"own": last_version(case)})


LOST = {
    "of the creation": Case(post=(CUT,)),
    "of the reading": Case(get=(CUT,)),
    "of the protection": Case(get=(found(finalizers=[]),), meta=(CUT,)),
    "of the allocation": Case(post=(found(),), status=(CUT,)),
}


@pytest.mark.parametrize("case", LOST.values(), ids=LOST)
async def test_a_lost_answer_leaves_the_pod_unbound(case: Case) -> None:
    """Whether the claim is allocated is unknown. The pod is tried again, and finds the claim."""
    async with connected() as (server, api):
        case.script(server)
        result = await allocator_of(api).allocate(BIND)

    assert isinstance(result, Failed)
    assert result.reason is Reason.BIND_FAILED
    says(result.message, "BindFailed")
    assert result.message.endswith(f"; {text_of('it is tried again')}")


UNREADABLE = {"no JSON": "<html>done</html>", "no claim": {"kind": "Status"}}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE)
async def test_an_answer_that_cannot_be_read_is_a_sentence(body: Object | str) -> None:
    """As a proxy may send it."""
    async with connected() as (server, api):
        server.on("POST", BASE, Reply(201, body))
        result = await allocator_of(api).allocate(BIND)

    assert isinstance(result, Failed)
    assert "the answer cannot be read" in result.message


async def test_a_claim_of_one_pod_is_owned_by_it() -> None:
    """It is deleted with the pod."""
    async with connected() as (server, api):
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "train-0", "uid": "uid-1"}
        server.on("POST", BASE, found(ownerReferences=[owner]))
        server.on("PATCH", STATUS, found("8"))
        alone = tuple(replace(claim, owner=None) for claim in BIND.claims)
        assert await allocator_of(api).allocate(replace(BIND, claims=alone)) == {"own": "8"}

        assert [each.body["metadata"]["ownerReferences"] for each in server.asked("POST")] == [[owner]]


OWN = AllocatedClaim("default", "own", "uid-of-own", request=ClaimRequest("mine", DRIVER, 2, DeviceSelector(DRIVER)))
OWN_BIND = replace(BIND, claims=(ClaimAllocation("own", DEVICES, of_user=OWN),))
OWN_RESULTS = [{**each, "request": "mine"} for each in RESULTS]
OWN_ALLOCATION = {**ALLOCATION, "devices": {"results": OWN_RESULTS}}
ALLOCATE_OWN = put({"reservedFor": [MINE], "allocation": OWN_ALLOCATION})


def theirs(**more: Any) -> Reply:
    return found(spec={"devices": {"requests": []}}, **{"ownerReferences": None, **more})


OWN_CASES = {
    "a new claim takes two writes": Case(
        None,
        [GET, protect(), put({"reservedFor": [MINE], "allocation": OWN_ALLOCATION}, "8")],
        get=(theirs(finalizers=None),),
        meta=(theirs(version="8"),),
        status=(theirs(),),
    ),
    "a claim with a finalizer takes one": Case(None, [GET, ALLOCATE_OWN], get=(theirs(),), status=(theirs(),)),
    "a claim that is allocated for the pod takes none": Case(None, [GET], get=(allocated(MINE, results=OWN_RESULTS),)),
    "other GPUs of nobody are given back first": Case(
        None,
        [GET, put({"allocation": None, "reservedFor": None}), GET, ALLOCATE_OWN],
        get=(allocated(results=OTHER), theirs()),
        status=(theirs(),),
    ),
    "the same GPUs for another pod": Case(
        failed("own: it is allocated for 1 other pod", Reason.GPU_HELD),
        [GET],
        get=(allocated(THEIRS, results=OWN_RESULTS),),
    ),
    "a claim that is gone": Case(failed("own: it is gone"), [GET], get=(Reply(404),)),
    "a claim of the same name": Case(failed("own: it was made anew"), [GET], get=(theirs(uid="other"),)),
    "a claim that is being deleted": Case(
        failed("own: it is being deleted"), [GET], get=(theirs(deletionTimestamp="2026-11-26T00:00:00Z"),)
    ),
    "others change it all the time": Case(
        failed("own: others change it all the time"), [GET, ALLOCATE_OWN] * 3, get=(theirs(),), status=(CHANGED,)
    ),
}


@pytest.mark.promise("isolate-15")
@pytest.mark.parametrize("case", OWN_CASES.values(), ids=OWN_CASES)
async def test_of_a_users_claim_only_allocation_pods_and_finalizer_are_written(case: Case) -> None:
    """It is never created, and its owners stay. A policy knows our allocations by their field manager."""
    async with connected() as (server, api):
        case.script(server)
        result = await allocator_of(api).allocate(OWN_BIND)

        assert sent(server) == case.sent
        assert result == (case.result or {"own": last_version(case)})
        assert all(each.query == {"fieldManager": "gpu-scheduler"} for each in server.asked("PATCH"))


FENCED = {
    "a claim of ours": (BIND, CASES["a claim that its controller has released is protected again"], {0: 0, 1: 2, 2: 3}),
    "a user's claim": (OWN_BIND, OWN_CASES["a new claim takes two writes"], {0: 1, 1: 2}),
}


@pytest.mark.promise("isolate-3")
@pytest.mark.parametrize(("bind", "case", "requests"), FENCED.values(), ids=FENCED)
async def test_every_write_asks_the_fence(bind: Bind, case: Case, requests: dict[int, int]) -> None:
    """A replica that no longer leads writes no claim, also between two writes of one claim."""
    for checks, expected in requests.items():
        async with connected() as (server, api):
            case.script(server)
            result = await allocator_of(api, ClosingGate(checks=checks)).allocate(bind)

            assert result == NotSent(text_of("a Lease no longer allows a write"))
            assert len(server.requests) == expected


async def test_a_users_claim_gets_the_configuration_of_its_class() -> None:
    """For its own request."""
    classes = DeviceClasses()
    classes.applied(DeviceClass(DRIVER, (b'{"opaque":{}}',)))
    async with connected() as (server, api):
        server.on("GET", CLAIM, theirs())
        server.on("PATCH", STATUS, theirs())
        assert await ApiClaimAllocator(api, Gate(), classes).allocate(OWN_BIND) == {"own": "7"}

        (patch,) = server.asked("PATCH")
        assert patch.body["status"]["allocation"]["devices"]["config"] == [
            {"source": "FromClass", "requests": ["mine"], "opaque": {}}
        ]


@pytest.mark.promise("isolate-4")
def test_a_class_that_is_not_known_may_give_gpus() -> None:
    """It may be shown in a moment, or nobody may list classes."""
    classes = DeviceClasses()
    classes.applied(DeviceClass("gpu"))
    classes.applied(DeviceClass("nic", may_give_gpus=False))

    assert [each for each in ("gpu", "nic", "gone") if classes.may_give_gpus(each)] == ["gpu", "gone"]
    classes.forgotten(DeviceClass("nic", may_give_gpus=False))
    assert classes.may_give_gpus("nic")


RELEASED = {
    "the last pod gives the GPUs back": Case(
        None, [GET, put({"reservedFor": None, "allocation": None})], get=(allocated(MINE),), status=(found("8"),)
    ),
    "what other pods have stays": Case(
        None, [GET, put({"reservedFor": [THEIRS]})], get=(allocated(MINE, THEIRS),), status=(found("8"),)
    ),
    "a claim that is not reserved for the pod": Case(None, [GET], get=(allocated(THEIRS),)),
    "a claim that is gone": Case(None, [GET], get=(Reply(404),)),
    "a claim that another pod changes at once": Case(
        None,
        [GET, put({"reservedFor": None, "allocation": None}), GET, put({"reservedFor": [THEIRS]}, "8")],
        get=(allocated(MINE), allocated(MINE, THEIRS, version="8")),
        status=(CHANGED, found("9")),
    ),
    "a claim that is gone in between": Case(
        None,
        [GET, put({"reservedFor": None, "allocation": None}), GET],
        get=(allocated(MINE), Reply(404)),
        status=(Reply(404),),
    ),
    "others change it all the time": Case(
        failed("own: others change it all the time"),
        [GET, put({"reservedFor": None, "allocation": None})] * 3,
        get=(allocated(MINE),),
        status=(CHANGED,),
    ),
    "an API server that fails": Case(
        failed("HTTP 500: no etcd"),
        [GET, put({"reservedFor": None, "allocation": None})],
        get=(allocated(MINE),),
        status=(Reply(500, {"message": "no etcd"}),),
    ),
}


@pytest.mark.promise("isolate-7")
@pytest.mark.parametrize("case", RELEASED.values(), ids=RELEASED)
async def test_a_pod_that_is_not_bound_gives_its_claims_back(case: Case) -> None:
    """And nothing of other pods."""
    async with connected() as (server, api):
        case.script(server)
        why = await allocator_of(api).release(POD, [AllocatedClaim("default", "own", "uid-of-own")])

        assert sent(server) == case.sent
        assert why == (None if case.result is None else str(case.result))


@pytest.mark.promise("isolate-2")
@pytest.mark.parametrize("version", ["7", "8"], ids=["it may come later", "it cannot come any more"])
async def test_a_withdrawal_without_an_answer_reaches_no_later_bind(version: str) -> None:
    """The claim is changed before the pod uses it again, unless it has another version than the withdrawal names."""
    async with connected() as (server, api):
        allocator = allocator_of(api)
        server.on("POST", BASE, Reply(409))
        server.on("GET", CLAIM, allocated(MINE), allocated(MINE, version=version), found("9"))
        server.on("PATCH", STATUS, CUT, found("9"), found("10"))
        assert await allocator.release(POD, [AllocatedClaim("default", "own", "uid-of-own")]) is not None
        assert await allocator.allocate(BIND) == {"own": "10" if version == "7" else "8"}

        withdraw = {"reservedFor": None, "allocation": None}
        again = [CREATE, GET, put(withdraw), GET, put({"reservedFor": [MINE], "allocation": ALLOCATION}, "9")]
        assert sent(server) == [GET, put(withdraw), *(again if version == "7" else [CREATE, GET])]


async def test_few_withdrawals_without_an_answer_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is forgotten first."""
    monkeypatch.setattr(claim_allocator, "MOST_UNANSWERED", 3)
    async with connected() as (server, api):
        allocator = allocator_of(api)
        for number in range(4):
            server.on("GET", f"{BASE}/c{number}", allocated(MINE))
            server.on("PATCH", f"{BASE}/c{number}/status", Reply(500))
            await allocator.release(POD, [AllocatedClaim("default", f"c{number}", "")])

        assert len(allocator._unanswered) == 3
        assert f"{BASE}/c0" not in allocator._unanswered


async def test_a_replica_that_does_not_lead_gives_nothing_back() -> None:
    """The claims may be those of the pod that the new leader binds now."""
    async with connected() as (server, api):
        server.on("GET", CLAIM, allocated(MINE))
        why = await allocator_of(api, Gate(open=False)).release(POD, [AllocatedClaim("default", "own", "1")])

        assert sent(server) == [GET]
        assert why == str(NotSent(text_of("a Lease no longer allows a write")))
