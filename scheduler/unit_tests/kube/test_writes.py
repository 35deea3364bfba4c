"""Writes of an ApiClient: through proxies and gateways, and with changing credentials."""

import asyncio
import gc
import ssl
from base64 import b64encode
from typing import Any
from urllib.parse import urlsplit

import pytest

from gpu_scheduler.kube.config.client_config import ClientConfig, ClientConfigError
from gpu_scheduler.kube.config.kubeconfig import ConfigLoader
from gpu_scheduler.kube.http.client import ApiClient, NoResponseError, NotSentError
from unit_tests.kube.peers import CREATED, LARGE, ServerConnection, answer_all, authority, server_context, serving
from unit_tests.kube.server import until
from unit_tests.virtual import settle

REFUSED = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"


class Rotating(ConfigLoader):
    """Configurations from a list: the second one is read after the first was refused."""

    def __init__(self, *configurations: ClientConfig) -> None:
        super().__init__()
        self._configurations = list(configurations)

    async def __call__(self) -> ClientConfig:
        return self._configurations.pop(0)


def configured(url: str, **others: Any) -> ClientConfig:
    return ClientConfig(url, authorities=authority().cert_pem.bytes().decode(), **others)


async def test_a_query_is_encoded_and_the_gateways_path_comes_first() -> None:
    """As in reads. A gateway for several clusters selects the cluster by its path."""
    requests = []

    async def script(connection: ServerConnection) -> None:
        requests.append(await connection.request())
        await connection.send(CREATED)

    async with serving(script) as peer:
        api = ApiClient(configured(peer.url + "/k8s/clusters/c-1"), reload=Rotating())
        query = {"fieldManager": "gpu scheduler&co", "force": "true"}
        answer = await api.call("PATCH", "/api/v1/pods/a%2Fb", query=query, body=b"[]", content_type="x/y")
        await api.close()

    assert answer.status == 201
    head, _, body = requests[0].partition(b"\r\n\r\n")
    line, *headers = head.decode().split("\r\n")
    assert line == "PATCH /k8s/clusters/c-1/api/v1/pods/a%2Fb?fieldManager=gpu+scheduler%26co&force=true HTTP/1.1"
    assert {f"Host: {urlsplit(peer.url).netloc}", "Content-Type: x/y", "Content-Length: 2"} < set(headers)
    assert body == b"[]"


async def test_an_unsent_request_differs_from_an_unanswered_one() -> None:
    """The current leader may repeat an unsent request. The result of an unanswered one is unknown."""

    async def script(connection: ServerConnection) -> None:
        await connection.head()
        # Until the kernel's buffers are full.
        await settle()
        gate.append(False)
        await connection.read_rest()

    gate = [True]
    async with serving(script, "https") as peer:
        api = ApiClient(configured(peer.url), reload=Rotating())
        with pytest.raises(NoResponseError, match="guard no longer allows") as raised:
            await api.call("POST", "/bind", body=bytes(LARGE), guard=lambda: gate[-1])
        with pytest.raises(NotSentError, match=r"^POST /bind: .*guard no longer allows"):
            await api.call("POST", "/bind", body=b"{}", guard=lambda: gate[-1])
        await api.close()

    assert not isinstance(raised.value, NotSentError)


def client_certificate(name: str) -> tuple[bytes, bytes]:
    pair = authority().issue_cert(name)
    return pair.cert_chain_pems[0].bytes(), pair.private_key_pem.bytes()


async def test_a_changed_client_certificate_is_used() -> None:
    """The kept connections were opened with the certificate that is refused now."""
    seen: list[str] = []
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority().issue_cert("127.0.0.1").configure_cert(tls)
    authority().configure_trust(tls)
    tls.verify_mode = ssl.CERT_REQUIRED

    async def script(connection: ServerConnection) -> None:
        ((_, name),) = connection.writer.get_extra_info("peercert")["subjectAltName"]
        while True:
            await connection.request()
            await connection.send(REFUSED if seen and name == "old" else CREATED)
            seen.append(name)

    async with serving(script, "https", tls=tls) as peer:
        old, new = (configured(peer.url, certificate=client_certificate(name)) for name in ("old", "new"))
        api = ApiClient(old, reload=Rotating(new))
        statuses = [(await api.call("POST", "/x", body=b"{}")).status for _ in range(3)]
        await until(lambda: peer.open == 1)
        await api.close()

    assert statuses == [201] * 3
    assert seen == ["old", "old", "new", "new"]


async def test_unusable_new_credentials_change_nothing() -> None:
    """The caller gets the reason for the missing response. Later writes use the old credentials."""
    replies = iter((REFUSED,))

    async def script(connection: ServerConnection) -> None:
        while True:
            await connection.request()
            await connection.send(next(replies, CREATED))

    async with serving(script) as peer:
        nowhere = configured(peer.url, proxy="https://proxy")
        api = ApiClient(configured(peer.url), reload=Rotating(nowhere))
        with pytest.raises(NoResponseError, match=r"cannot read credentials again: cannot connect to https://proxy"):
            await api.call("POST", "/x", body=b"{}")
        assert (await api.call("POST", "/x", body=b"{}")).status == 201
        await api.close()


async def test_an_unusable_proxy_is_reported_in_one_sentence() -> None:
    """The sentence has the remedy, and no connection is left open."""
    with pytest.raises(ClientConfigError, match=r"^cannot connect to https://proxy: .*example: http://proxy:3128"):
        ApiClient(configured("https://api", proxy="https://proxy"), reload=Rotating())
    gc.collect()


async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(2**16):
            writer.write(piece)
    finally:
        writer.close()


async def test_a_proxy_tunnels_tls() -> None:
    """The proxy gets target and credentials. TLS ends at the API server."""
    requests = []

    async def proxy(connection: ServerConnection) -> None:
        requests.append((await connection.head()).decode())
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(peer.url).port)
        await connection.send(b"HTTP/1.1 200 Connection established\r\n", b"Via: 1.1 proxy\r\n\r\n")
        await asyncio.gather(forward(connection.reader, writer), forward(reader, connection.writer))

    async with serving(answer_all, "https", tls=server_context("api.internal")) as peer, serving(proxy) as between:
        proxy_url = between.url.replace("//", "//me%40home:p%3Ass@")
        url = peer.url.replace("127.0.0.1", "api.internal")
        api = ApiClient(configured(url, proxy=proxy_url), reload=Rotating())
        statuses = [(await api.call("POST", "/x", body=b"{}")).status for _ in range(2)]
        await api.close()

    target = f"api.internal:{urlsplit(peer.url).port}"
    credentials = b64encode(b"me@home:p:ss").decode()
    assert statuses == [201, 201]
    assert requests == [
        f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Basic {credentials}\r\n\r\n"
    ]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (
            b"HTTP/1.1 407 Proxy Authentication Required\r\nX: 200\r\n\r\n",
            "answered 'HTTP/1.1 407 Proxy Authentication Req",
        ),
        (b"HTTP/1.1 503\r\n\r\n", "answered 'HTTP/1.1 503'"),
        (b"\xff\r\n\r\n", "answered '\N{REPLACEMENT CHARACTER}'"),
        (b"HTTP/1.1 200 OK\r\n", "closed the connection"),
    ],
    ids=["authentication required", "unavailable", "no HTTP", "cut"],
)
async def test_a_proxys_refusal_is_reported_unchanged(raw: bytes, why: str) -> None:
    """An IPv6 address has brackets in the request to the proxy."""
    requests = []

    async def proxy(connection: ServerConnection) -> None:
        requests.append(await connection.head())
        await connection.send(raw)

    async with serving(proxy) as between:
        api = ApiClient(configured("https://[fd00::1]", proxy=between.url), reload=Rotating())
        with pytest.raises(NoResponseError, match=f"^POST /x: the proxy {why}"):
            await api.call("POST", "/x", body=b"{}")
        await api.close()

    assert requests == [b"CONNECT [fd00::1]:443 HTTP/1.1\r\nHost: [fd00::1]:443\r\n\r\n"]
