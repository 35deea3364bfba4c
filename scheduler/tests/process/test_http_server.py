import socket
import urllib.request

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from gpu_scheduler.process.http_server import Listener, ListenError, health_app
from gpu_scheduler.process.metrics import new_registry

TROUBLE: list[str] = []


def trouble() -> str | None:
    """A check that fails when told to."""
    return TROUBLE[0] if TROUBLE else None


@pytest.fixture(autouse=True)
def _calm() -> None:
    TROUBLE.clear()


def client(*, alive: bool = False) -> TestClient[web.Request, web.Application]:
    """A server with one check, on liveness or on readiness."""
    registry = new_registry("1.2.3", "abc")
    check = {"watches": trouble}
    return TestClient(
        TestServer(health_app(alive=check if alive else {}, ready={} if alive else check, registry=registry))
    )


async def test_health_says_exactly_this() -> None:
    """Seeds and probes compare the text."""
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


async def test_readiness_tells_the_truth() -> None:
    """A failing check is named with its reason; liveness does not care."""
    TROUBLE.append("the API server says nothing of pods for 200 s")
    async with client() as asking:
        async with asking.get("/readyz") as response:
            assert response.status == 503
            assert await response.text() == f"[-]watches failed: {TROUBLE[0]}\nreadyz check failed\n"
        async with asking.get("/livez") as response:
            assert response.status == 200


async def test_what_is_not_alive_is_not_healthy_nor_ready() -> None:
    """Only a restart helps, and every path says so."""
    TROUBLE.append("stuck")
    async with client(alive=True) as asking:
        for path in ("/health", "/livez", "/readyz"):
            async with asking.get(path) as response:
                assert response.status == 503


async def test_metrics_name_the_build() -> None:
    """Version and commit, in Prometheus' format."""
    async with client() as asking, asking.get("/metrics") as response:
        assert 'gpu_scheduler_build_info{commit="abc",version="1.2.3"} 1.0' in await response.text()
        assert response.headers["Content-Type"].startswith("text/plain")


async def test_a_dump_is_asked_for_by_its_path() -> None:
    """Whatever the function gives at that moment, as JSON; without one the path is not there."""
    seen: list[int] = []
    app = health_app(alive={}, ready={}, registry=new_registry("1", "c"), dumps={"/debug/ledger": lambda: seen})
    async with TestClient(TestServer(app)) as asking:
        seen.append(7)
        async with asking.get("/debug/ledger") as response:
            assert (response.status, await response.json()) == (200, [7])
    async with client() as asking, asking.get("/debug/ledger") as response:
        assert response.status == 404


async def test_a_taken_port_names_the_variable() -> None:
    """Not a traceback."""
    app = health_app(alive={}, ready={}, registry=new_registry("1", "c"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=rf"cannot listen on 127.0.0.1:{port}: .*HTTP_PORT={port + 1}"):
            async with Listener(app, address="127.0.0.1", port=port, variable="HTTP_PORT"):
                pass


async def test_a_listener_ends_with_its_block() -> None:
    """Nobody answers afterwards."""
    app = health_app(alive={}, ready={}, registry=new_registry("1", "c"))
    async with Listener(app, address="127.0.0.1", port=0, variable="HTTP_PORT") as listener:
        port = listener.port
        assert port > 0
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1)  # noqa: ASYNC210 - nobody listens
