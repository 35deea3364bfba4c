from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from gpu_scheduler.core.decision import Bind
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.kube.http.client import ApiClient
from gpu_scheduler.kube.lists import USUAL_OBJECT
from gpu_scheduler.scheduler.binder import ApiBinder
from gpu_scheduler.scheduler.ports import BindResult, Bound, Dropped, Failed, NotSent, Unknown
from tests.kube.server import FakeServer, Reply, connected
from tests.objects import Object
from tests.waiting import limit

POD = "/api/v1/namespaces/default/pods/train-2"
BIND = Bind(PodRef("default", "train-2", "uid-1"), Placement("node3", ("0", "1"), 2), "assigned")
OURS = {
    "agentaflow.gpu/assigned-devices": "0,1",
    "agentaflow.gpu/assigned-index": "2",
    "agentaflow.gpu/assigned-node": "node3",
}


@dataclass
class Gate:
    """A fence that can be closed."""

    open: bool = True

    def may_bind(self) -> bool:
        """See Fence."""
        return self.open


@dataclass
class Shutting(Gate):
    """One that shuts after so many looks."""

    looks: int = 0

    def may_bind(self) -> bool:
        """See Fence."""
        self.looks -= 1
        return self.looks >= 0


def binder(api: ApiClient, gate: Gate | None = None) -> ApiBinder:
    """One that writes at a known time."""
    when = datetime(2026, 11, 20, 8, 30, 0, 1234, tzinfo=UTC)
    return ApiBinder(api, gate or Gate(), "replica-0_ab12", lambda: when)


def pod(uid: str = "uid-1", node: str = "", annotations: dict[str, str] | None = None, **meta: str) -> Reply:
    """The pod as a GET shows it."""
    body: Object = {"metadata": {"uid": uid, "annotations": annotations, **meta}, "spec": {}}
    if node:
        body["spec"]["nodeName"] = node
    return Reply(200, body)


async def test_the_binding_carries_uid_node_and_assignment() -> None:
    """Node and devices become durable in one write, for exactly this instance of the pod."""
    async with connected() as (server, api):
        server.on("POST", f"{POD}/binding", Reply(201, {"kind": "Status", "status": "Success"}))

        result = await binder(api).bind(BIND)

        assert result == Bound()
        (sent,) = server.requests
        assert sent.body["metadata"] == {
            "name": "train-2",
            "namespace": "default",
            "uid": "uid-1",
            "annotations": {
                **OURS,
                "agentaflow.gpu/assigned-at": "2026-11-20T08:30:00.001234Z",
                "agentaflow.gpu/assigned-by": "replica-0_ab12",
            },
        }
        assert sent.body["target"] == {"apiVersion": "v1", "kind": "Node", "name": "node3"}


ANSWERS: dict[str, Object | str] = {
    "a Status, as the API server says it": {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"},
    "a Binding, as a typed client wants it": {"kind": "Binding", "metadata": {"name": "train-2"}, "target": {}},
    "nothing": "",
    "no JSON": "<html>done</html>",
}


@pytest.mark.parametrize("body", ANSWERS.values(), ids=ANSWERS)
async def test_a_bind_that_succeeded_is_known_by_its_status_alone(body: Object | str) -> None:
    """Clients that read the body die on it after the pod is bound; here nobody reads it."""
    async with connected() as (server, api):
        server.on("POST", f"{POD}/binding", Reply(201, body))

        assert await binder(api).bind(BIND) == Bound()
        assert len(server.requests) == 1


async def test_nothing_is_written_outside_the_leaders_window() -> None:
    """The fence is asked right before the write."""
    async with connected() as (server, api):
        result = await binder(api, Gate(open=False)).bind(BIND)

        assert isinstance(result, NotSent)
        assert server.requests == []


async def test_a_fence_that_shuts_while_the_request_is_made_holds_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a connection takes time, and a process may be stopped meanwhile: only the write itself counts."""
    async with connected() as (server, api):
        gate, healthy = Gate(), api._headers

        async def slow(*asked: str) -> str:
            gate.open = False
            return await healthy(*asked)

        monkeypatch.setattr(api, "_headers", slow)
        result = await binder(api, gate).bind(BIND)

        assert isinstance(result, NotSent)
        assert server.requests == []


async def test_a_fence_that_shuts_between_the_look_and_the_send_holds_it_back() -> None:
    """A process may be stopped between any two steps: the call that sends looks once more."""
    async with connected() as (server, api):
        gate = Shutting(open=True, looks=0)
        result = await binder(api, gate).bind(BIND)

        assert gate.looks < 0
        assert isinstance(result, NotSent)
        assert server.requests == []


async def test_after_the_answer_the_connection_is_anybodys() -> None:
    """Whoever does not lead any more reads and releases through it all the same."""
    async with connected() as (server, api):
        gate = Gate()
        server.on("POST", f"{POD}/binding", Reply(201))
        server.on("GET", POD, pod())
        assert await binder(api, gate).bind(BIND) == Bound()
        gate.open = False

        assert (await api.call("GET", POD)).status == 200


CASES: list[tuple[str, list[Reply], list[Reply], BindResult | type[BindResult]]] = [
    ("after a 404 the pod is gone", [Reply(404)], [Reply(404)], Dropped),
    ("after a 404 the pod may be there all the same", [Reply(404)], [pod()], Failed),
    ("a 422 is told to the owner", [Reply(422, {"message": "no such target"})], [], Failed),
    ("a 403 is told to the owner", [Reply(403, {"message": "forbidden"})], [], Failed),
    ("a 429 certainly did nothing", [Reply(429)], [], Failed),
    ("a 401 did nothing, and is not sent again unasked", [Reply(401)], [], NotSent),
    ("after a 409 our own binding is success", [Reply(409)], [pod(node="node3", annotations=OURS)], Bound()),
    ("after a 409 another node is not ours", [Reply(409)], [pod(node="node1", annotations=OURS)], Dropped),
    ("after a 409 other devices are not ours", [Reply(409)], [pod(node="node3")], Dropped),
    ("after a 409 another uid is another pod", [Reply(409)], [pod(uid="uid-2")], Dropped),
    ("after a 409 a deleting pod is let go", [Reply(409)], [pod(deletionTimestamp="2026")], Dropped),
    ("after a 409 a free pod is tried again", [Reply(409, {"message": "changed"})], [pod()], Failed),
    ("after a 409 the pod may be gone", [Reply(409)], [Reply(404)], Dropped),
    ("after a 500 our own binding is success", [Reply(500)], [pod(node="node3", annotations=OURS)], Bound()),
    ("after a 500 a free pod proves nothing", [Reply(500)], [pod()], Unknown),
    ("after a 503 and no look nothing is known", [Reply(503)], [Reply(503)], Unknown),
    ("after a 409 and a look at no pod nothing is known", [Reply(409)], [Reply(200, "<html>")], Unknown),
    (
        "after a 500 and a look at no UTF-8 nothing is known",
        [Reply(500)],
        [Reply(200, '{"metadata":"\udcff"}')],
        Unknown,
    ),
    ("after a time-out a free pod proves nothing", [Reply(201, after=60)], [pod()], Unknown),
    (
        "after a time-out our own binding is success",
        [Reply(201, after=60)],
        [pod(node="node3", annotations=OURS)],
        Bound(),
    ),
]


@pytest.mark.parametrize(("_name", "posts", "gets", "expected"), CASES, ids=[case[0] for case in CASES])
async def test_every_kind_of_answer_is_told_apart(
    _name: str,
    posts: list[Reply],
    gets: list[Reply],
    expected: BindResult | type[BindResult],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unknown is never failed, and what a GET can settle is settled."""
    if posts[0].after:
        monkeypatch.setattr(
            ApiClient.call, "__kwdefaults__", {**(ApiClient.call.__kwdefaults__ or {}), "timeout": limit(0.5)}
        )
    async with connected() as (server, api):
        _script(server, posts, gets)

        result = await binder(api).bind(BIND)

        assert result == expected if not isinstance(expected, type) else isinstance(result, expected)
        assert len(server.asked("POST")) == 1


ASKED = {"Retry-After": "7"}
PATIENT = [
    ("a 429 is a failure", [Reply(429, headers=ASKED)], [], Failed),
    ("a 503 may be delivered", [Reply(503, headers=ASKED)], [pod()], Unknown),
    ("the look has no answer either", [Reply(503, headers=ASKED)], [Reply(500)], Unknown),
    ("the look asks for more", [Reply(503, headers={"Retry-After": "1"})], [Reply(429, headers=ASKED)], Unknown),
]


@pytest.mark.parametrize(("_name", "posts", "gets", "kind"), PATIENT, ids=[case[0] for case in PATIENT])
async def test_patience_that_is_asked_for_is_told(
    _name: str, posts: list[Reply], gets: list[Reply], kind: type[Failed | Unknown]
) -> None:
    """The loop sends the next try no sooner than a Retry-After says."""
    async with connected() as (server, api):
        _script(server, posts, gets)

        result = await binder(api).bind(BIND)

        assert isinstance(result, kind)
        assert result.patience == 7


async def test_a_failure_begins_with_the_reasons_word() -> None:
    """It becomes the pod's condition as it is."""
    async with connected() as (server, api):
        _script(server, [Reply(422, {"message": "no such target"})], [])

        result = await binder(api).bind(BIND)

        assert isinstance(result, Failed)
        assert result.message.startswith("BindFailed: cannot bind to node3: HTTP 422: no such target")


def _script(server: FakeServer, posts: list[Reply], gets: list[Reply]) -> None:
    server.on("POST", f"{POD}/binding", *posts)
    if gets:
        server.on("GET", POD, *gets)


async def test_a_pod_of_megabytes_is_looked_at_alone() -> None:
    """What became of a bind is known of such a pod too; but of many at once one is in memory."""
    async with connected() as (server, api):
        server.on("POST", f"{POD}/binding", Reply(409))
        server.on("GET", POD, pod(node="node3", annotations=OURS, x="x" * 2 * USUAL_OBJECT))

        assert await binder(api).bind(BIND) == Bound()
        assert [request.method for request in server.requests] == ["POST", "GET", "GET"]
