import asyncio
import socket
import urllib.request

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import Gauge, generate_latest

from gpu_scheduler.kube import turns
from gpu_scheduler.process.http_server import PART, Listener, ListenError, health_app
from gpu_scheduler.process.metrics import new_registry, read_gauges

FAILURES: list[str] = []


def failure() -> str | None:
    return FAILURES[0] if FAILURES else None


@pytest.fixture(autouse=True)
def _no_failure() -> None:
    FAILURES.clear()


def client(*, alive: bool = False) -> TestClient[web.Request, web.Application]:
    """Return a client of a server with one check, on liveness or on readiness."""
    registry = new_registry("1.2.3", "abc")
    check = {"watches": failure}
    return TestClient(
        TestServer(health_app(alive=check if alive else {}, ready={} if alive else check, registry=registry))
    )


async def test_health_says_exactly_this() -> None:
    """Probes compare the text."""
    async with client() as asking, asking.get("/health") as response:
        assert await response.text() == '{"service":"gpu-scheduler","status":"healthy"}'
        assert response.content_type == "application/json"


@pytest.mark.parametrize("path", ["/ready", "/readyz", "/livez", "/healthz"])
async def test_all_is_well(path: str) -> None:
    """`ok`, and with ?verbose every check."""
    async with client() as asking:
        async with asking.get(path) as response:
            assert (response.status, await response.text()) == (200, "ok")
        async with asking.get(f"{path}?verbose") as response:
            assert (await response.text()).endswith(f"{path[1:]} check passed\n")


async def test_readiness_reports_a_failing_check() -> None:
    """By name and with its reason. Liveness does not depend on it."""
    FAILURES.append("no data from the API server about pods for 200 s")
    async with client() as asking:
        async with asking.get("/readyz") as response:
            assert response.status == 503
            assert await response.text() == f"[-]watches failed: {FAILURES[0]}\nreadyz check failed\n"
        async with asking.get("/livez") as response:
            assert response.status == 200


async def test_a_failing_liveness_check_fails_every_path() -> None:
    """Only a restart helps, and every path reports it."""
    FAILURES.append("stuck")
    async with client(alive=True) as asking:
        for path in ("/health", "/livez", "/readyz"):
            async with asking.get(path) as response:
                assert response.status == 503


async def test_metrics_name_the_build() -> None:
    """Version and commit, in Prometheus' format."""
    async with client() as asking, asking.get("/metrics") as response:
        assert 'gpu_scheduler_build_info{commit="abc",version="1.2.3"} 1.0' in await response.text()
        assert response.headers["Content-Type"].startswith("text/plain")


async def test_other_tasks_run_while_the_metrics_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster of 500 nodes has thousands of samples. Each family is read alone."""
    monkeypatch.setattr(turns, "TURN", 0.0)
    registry, turns_of_others, seen = new_registry("1", "c"), list[None](), list[int]()

    def read() -> float:
        seen.append(len(turns_of_others))
        asyncio.get_running_loop().call_soon(turns_of_others.append, None)
        return 7

    read_gauges(registry, {name: (name, read) for name in ("one", "two", "three")})
    app = health_app(alive={}, ready={}, registry=registry)
    async with TestClient(TestServer(app)) as asking, asking.get("/metrics") as response:
        text = await response.text()

    assert seen == [0, 1, 2]
    assert [line for line in text.splitlines() if line.endswith(" 7.0")] == ["one 7.0", "two 7.0", "three 7.0"]


async def test_a_family_that_is_written_in_parts_has_one_head() -> None:
    """The text is the one that the whole family would have."""
    registry = new_registry("1", "c")
    gpus = Gauge("gpus", "GPUs of a node", labelnames=["node"], registry=registry)
    for number in range(2 * PART + 1):
        gpus.labels(f"n{number}").set(number)
    app = health_app(alive={}, ready={}, registry=registry)
    async with TestClient(TestServer(app)) as asking, asking.get("/metrics") as response:
        text, whole = await response.text(), generate_latest(registry).decode()

    lines, expected = ([line for line in each.splitlines() if "gpus" in line] for each in (text, whole))
    assert lines == expected


async def test_a_dump_has_its_own_path() -> None:
    """The answer is the function's present result as JSON. Without a function the path does not exist."""
    seen: list[int] = []
    app = health_app(alive={}, ready={}, registry=new_registry("1", "c"), dumps={"/debug/ledger": lambda: seen})
    async with TestClient(TestServer(app)) as asking:
        seen.append(7)
        async with asking.get("/debug/ledger") as response:
            assert (response.status, await response.json()) == (200, [7])
    async with client() as asking, asking.get("/debug/ledger") as response:
        assert response.status == 404


async def test_a_taken_port_names_the_variable() -> None:
    """The error is a sentence, not a traceback."""
    app = health_app(alive={}, ready={}, registry=new_registry("1", "c"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=rf"cannot listen on 127.0.0.1:{port}: .*HTTP_PORT={port + 1}"):
            async with Listener(app, address="127.0.0.1", port=port, variable="HTTP_PORT"):
                pass


async def test_a_listener_ends_with_its_block() -> None:
    """The port refuses connections afterwards."""
    app = health_app(alive={}, ready={}, registry=new_registry("1", "c"))
    async with Listener(app, address="127.0.0.1", port=0, variable="HTTP_PORT") as listener:
        port = listener.port
        assert port > 0
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1)  # noqa: ASYNC210 - no server listens
