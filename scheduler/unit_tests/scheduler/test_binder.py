import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from gpu_scheduler.core.decision import BY_MAP, Bind
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.kube.config.client_config import ClientConfig
from gpu_scheduler.kube.config.kubeconfig import ConfigLoader
from gpu_scheduler.kube.http.client import ApiClient
from gpu_scheduler.kube.lists import USUAL_OBJECT
from gpu_scheduler.scheduler.binder import ApiBinder
from gpu_scheduler.scheduler.ports import BindResult, Bound, Dropped, Failed, NotSent, Unknown
from tests.messages import says
from tests.objects import Object
from unit_tests.fakes import Gate
from unit_tests.kube.server import FakeServer, Reply, connected

POD = "/api/v1/namespaces/default/pods/train-2"
BIND = Bind(PodRef("default", "train-2", "uid-1"), Placement("node3", ("0", "1"), 2), "assigned", BY_MAP, "index 2")
OURS = {
    "agentaflow.gpu/assigned-devices": "0,1",
    "agentaflow.gpu/assigned-index": "2",
    "agentaflow.gpu/assigned-node": "node3",
}


@dataclass
class ClosingGate(Gate):
    """A fence that closes after `checks` checks."""

    checks: int = 0

    def may_write(self) -> bool:
        self.checks -= 1
        return self.checks >= 0


def binder(api: ApiClient, gate: Gate | None = None) -> ApiBinder:
    """Return a binder whose clock shows a fixed time."""
    when = datetime(2026, 11, 20, 8, 30, 0, 1234, tzinfo=UTC)
    return ApiBinder(api, gate or Gate(), "replica-0_ab12", lambda: when)


def pod(uid: str = "uid-1", node: str = "", annotations: dict[str, str] | None = None, **meta: str) -> Reply:
    body: Object = {"metadata": {"uid": uid, "annotations": annotations, **meta}, "spec": {}}
    if node:
        body["spec"]["nodeName"] = node
    return Reply(200, body)


@pytest.mark.promise("place-5", "job-5", "place-7", "env-6", "explain-5")
async def test_the_binding_carries_uid_node_and_assignment() -> None:
    """One write stores node and devices, for exactly this instance of the pod."""
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
                "agentaflow.gpu/assigned-reason": "map: index 2",
            },
        }
        assert sent.body["target"] == {"apiVersion": "v1", "kind": "Node", "name": "node3"}


ANSWERS: dict[str, Object | str] = {
    "a Status, as the API server sends it": {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"},
    "a Binding, as a typed client expects it": {"kind": "Binding", "metadata": {"name": "train-2"}, "target": {}},
    "an empty body": "",
    "not JSON": "<html>done</html>",
}


@pytest.mark.promise("lead-2")
async def test_a_binding_waits_three_seconds_for_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then its outcome is unknown, and a GET with the same limit asks for it."""
    began = asyncio.get_running_loop().time()
    waits = []

    async def silence(_: ApiClient, method: str, *__: object) -> None:
        waits.append(method)
        await asyncio.Event().wait()

    monkeypatch.setattr(ApiClient, "_ask", silence)
    api = ApiClient(ClientConfig("http://nowhere"), reload=ConfigLoader("nowhere"))

    assert isinstance(await binder(api).bind(BIND), Unknown)
    assert waits == ["POST", "GET"]
    assert asyncio.get_running_loop().time() - began == pytest.approx(6)


@pytest.mark.parametrize("body", ANSWERS.values(), ids=ANSWERS)
async def test_a_bind_that_succeeded_is_known_by_its_status_alone(body: Object | str) -> None:
    """Clients that parse the body may fail on it after the pod is bound. The binder ignores the body."""
    async with connected() as (server, api):
        server.on("POST", f"{POD}/binding", Reply(201, body))

        assert await binder(api).bind(BIND) == Bound()
        assert len(server.requests) == 1


async def test_a_fence_that_closes_while_the_request_is_prepared_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a connection takes time, and a process may be paused meanwhile. Only the check at the write counts."""
    async with connected() as (server, api):
        gate, healthy = Gate(), api._valid

        async def slow() -> ClientConfig:
            gate.open = False
            return await healthy()

        monkeypatch.setattr(api, "_valid", slow)
        result = await binder(api, gate).bind(BIND)

        assert isinstance(result, NotSent)
        assert server.requests == []


@pytest.mark.promise("lead-2")
async def test_a_fence_that_closes_between_check_and_send_stops_the_request() -> None:
    """A process may be paused between any two steps. The call that sends checks the fence once more."""
    async with connected() as (server, api):
        gate = ClosingGate(open=True, checks=0)
        result = await binder(api, gate).bind(BIND)

        assert gate.checks < 0
        assert isinstance(result, NotSent)
        assert server.requests == []


async def test_after_the_answer_the_connection_needs_no_fence() -> None:
    """A replica that no longer leads still reads and releases its Lease through the connection."""
    async with connected() as (server, api):
        gate = Gate()
        server.on("POST", f"{POD}/binding", Reply(201))
        server.on("GET", POD, pod())
        assert await binder(api, gate).bind(BIND) == Bound()
        gate.open = False

        assert (await api.call("GET", POD)).status == 200


CASES: list[tuple[str, list[Reply], list[Reply], BindResult | type[BindResult]]] = [
    ("after a 404 the pod is gone", [Reply(404)], [Reply(404)], Dropped),
    ("after a 404 the pod may still exist", [Reply(404)], [pod()], Failed),
    ("a 422 is reported to the owner", [Reply(422, {"message": "no such target"})], [], Failed),
    ("a 403 is reported to the owner", [Reply(403, {"message": "forbidden"})], [], Failed),
    ("a 429 certainly did nothing", [Reply(429)], [], Failed),
    ("a 401 did nothing, and the binder does not repeat it", [Reply(401)], [], NotSent),
    ("after a 409 our own binding is success", [Reply(409)], [pod(node="node3", annotations=OURS)], Bound()),
    ("after a 409 another node is not ours", [Reply(409)], [pod(node="node1", annotations=OURS)], Dropped),
    ("after a 409 other devices are not ours", [Reply(409)], [pod(node="node3")], Dropped),
    ("after a 409 another uid is another pod", [Reply(409)], [pod(uid="uid-2")], Dropped),
    ("after a 409 a terminating pod is dropped", [Reply(409)], [pod(deletionTimestamp="2026")], Dropped),
    ("after a 409 an unbound pod is tried again", [Reply(409, {"message": "changed"})], [pod()], Failed),
    ("after a 409 the pod may be gone", [Reply(409)], [Reply(404)], Dropped),
    ("after a 500 our own binding is success", [Reply(500)], [pod(node="node3", annotations=OURS)], Bound()),
    ("after a 500 an unbound pod proves nothing", [Reply(500)], [pod()], Unknown),
    ("after a 503 and a failed GET nothing is known", [Reply(503)], [Reply(503)], Unknown),
    ("after a 409 and a GET without a pod nothing is known", [Reply(409)], [Reply(200, "<html>")], Unknown),
    (
        "after a 500 and a GET without UTF-8 nothing is known",
        [Reply(500)],
        [Reply(200, '{"metadata":"\udcff"}')],
        Unknown,
    ),
    ("after a time-out an unbound pod proves nothing", [Reply(201, hang=True)], [pod()], Unknown),
    (
        "after a time-out our own binding is success",
        [Reply(201, hang=True)],
        [pod(node="node3", annotations=OURS)],
        Bound(),
    ),
]


@pytest.mark.promise("hold-1", "place-5")
@pytest.mark.parametrize(("_name", "posts", "gets", "expected"), CASES, ids=[case[0] for case in CASES])
async def test_every_kind_of_answer_has_its_own_result(
    _name: str, posts: list[Reply], gets: list[Reply], expected: BindResult | type[BindResult]
) -> None:
    """Unknown never counts as Failed. If a GET can settle the outcome, it does."""
    async with connected() as (server, api):
        _script(server, posts, gets)

        result = await binder(api).bind(BIND)

        assert result == expected if not isinstance(expected, type) else isinstance(result, expected)
        assert len(server.asked("POST")) == 1


ASKED = {"Retry-After": "7"}
PATIENT = [
    ("a 429 is a failure", [Reply(429, headers=ASKED)], [], Failed),
    ("a 503 may be delivered", [Reply(503, headers=ASKED)], [pod()], Unknown),
    ("the GET has no answer either", [Reply(503, headers=ASKED)], [Reply(500)], Unknown),
    ("the GET asks for more time", [Reply(503, headers={"Retry-After": "1"})], [Reply(429, headers=ASKED)], Unknown),
]


@pytest.mark.parametrize(("_name", "posts", "gets", "kind"), PATIENT, ids=[case[0] for case in PATIENT])
async def test_a_requested_retry_after_is_reported(
    _name: str, posts: list[Reply], gets: list[Reply], kind: type[Failed | Unknown]
) -> None:
    """The scheduling loop sends the next try no sooner than Retry-After allows."""
    async with connected() as (server, api):
        _script(server, posts, gets)

        result = await binder(api).bind(BIND)

        assert isinstance(result, kind)
        assert result.retry_after == 7


async def test_a_failure_begins_with_the_reasons_word() -> None:
    """The message becomes the message of the pod's condition."""
    async with connected() as (server, api):
        _script(server, [Reply(422, {"message": "no such target"})], [])

        result = await binder(api).bind(BIND)

        assert isinstance(result, Failed)
        says(result.message, "BindFailed", "node3", "HTTP 422")


def _script(server: FakeServer, posts: list[Reply], gets: list[Reply]) -> None:
    server.on("POST", f"{POD}/binding", *posts)
    if gets:
        server.on("GET", POD, *gets)


async def test_a_pod_of_megabytes_is_read_alone() -> None:
    """The binder reads such a pod after its bind too. Of many such pods, only one is in memory at a time."""
    async with connected() as (server, api):
        server.on("POST", f"{POD}/binding", Reply(409))
        server.on("GET", POD, pod(node="node3", annotations=OURS, x="x" * 2 * USUAL_OBJECT))

        assert await binder(api).bind(BIND) == Bound()
        assert [request.method for request in server.requests] == ["POST", "GET", "GET"]
