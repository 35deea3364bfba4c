"""Commands in containers, over the WebSockets of a scripted API server."""

import json

import pytest

from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.kube.http.exec import ExecError, Executor
from unit_tests.kube.server import Exec, FakeServer, Reply, connected

POD = PodRef("ml", "train-0", "uid-train-0")
PATH = "/api/v1/namespaces/ml/pods/train-0/exec"
OUT, ERR, STATUS = b"\x01", b"\x02", b"\x03"


def status(**fields: object) -> bytes:
    return STATUS + json.dumps({"metadata": {}, **fields}).encode()


SUCCESS = status(status="Success")


async def run(server: FakeServer, executor: Executor, *replies: Exec | Reply, seconds: float = 5.0) -> bytes:
    server.on("GET", PATH, *replies)
    return await executor.run(POD, "main", ("cat", "/a b&c"), seconds=seconds, most=1000)


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io"])
async def test_the_output_of_a_command(protocol: str) -> None:
    """It may come in several messages, some of them empty, between warnings and messages of unknown channels."""
    messages = (OUT, b"", ERR + b"warning", OUT + b"A=1\0", b"\x09?", STATUS, OUT + b"B=\xff\0", SUCCESS)
    async with connected() as (server, api), Executor(api) as executor:
        assert await run(server, executor, Exec(messages, protocol)) == b"A=1\0B=\xff\0"

        (request,) = server.requests
    assert request.headers["Authorization"] == "Bearer first"
    assert request.headers["Sec-WebSocket-Protocol"] == "v5.channel.k8s.io,v4.channel.k8s.io"
    # Of several parameters with one name, the record has the first.
    assert request.query == {"container": "main", "command": "cat", "stdout": "true", "stderr": "true"}


FAILURES: dict[str, tuple[Exec | Reply, str]] = {
    "a refusal has the API server's message": (
        Reply(403, {"message": 'User "jane" cannot create resource "pods/exec"'}),
        'HTTP 403: User "jane" cannot create resource "pods/exec"',
    ),
    "a pod that is gone": (Reply(404, {"message": 'pods "train-0" not found'}), 'HTTP 404: pods "train-0" not found'),
    "an answer that opens no WebSocket": (Reply(200, "hello"), "HTTP 200: hello"),
    "a command that fails, with what it printed": (
        Exec((ERR + b"cat: denied\n", status(status="Failure", message="it ended with 1"))),
        "it ended with 1: cat: denied",
    ),
    "a failure without a message": (Exec((status(status="Failure", reason="InternalError"),)), "InternalError"),
    "a failure that says nothing": (Exec((status(),)), "it failed"),
    "a status that is no JSON": (Exec((STATUS + b"{",)), "its status "),
    "a connection that ends before the status": (Exec((OUT + b"A=1\0",)), "the connection ended "),
    "more output than allowed, in small messages": (
        Exec((OUT + b"x" * 600, ERR + b"x" * 600, SUCCESS)),
        "it prints more than 1000",
    ),
    "more output than allowed, in one message": (Exec((OUT + b"x" * 2000, SUCCESS)), "its output "),
    "text in place of bytes": (Exec(("hello",)), "its output "),
    "a server of an unknown protocol": (
        Exec((SUCCESS,), "v1.example.com"),
        "the API server speaks none ",
    ),
}


@pytest.mark.filterwarnings("ignore:Client protocols")
@pytest.mark.parametrize(("reply", "why"), FAILURES.values(), ids=FAILURES)
async def test_a_command_without_a_result(reply: Exec | Reply, why: str) -> None:
    """The error says why. Only a 403 is a missing right."""
    async with connected() as (server, api), Executor(api) as executor:
        with pytest.raises(ExecError) as caught:
            await run(server, executor, reply)

    assert str(caught.value).startswith(why)
    assert caught.value.forbidden == why.startswith("HTTP 403")


async def test_a_command_that_does_not_end() -> None:
    """It is given up after the time-out. The next command gets its own answer."""
    async with connected() as (server, api), Executor(api) as executor:
        with pytest.raises(ExecError, match=r"^it does not answer .* s$"):
            await run(server, executor, Exec((OUT + b"A=1\0",), hang=True), Exec((SUCCESS,)), seconds=0.2)

        assert await executor.run(POD, "main", ("true",), seconds=5, most=1000) == b""


async def test_an_api_server_that_does_not_answer() -> None:
    """A refused connection is reported in the system's words."""
    async with connected() as (server, api), Executor(api) as executor:
        await server.stop()

        with pytest.raises(ExecError, match="Cannot connect to host"):
            await executor.run(POD, "main", ("true",), seconds=5, most=1000)
