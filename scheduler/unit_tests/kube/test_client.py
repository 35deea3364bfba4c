import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from gpu_scheduler.kube.config.client_config import ClientConfig, ClientConfigError, trust
from gpu_scheduler.kube.config.kubeconfig import ConfigLoader
from gpu_scheduler.kube.http.client import ApiClient, ApiResponse, NoResponseError, status_message
from unit_tests.kube.server import FakeServer, Reply, StaticReload, connected
from unit_tests.virtual import virtual_loop

PATH = "/api/v1/pods"


async def test_a_response_has_status_and_raw_body() -> None:
    """The body is not decoded: a typed model could misread the response to a Binding."""
    async with connected() as (server, api):
        server.on("POST", PATH, Reply(201, {"kind": "Status", "status": "Success"}))

        answer = await api.call("POST", PATH, body=b'{"kind":"Binding"}')

        assert (answer.ok, answer.status) == (True, 201)
        assert b'"Success"' in answer.body
        assert server.requests[0].headers["Authorization"] == "Bearer first"
        assert server.requests[0].body == {"kind": "Binding"}


async def test_a_response_has_its_date() -> None:
    """Of each response its own: with it, clocks are compared."""
    dates = ("Wed, 25 Nov 2026 03:37:00 GMT", "Wed, 25 Nov 2026 03:37:01 GMT")
    async with connected() as (server, api):
        server.on("GET", PATH, *(Reply(headers={"Date": date}) for date in dates))

        assert [(await api.call("GET", PATH)).date for _ in dates] == list(dates)


async def test_an_error_status_is_a_response_and_no_exception() -> None:
    """A 409 differs from a missing response, and Retry-After is read."""
    async with connected() as (server, api):
        server.on("GET", PATH, Reply(429, {"message": "slow down"}, {"Retry-After": "7"}))

        answer = await api.call("GET", PATH)

        assert (answer.ok, answer.status, answer.retry_after) == (False, 429, 7.0)
        assert status_message(answer) == "slow down"


async def test_a_401_reloads_the_credentials_and_repeats_the_request() -> None:
    """A rotated token costs one request, not the process."""
    async with connected("old", "new") as (server, api):
        server.on("GET", PATH, Reply(401), Reply(200))

        answer = await api.call("GET", PATH)

        assert answer.ok
        assert [each.headers["Authorization"] for each in server.requests] == ["Bearer old", "Bearer new"]


class Expiring(StaticReload):
    """The first token has expired when it is read. Later reads wait for `ready`, or raise `why`."""

    def __init__(self, url: str, *tokens: str) -> None:
        super().__init__(url, *tokens)
        self.ready = asyncio.Event()
        self.why: ClientConfigError | None = None

    async def __call__(self) -> ClientConfig:
        if not self.reads:
            return replace(await super().__call__(), expires=0.0)
        await self.ready.wait()
        if self.why is not None:
            raise self.why
        return await super().__call__()


@asynccontextmanager
async def expired() -> AsyncIterator[tuple[FakeServer, ApiClient, Expiring]]:
    server = FakeServer()
    await server.start()
    server.on("GET", PATH, Reply())
    reload = Expiring(server.url, "old", "new")
    api = ApiClient(await reload(), reload=reload)
    try:
        yield server, api, reload
    finally:
        await api.close()
        await server.stop()


async def test_expired_credentials_are_read_again_before_they_are_refused() -> None:
    """A plugin says when they expire. Requests at the same time share one run of it."""
    async with expired() as (server, api, reload):
        reload.ready.set()
        await asyncio.gather(api.call("GET", PATH), api.call("GET", PATH))

        assert [request.headers["Authorization"] for request in server.requests] == ["Bearer new"] * 2
        assert (await api.identity())["Authorization"] == "Bearer new"
        assert reload.reads == 2


async def test_a_plugin_may_take_longer_than_a_call() -> None:
    """It goes on, and a later call uses what it prints."""
    async with expired() as (server, api, reload):
        with pytest.raises(NoResponseError, match="TimeoutError"):
            await api.call("GET", PATH, timeout=0.05)
        reload.ready.set()
        await api.call("GET", PATH)

        assert [request.headers["Authorization"] for request in server.requests] == ["Bearer new"]
        assert reload.reads == 2


async def test_expired_credentials_that_cannot_be_read_again_are_reported() -> None:
    """The next call tries again."""
    async with expired() as (server, api, reload):
        reload.ready.set()
        reload.why = ClientConfigError("no plugin")
        with pytest.raises(NoResponseError, match=r"^cannot read credentials again: no plugin$"):
            await api.call("GET", PATH)
        assert server.requests == []
        reload.why = None

        assert (await api.call("GET", PATH)).status == 200


async def test_a_401_to_a_guarded_request_is_returned() -> None:
    """The caller decides whether it may send again. The next request has the new credentials."""
    async with connected("old", "new") as (server, api):
        server.on("POST", PATH, Reply(401), Reply(201))

        answers = [await api.call("POST", PATH, body=b"{}", guard=lambda: True) for _ in range(2)]

        assert [answer.status for answer in answers] == [401, 201]
        assert [each.headers["Authorization"] for each in server.requests] == ["Bearer old", "Bearer new"]


async def test_a_second_401_is_returned() -> None:
    """The client tries twice and then returns the response: no loop."""
    async with connected("old", "new") as (server, api):
        server.on("GET", PATH, Reply(401))

        answer = await api.call("GET", PATH)

        assert answer.status == 401
        assert len(server.requests) == 2


@pytest.mark.parametrize("cancelled", [0.05, 0.15], ids=["cancelled first", "timed out first"])
@pytest.mark.parametrize("kind", ["a call", "a watch"])
async def test_a_task_cancelled_at_its_timeout_ends(kind: str, cancelled: float) -> None:
    """A stopped process that resumes finds both due at once. At its end it waits for every cancelled task."""
    async with connected() as (server, api):
        server.on("GET", "/slow", Reply(200, hang=True))

        async def send() -> None:
            with suppress(NoResponseError):
                if kind == "a call":
                    await api.call("GET", "/slow", timeout=0.1)
                else:
                    async with api.stream("/slow", query={}, limit=0.1, idle_limit=9):
                        pass
            await asyncio.sleep(9)

        task = asyncio.create_task(send())
        loop = virtual_loop()
        loop.call_later(cancelled, task.cancel)
        loop.call_later(0.02, loop.block, 0.2)
        await asyncio.wait((task,), timeout=1)

        assert task.cancelled()


# The gap in seconds, and those after which unacknowledged data is dropped, and a guarded call given up.
GAPS = {
    "the shipped Lease, 15/10 s": (5, 4, 3),
    "a longer one, 60/50 s": (10, 4, 3),
    "one of 6/4 s": (2, 1.6, 1.6),
    "the shortest gap, 11/10 s": (1, 0.8, 0.8),
}


@pytest.mark.promise("lead-2")
@pytest.mark.parametrize(("gap", "seconds"), [(gap, dropped) for gap, dropped, _ in GAPS.values()], ids=GAPS)
async def test_unacknowledged_data_is_dropped_before_another_replica_may_lead(gap: float, seconds: float) -> None:
    """A bind that the network delivers late would come from a replica that no longer leads."""
    async with connected(lease_gap=gap) as (server, api):
        server.on("GET", PATH, Reply(200))
        await api.call("GET", PATH)
        ((_, connection),) = api._connections._idle

        limit = connection._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) / 1000

    assert limit == seconds < gap


@pytest.mark.promise("lead-2")
@pytest.mark.parametrize(("gap", "seconds"), [(gap, ended) for gap, _, ended in GAPS.values()], ids=GAPS)
async def test_a_guarded_call_ends_before_another_replica_may_lead(
    gap: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server cancels a bind whose connection is closed. Calls without a guard have their own time-out."""
    clock = asyncio.get_running_loop().time

    async def silence(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(ApiClient, "_ask", silence)
    api = ApiClient(ClientConfig("http://nowhere"), reload=ConfigLoader("nowhere"), lease_gap=gap)
    for guard, most in ((lambda: True, seconds), (None, 3)):
        began = clock()
        with pytest.raises(NoResponseError):
            await api.call("GET", PATH, guard=guard)
        assert clock() - began == pytest.approx(most)
    assert seconds < gap


RETRY_AFTERS = {
    "a minute": ("60", 60.0),
    "a day": ("86400", 60.0),
    "400 nines, which a float cannot hold": ("9" * 400, 60.0),
    "5,000 nines, which an int does not parse": ("9" * 5000, 60.0),
    "infinity": ("inf", None),
    "negative": ("-1", None),
    "a fraction": ("1.5", None),
    "a date": ("Wed, 21 Oct 2026 07:28:00 GMT", None),
    "garbage": ("soon", None),
    "nothing": ("", None),
}


@pytest.mark.parametrize(("text", "seconds"), RETRY_AFTERS.values(), ids=RETRY_AFTERS)
async def test_a_retry_after_counts_for_at_most_a_minute(text: str, seconds: float | None) -> None:
    """A maintenance page may ask for a day: reflectors would be blind, and binds would hold their GPUs, as long."""
    async with connected() as (server, api):
        server.on("GET", PATH, Reply(503, headers={"Retry-After": text}))

        assert (await api.call("GET", PATH)).retry_after == seconds


async def test_a_refused_connection_raises_no_response_error() -> None:
    """The error names the request."""
    async with connected() as (server, api):
        await server.stop()

        with pytest.raises(NoResponseError, match="GET /api/v1/pods: "):
            await api.call("GET", PATH)


async def test_a_closed_client_raises_no_response_error() -> None:
    """The result of a write that is in progress when the process ends is unknown; it is no defect."""
    async with connected() as (_, api):
        await api.close()
        with pytest.raises(NoResponseError, match="closed"):
            await api.call("GET", "/x")


async def test_a_missing_configuration_is_reported_with_an_example(tmp_path: Path) -> None:
    """Outside a cluster the remedy is a kubeconfig. The error names an invalid kubeconfig."""
    with pytest.raises(ClientConfigError, match=r"through a service account.*example: --kubeconfig"):
        await ConfigLoader()()
    missing = tmp_path / "config"
    with pytest.raises(ClientConfigError, match=f"kubeconfig {missing}: no such file"):
        await ConfigLoader(str(missing))()
    missing.write_text("[]", encoding="utf-8")
    with pytest.raises(ClientConfigError, match=f"kubeconfig {missing}: "):
        await ConfigLoader(str(missing))()


def test_a_rotated_ca_is_added_to_the_context_in_use() -> None:
    """Open connections use the context: it is updated, not replaced."""
    context = ssl.create_default_context()
    before = context.cert_store_stats()["x509_ca"]

    trust(context, ClientConfig("https://api", authorities=trustme.CA().cert_pem.bytes().decode()))

    assert context.cert_store_stats()["x509_ca"] == before + 1


@pytest.mark.parametrize(
    ("message", "shown"),
    [("no\n  such\tnode ", "no such node"), ('pods "a" is forbidden: ', 'pods "a" is forbidden'), ("a: b", "a: b")],
)
def test_a_message_is_one_line(message: str, shown: str) -> None:
    """Some API servers break it into lines, or leave out the reason after the colon."""
    assert status_message(ApiResponse(403, json.dumps({"message": message}).encode())) == shown


def test_a_body_that_is_no_status_is_reported_unchanged() -> None:
    """Proxies answer with HTML pages; the beginning of a page is better than no message."""
    assert status_message(ApiResponse(502, b"<html>bad gateway")) == "<html>bad gateway"


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        pytest.param({}, None, id="no proxy is named"),
        pytest.param({"HTTPS_PROXY": "http://proxy:3128"}, "http://proxy:3128", id="one is named"),
        pytest.param({"HTTP_PROXY": "http://proxy:3128"}, None, id="one is named for plain HTTP"),
        pytest.param({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": ".example.com"}, None, id="not for this domain"),
        pytest.param({"https_proxy": "http://proxy:3128", "no_proxy": "*"}, None, id="for no host"),
    ],
)
async def test_the_proxy_of_the_environment_is_used(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], proxy: str | None
) -> None:
    """Every other client of the cluster uses it, too."""
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    api = ApiClient(ClientConfig("https://api.example.com:6443"), reload=ConfigLoader("nowhere"))
    try:
        assert api._proxy == proxy
    finally:
        await api.close()


async def test_a_netrc_file_changes_no_request(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A default entry of .netrc must not replace the token."""
    netrc = tmp_path / "netrc"
    netrc.write_text("default login me password secret\n", encoding="ascii")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    async with connected() as (server, api):
        server.on("GET", PATH, Reply(200))

        assert (await api.call("GET", PATH)).ok

        assert server.requests[0].headers["Authorization"] == "Bearer first"
