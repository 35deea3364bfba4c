import asyncio
import socket
import ssl
import time
from contextlib import suppress
from pathlib import Path

import pytest
import trustme
from kubernetes.aio.client.configuration import Configuration

from gpu_scheduler.kube.config.client_config import ClientConfigError, trust
from gpu_scheduler.kube.config.kubeconfig import ConfigLoader
from gpu_scheduler.kube.http.client import ApiClient, ApiResponse, NoResponseError, status_message
from gpu_scheduler.kube.http.pool import UNACKNOWLEDGED
from gpu_scheduler.kube.leader_election import LeaseTimings
from tests.kube.server import Reply, connected
from tests.waiting import limit

PATH = "/api/v1/pods"


async def test_an_answer_is_its_status_and_raw_body() -> None:
    """Whatever the API server says comes back as it is: no model can misread the reply to a Binding."""
    async with connected() as (server, api):
        server.on("POST", PATH, Reply(201, {"kind": "Status", "status": "Success"}))

        answer = await api.call("POST", PATH, body=b'{"kind":"Binding"}')

        assert (answer.ok, answer.status) == (True, 201)
        assert b'"Success"' in answer.body
        assert server.requests[0].headers["Authorization"] == "Bearer first"
        assert server.requests[0].body == {"kind": "Binding"}


async def test_refusals_are_answers_not_exceptions() -> None:
    """A 409 is told apart from silence, and Retry-After is read."""
    async with connected() as (server, api):
        server.on("GET", PATH, Reply(429, {"message": "slow down"}, {"Retry-After": "7"}))

        answer = await api.call("GET", PATH)

        assert (answer.ok, answer.status, answer.retry_after) == (False, 429, 7.0)
        assert status_message(answer) == "slow down"


async def test_a_401_reads_the_credentials_again_and_asks_once_more() -> None:
    """A rotated token costs one request, not the process."""
    async with connected("old", "new") as (server, api):
        server.on("GET", PATH, Reply(401), Reply(200))

        answer = await api.call("GET", PATH)

        assert answer.ok
        assert [each.headers["Authorization"] for each in server.requests] == ["Bearer old", "Bearer new"]


async def test_a_401_to_what_may_only_be_sent_now_is_an_answer() -> None:
    """The caller asks whether it may send again; the next request has the new credentials."""
    async with connected("old", "new") as (server, api):
        server.on("POST", PATH, Reply(401), Reply(201))

        answers = [await api.call("POST", PATH, body=b"{}", guard=lambda: True) for _ in range(2)]

        assert [answer.status for answer in answers] == [401, 201]
        assert [each.headers["Authorization"] for each in server.requests] == ["Bearer old", "Bearer new"]


async def test_a_401_that_stays_is_an_answer() -> None:
    """Two tries, then the caller decides: no loop."""
    async with connected("old", "new") as (server, api):
        server.on("GET", PATH, Reply(401))

        answer = await api.call("GET", PATH)

        assert answer.status == 401
        assert len(server.requests) == 2


async def test_silence_ends_at_the_time_out() -> None:
    """Every call has one."""
    async with connected() as (server, api):
        server.on("GET", PATH, Reply(200, after=5))

        with pytest.raises(NoResponseError):
            await api.call("GET", PATH, timeout=0.1)


@pytest.mark.parametrize("cancelled", [0.05, 0.15], ids=["cancelled first", "timed out first"])
@pytest.mark.parametrize("kind", ["a call", "a watch"])
async def test_who_is_cancelled_as_the_time_is_up_ends(kind: str, cancelled: float) -> None:
    """A process that was stopped and goes on finds both due at once. Its end waits for everybody who was cancelled."""
    async with connected() as (server, api):
        server.on("GET", "/slow", Reply(200, after=1))

        async def asking() -> None:
            with suppress(NoResponseError):
                if kind == "a call":
                    await api.call("GET", "/slow", timeout=0.1)
                else:
                    async with api.stream("/slow", query={}, limit=0.1, idle_limit=9):
                        pass
            await asyncio.sleep(9)

        task = asyncio.create_task(asking())
        loop = asyncio.get_running_loop()
        loop.call_later(cancelled, task.cancel)
        loop.call_later(0.02, time.sleep, 0.2)
        await asyncio.wait((task,), timeout=limit(1))

        assert task.cancelled()


async def test_what_nobody_acknowledges_is_forgotten_before_another_may_lead() -> None:
    """A bind that a healed network delivers late would come from a replica that leads no longer."""
    async with connected() as (server, api):
        server.on("GET", PATH, Reply(200))
        await api.call("GET", PATH)
        ((_, connection),) = api._connections._idle

        limit = connection._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) / 1000

    timing = LeaseTimings()
    assert limit == UNACKNOWLEDGED < timing.duration - timing.renew_deadline


async def test_a_refused_connection_is_no_answer() -> None:
    """The error says what was asked."""
    async with connected() as (server, api):
        await server.stop()

        with pytest.raises(NoResponseError, match="GET /api/v1/pods: "):
            await api.call("GET", PATH)


async def test_a_closed_connection_is_no_answer() -> None:
    """Who is told to end while a write is under way learns that nobody knows what became of it, not of a defect."""
    async with connected() as (_, api):
        await api.close()
        with pytest.raises(NoResponseError, match="closed"):
            await api.call("GET", "/x")


async def test_nowhere_to_connect_is_one_sentence_with_an_example(tmp_path: Path) -> None:
    """Outside a cluster the cure is a kubeconfig; a bad one is named."""
    with pytest.raises(ClientConfigError, match=r"through a service account.*example: --kubeconfig"):
        await ConfigLoader()()
    missing = tmp_path / "config"
    with pytest.raises(ClientConfigError, match=f"kubeconfig {missing}: no such file"):
        await ConfigLoader(str(missing))()
    missing.write_text("[]", encoding="utf-8")
    with pytest.raises(ClientConfigError, match=f"kubeconfig {missing}: "):
        await ConfigLoader(str(missing))()


def test_a_rotated_ca_is_learnt_by_the_live_context(tmp_path: Path) -> None:
    """The context that open connections use is taught, not replaced."""
    context = ssl.create_default_context()
    before = context.cert_store_stats()["x509_ca"]
    authority = tmp_path / "ca.crt"
    trustme.CA().cert_pem.write_to_path(str(authority))
    configuration = Configuration()
    configuration.ssl_ca_cert = str(authority)

    trust(context, configuration)

    assert context.cert_store_stats()["x509_ca"] == before + 1


def test_a_body_that_is_no_status_is_shown_as_it_came() -> None:
    """Proxies answer with pages; their beginning is better than nothing."""
    assert status_message(ApiResponse(502, b"<html>bad gateway")) == "<html>bad gateway"


@pytest.mark.parametrize(
    ("environment", "way"),
    [
        pytest.param({}, None, id="no proxy is named"),
        pytest.param({"HTTPS_PROXY": "http://proxy:3128"}, "http://proxy:3128", id="one is named"),
        pytest.param({"HTTP_PROXY": "http://proxy:3128"}, None, id="one is named for plain HTTP"),
        pytest.param({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": ".example.com"}, None, id="not for this domain"),
        pytest.param({"https_proxy": "http://proxy:3128", "no_proxy": "*"}, None, id="for nobody"),
    ],
)
async def test_the_environments_proxy_is_used(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], way: str | None
) -> None:
    """As every other client of the cluster does."""
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    configuration = Configuration(host="https://api.example.com:6443")
    configuration.proxy = None
    api = ApiClient(configuration, reload=ConfigLoader("nowhere"))
    try:
        assert api._proxy == way
    finally:
        await api.close()


async def test_a_password_of_the_users_own_breaks_no_request(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A .netrc with an entry for everybody is none of our business."""
    netrc = tmp_path / "netrc"
    netrc.write_text("default login me password secret\n", encoding="ascii")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    async with connected() as (server, api):
        server.on("GET", PATH, Reply(200))

        assert (await api.call("GET", PATH)).ok

        assert server.requests[0].headers["Authorization"] == "Bearer first"
